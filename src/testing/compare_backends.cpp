// Apart from op_case.cpp because it reports to GoogleTest, which bench programs do not link.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/test_targets.h"
#include "ops/tables.h"
#include "ops/workspace.h"
#include "testing/op_case.h"

namespace wp::testing {

std::vector<DeviceKind> backends() {
  std::vector<DeviceKind> found;
  for (DeviceKind kind : {DeviceKind::ref, DeviceKind::cpu, DeviceKind::cuda})
    if (ops::check_backend(kind).ok() && Device::make(kind, 1).ok()) found.push_back(kind);
  return found;
}

namespace {

std::unique_ptr<Device> device_of(DeviceKind kind, int threads) {
  auto device = Device::make(kind, threads);
  EXPECT_TRUE(device.ok()) << device.error().message;
  return std::move(*device);
}

// A device with memory of its own is made once, with what cases take from it.
struct OwnMemory {
  explicit OwnMemory(DeviceKind kind) : device(device_of(kind, 1)) {
    const auto make = [&](int64_t bytes, Memory memory) {
      auto made = Buffer::make(*device, bytes, "tests", memory);
      WP_ASSERT(made.ok());
      return std::move(*made);
    };
    cases = {make(256 << 20, Memory::shared),
             make(device->workspaces() * ops::workspace_bytes_per_thread(32768), Memory::device)};
    lent = make(16 << 20, Memory::device);
  }
  std::unique_ptr<Device> device;
  OpCase::Memory cases;
  Buffer lent;
};

std::vector<float> results_of(DeviceKind kind, int threads, Seed seed, const std::function<void(OpCase&)>& run) {
  Recorder recorder(1);  // A recorded launch has finished when it returns: tests read results at once.
  const auto results = [&](Device& device, OwnMemory* memory) {
    Stream stream(device);
    stream.record(&recorder);
    if (memory) stream.lend(memory->lent.data(), memory->lent.size_bytes());
    OpCase op(stream, seed, memory ? &memory->cases : nullptr);
    run(op);
    return op.results();
  };
  if (reads_host_memory(kind)) return results(*device_of(kind, threads), nullptr);
  static OwnMemory memory(kind);  // Of the only kind there is.
  return results(*memory.device, &memory);
}

// Products on tensor cores round their operands to bf16: half a unit in the ninth bit of each.
double tolerance_of(DeviceKind kind) { return kind == DeviceKind::cuda ? 6e-3 : 0; }

void expect_close(DeviceKind kind, const std::vector<float>& found, const std::vector<float>& expected,
                  double tolerance) {
  EXPECT_EQ(found.size(), expected.size());
  double largest = 0;
  for (float value : expected) largest = std::max(largest, std::abs(static_cast<double>(value)));
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    if (std::abs(static_cast<double>(found[i]) - expected[i]) <= tolerance * (1 + largest)) continue;
    ADD_FAILURE() << name(kind) << ": result " << i << " of " << found.size() << ": expected " << expected[i]
                  << ", found " << found[i];
    break;
  }
}

}  // namespace

bool equal_on_all_instruction_sets(Seed seed, const std::function<void(OpCase&)>& run) {
  std::vector<float> first;
  int threads = 1;
  for (const int64_t target : kernels::cpu::runnable_targets()) {
    const kernels::cpu::ForcedTarget forced(target);
    const std::vector<float> found = results_of(DeviceKind::cpu, threads++, seed, run);
    if (first.empty()) first = found;
    if (found.size() != first.size()) return false;
    if (!first.empty() && std::memcmp(found.data(), first.data(), first.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

std::vector<float> compare_backends(Seed seed, double tolerance, const std::function<void(OpCase&)>& run) {
  const std::vector<float> expected = results_of(DeviceKind::ref, 2, seed, run);
  for (DeviceKind kind : backends())
    if (kind != DeviceKind::ref)
      expect_close(kind, results_of(kind, 2, seed, run), expected, std::max(tolerance, tolerance_of(kind)));
  const bool cpu = ops::check_backend(DeviceKind::cpu).ok();
  EXPECT_TRUE(!cpu || equal_on_all_instruction_sets(seed, run));
  return expected;
}

}  // namespace wp::testing
