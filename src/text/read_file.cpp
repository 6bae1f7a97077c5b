#include "text/read_file.h"

#include <filesystem>
#include <fstream>

namespace wp {

Result<std::string> read_text_file(const std::string& path, int64_t size_bytes_max) {
  std::error_code fault;
  const auto status = std::filesystem::status(path, fault);
  if (!std::filesystem::exists(status)) return Error{ErrorCode::not_found, cat(path, ": no such file")};
  if (!std::filesystem::is_regular_file(status))
    return Error{ErrorCode::bad_file, cat(path, ": expected a file, found something else")};
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, fault));
  if (fault) return Error{ErrorCode::io, cat(path, ": ", fault.message())};
  if (size > size_bytes_max)
    return Error{ErrorCode::bad_file, cat(path, ": expected at most ", size_bytes_max, " bytes, found ", size)};
  std::string content(static_cast<size_t>(size), '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file || !file.read(content.data(), size))
    return Error{ErrorCode::io, cat(path, ": expected ", size, " bytes, could not read them")};
  return content;
}

}  // namespace wp
