// KernelTable: which kernels an operation has, one for each backend. The tables stand in ops/tables.cpp, in one list,
// so that a backend with a gap is found when a model is loaded and never replaced by another. Const; any thread.
#pragma once

#include "core/assert.h"
#include "device/device.h"
#include "kernels/cost.h"

namespace wp::kernels {

template <class Args>
struct KernelTable {
  using Kernel = void (*)(Stream& stream, const Args& args);

  const char* name;
  Kernel ref = nullptr;
  Kernel cpu = nullptr;
  Kernel gpu = nullptr;  // CUDA; null where the program was built without.

  Kernel of(DeviceKind kind) const {
    switch (kind) {
      case DeviceKind::ref: return ref;
      case DeviceKind::cpu: return cpu;
      case DeviceKind::cuda: return gpu;
      default: return nullptr;
    }
  }
  // Runs the kernel of the stream's backend. That there is one was checked on loading (ops::check_backend).
  void run(Stream& stream, const Args& args) const {
    Kernel kernel = of(stream.kind());
    if (const StandIn* other = stream.stand_in(); other && other->op == name)
      kernel = reinterpret_cast<Kernel>(other->kernel);
    const bool dry = stream.device().is_dry();
    WP_ASSERT(kernel || dry);
    Recorder* recorder = stream.recorder();
    if (recorder) recorder->begin(stream, name, cost_of(args));
    if (!dry) kernel(stream, args);
    if (recorder) recorder->end(stream);
  }
};

}  // namespace wp::kernels
