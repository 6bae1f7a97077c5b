// KernelTable: which kernels an operation has, one for each backend. The tables stand in ops/tables.cpp, in one list,
// so that a backend with a gap is found when a model is loaded and never replaced by another. Const; any thread.
#pragma once

#include "core/assert.h"
#include "device/device.h"

namespace wp::kernels {

template <class Args>
struct KernelTable {
  using Kernel = void (*)(Stream& stream, const Args& args);

  const char* name;
  Kernel ref = nullptr;
  Kernel cpu = nullptr;

  Kernel of(DeviceKind kind) const { return kind == DeviceKind::ref ? ref : kind == DeviceKind::cpu ? cpu : nullptr; }
  Kernel pick(const Stream& stream) const {
    const Kernel found = of(stream.kind());
    WP_ASSERT(found);  // Loading checked it: ops::check_backend.
    return found;
  }
};

}  // namespace wp::kernels
