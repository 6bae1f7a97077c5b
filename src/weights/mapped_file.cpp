#include "weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <system_error>
#include <utility>

namespace wp {
namespace {

Error system_error(const std::string& path, const char* doing, int code) {
  const ErrorCode kind = code == ENOENT || code == ENOTDIR ? ErrorCode::not_found : ErrorCode::io;
  return Error{kind, cat(path, ": ", doing, ": ", std::generic_category().message(code))};
}

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path, int64_t size_bytes_max) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return system_error(path, "cannot open", errno);
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) return system_error(path, "cannot read its size", errno);
  if (!S_ISREG(status.st_mode))
    return Error{ErrorCode::io, cat(path, ": expected a regular file, found ",
                                    S_ISDIR(status.st_mode) ? "a folder" : "a device, pipe or socket")};
  if (status.st_size > size_bytes_max)
    return Error{ErrorCode::bad_file,
                 cat(path, ": expected at most ", size_bytes_max, " bytes, found ", int64_t{status.st_size})};
  MappedFile mapped;
  mapped.path_ = path;
  if (status.st_size > 0) {  // An empty file cannot be mapped, and need not be.
    void* data = ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (data == MAP_FAILED) return system_error(path, "cannot map", errno);
    mapped.data_ = static_cast<std::byte*>(data);
    mapped.size_bytes_ = status.st_size;
  }
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(data_, static_cast<size_t>(size_bytes_));
}

void MappedFile::swap(MappedFile& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
}

bool MappedFile::contains(const void* pointer) const {
  const std::less<const void*> before;
  return data_ && !before(pointer, data_) && before(pointer, data_ + size_bytes_);
}

Result<void> MappedFile::size_unchanged() const {
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0) return system_error(path_, "cannot read its size", errno);
  if (status.st_size != size_bytes_)
    return Error{ErrorCode::bad_file, cat(path_, ": expected ", size_bytes_, " bytes as when it was opened, found ",
                                          int64_t{status.st_size})};
  return {};
}

void MappedFile::discard(const void* begin, int64_t size_bytes) const {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
  const auto last = (reinterpret_cast<uintptr_t>(begin) + static_cast<uintptr_t>(size_bytes)) / page * page;
  // A hint: what the kernel makes of it changes no byte that a reader sees.
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace wp
