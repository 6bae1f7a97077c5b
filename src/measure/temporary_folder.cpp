#include "measure/temporary_folder.h"

#include <cstdlib>
#include <filesystem>

#include "core/cat.h"

namespace wp::measure {

Result<TemporaryFolder> TemporaryFolder::make(const std::string& purpose) {
  std::error_code fault;
  std::string pattern = (std::filesystem::temp_directory_path(fault) / cat("warmpath-", purpose, "-XXXXXX")).string();
  if (fault || !::mkdtemp(pattern.data()))
    return Error{ErrorCode::io, cat(purpose, ": could not make the folder ", pattern)};
  TemporaryFolder folder;
  folder.path_ = pattern;
  return folder;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace wp::measure
