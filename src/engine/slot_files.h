// SlotFiles: what slots were last used for, saved to files of one folder and restored from them (--slot-save-path).
// Each call blocks the calling thread, which is not the engine's, while the engine goes on. Any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "store/path_file.h"

namespace wp {

class SlotFiles {
 public:
  struct Moved {
    int64_t tokens = 0, bytes = 0;
  };
  // Makes the folder if it is not there. The engine outlives it.
  static Result<std::unique_ptr<SlotFiles>> open(Engine& engine, const std::string& folder, const Origin& origin);

  // `domain` set: a path of that cache domain alone. bad_request: there is nothing to save, or the name is none.
  Result<Moved> save(int32_t slot, const std::string& name, std::optional<uint64_t> domain);
  // not_found: no such file. bad_file: it cannot be restored here, and why. A restored path gives what it gave when it
  // was saved.
  Result<Moved> restore(int32_t slot, const std::string& name, std::optional<uint64_t> domain);

 private:
  SlotFiles(Engine& engine, std::string folder, const Origin& origin);
  Engine& engine_;
  const std::string folder_;
  const PathFileKind kind_;
};

}  // namespace wp
