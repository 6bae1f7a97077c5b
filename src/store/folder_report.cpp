#include "store/folder_report.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>

#include "core/hash.h"
#include "store/file.h"
#include "store/segment_name.h"

namespace wp {
namespace {

constexpr int64_t kReadBytes = int64_t{1} << 20;

// Neither a link nor what would block: a folder may hold anything under a segment's name.
bool open_plain(const std::string& path, File& file, struct stat& status) {
  file = File(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return file && ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode);
}

bool read_all(int file, void* to, int64_t size_bytes, int64_t offset) {
  for (int64_t done = 0; done < size_bytes;) {
    const auto left = static_cast<size_t>(size_bytes - done);
    const int64_t count = ::pread(file, static_cast<char*>(to) + done, left, offset + done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += count;
  }
  return true;
}

RecordState check_payload(int file, const RecordHeader& header, int64_t offset) {
  PiecewiseHash hash;
  std::vector<std::byte> piece(static_cast<size_t>(std::min(kReadBytes, header.payload_bytes)));
  for (int64_t done = 0; done < header.payload_bytes;) {
    const int64_t count = std::min(kReadBytes, header.payload_bytes - done);
    if (!read_all(file, piece.data(), count, offset + done)) return RecordState::damaged;
    hash.add(piece.data(), static_cast<size_t>(count));
    done += count;
  }
  return hash.value() == header.payload_hash ? RecordState::good : RecordState::damaged;
}

// The payload is written before its header, so a server that is killed leaves zeros, or too few bytes.
void read_segment(const std::string& folder, const std::string& file_name, bool verify, FolderReport& report) {
  File file;
  struct stat status {};
  ++report.segments;
  const auto end = [&](int64_t offset, bool torn, std::string reason) {
    report.tails.push_back({file_name, offset, std::max<int64_t>(status.st_size - offset, 0), torn, std::move(reason)});
  };
  if (!open_plain(folder + "/" + file_name, file, status)) {
    status = {};
    return end(0, false, "expected a plain file that can be read, found none");
  }
  report.bytes += status.st_size;
  const int64_t age_s = std::max<int64_t>(std::time(nullptr) - status.st_mtime, 0);
  constexpr auto kHeaderBytes = static_cast<int64_t>(sizeof(RecordHeader));
  for (int64_t offset = 0; offset < status.st_size;) {
    std::array<std::byte, sizeof(RecordHeader)> bytes;
    if (status.st_size - offset < kHeaderBytes) return end(offset, true, "expected a header, found the file's end");
    if (!read_all(file.get(), bytes.data(), kHeaderBytes, offset))
      return end(offset, false, cat("expected a header, found: ", std::strerror(errno)));
    if (std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; }))
      return end(offset, true, "expected a header, found none written");
    const auto header = parse_header(bytes);
    if (!header.ok()) return end(offset, false, header.error().message);
    if (header->payload_bytes > status.st_size - offset - kHeaderBytes)
      return end(offset, true, cat("expected ", header->payload_bytes, " bytes, found the file's end"));
    const RecordState state = verify ? check_payload(file.get(), *header, offset + kHeaderBytes) : RecordState::listed;
    report.records.push_back({file_name, offset, *header, age_s, state});
    offset += kHeaderBytes + header->payload_bytes;
  }
}

}  // namespace

const char* name(RecordState state) {
  switch (state) {
    case RecordState::listed: return "listed";
    case RecordState::good: return "good";
    case RecordState::damaged: return "damaged";
  }
  WP_ASSERT(false);
}

int64_t FolderReport::damaged() const {
  return std::count_if(records.begin(), records.end(), [](const auto& r) { return r.state == RecordState::damaged; }) +
         std::count_if(tails.begin(), tails.end(), [](const TailReport& tail) { return !tail.torn; });
}

bool is_cache_folder(const std::string& folder) {
  struct stat status {};
  return ::lstat((folder + "/root").c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         status.st_size == sizeof(uint64_t);
}

Result<FolderReport> read_cache_folder(const std::string& folder, bool verify) {
  if (!is_cache_folder(folder))
    return Error{ErrorCode::bad_file,
                 cat(folder, ": expected a folder of --cache-disk, found no root file of 8 bytes")};
  std::map<uint64_t, std::string> found;
  std::error_code fault;
  for (auto at = std::filesystem::directory_iterator(folder, fault); !fault && at != std::filesystem::end(at);
       at.increment(fault))
    if (const auto number = segment_number(at->path().filename().string()))
      found[*number] = at->path().filename().string();
  if (fault) return Error{ErrorCode::io, cat(folder, ": ", fault.message())};
  FolderReport report;
  for (const auto& [number, file_name] : found) read_segment(folder, file_name, verify, report);
  return report;
}

}  // namespace wp
