// Apart from op_case.cpp because it reports to GoogleTest, which bench programs do not link.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/tables.h"
#include "testing/op_case.h"

namespace wp::testing {

std::vector<float> compare_backends(Seed seed, double tolerance, const std::function<void(OpCase&)>& run) {
  std::vector<float> expected;
  for (DeviceKind kind : {DeviceKind::ref, DeviceKind::cpu}) {
    if (!ops::check_backend(kind).ok()) continue;
    auto device = Device::make(kind, 2);
    EXPECT_TRUE(device.ok()) << device.error().message;
    Stream stream(**device);
    OpCase op(stream, seed);
    run(op);
    const std::vector<float>& found = op.results();
    if (kind == DeviceKind::ref) expected = found;
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
  return expected;
}

}  // namespace wp::testing
