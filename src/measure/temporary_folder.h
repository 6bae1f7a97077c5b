// TemporaryFolder: a folder of its own for one run of a tool, removed with all it holds when it ends.
#pragma once

#include <string>

#include "core/error.h"

namespace wp::measure {

class TemporaryFolder {
 public:
  static Result<TemporaryFolder> make(const std::string& purpose);  // A word of its name.

  TemporaryFolder() = default;  // None.
  TemporaryFolder(TemporaryFolder&& other) noexcept { path_.swap(other.path_); }
  TemporaryFolder& operator=(TemporaryFolder&& other) noexcept {
    path_.swap(other.path_);
    return *this;
  }
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace wp::measure
