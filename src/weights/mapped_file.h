// MappedFile: one regular file, mapped whole and read-only. Move-only. Any thread may read; never writes, never grows.
// A file that another process cuts short while it is mapped raises SIGBUS where it is read: size_unchanged() finds that
// early, nothing can rule it out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/error.h"

namespace wp {

class MappedFile {
 public:
  // not_found, io (unreadable, or no regular file) or bad_file (larger than size_bytes_max). Messages begin with path.
  static Result<MappedFile> open(const std::string& path, int64_t size_bytes_max = INT64_MAX);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept { swap(other); }
  MappedFile& operator=(MappedFile other) noexcept {
    swap(other);
    return *this;
  }
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_bytes_)}; }
  bool contains(const void* pointer) const;

  // An error unless the file still has the size it was mapped with.
  Result<void> size_unchanged() const;
  // Drops the resident pages that lie wholly inside the span; they are read again from the file when touched.
  void discard(const void* begin, int64_t size_bytes) const;

 private:
  void swap(MappedFile& other) noexcept;

  std::string path_;
  std::byte* data_ = nullptr;
  int64_t size_bytes_ = 0;
};

}  // namespace wp
