#include "model/staged_packing.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/rng.h"

namespace wp {
namespace {

// However many readers and slots, and whether a matrix fits into a slot: what arena.pack() makes, in the same order.
TEST(StagedPacking, MakesWhatPackingInPlaceMakes) {
  const auto device = Device::make(DeviceKind::cpu, 1);
  ASSERT_TRUE(device.ok());
  Rng rng(1);
  std::vector<std::vector<uint8_t>> data;
  std::vector<Matrix> rows;
  for (int i = 0; i < 60; ++i) {
    const bool nvfp4 = i % 2 == 0;
    Matrix matrix{.format = nvfp4 ? WeightFormat::nvfp4 : WeightFormat::bf16,
                  .N = rng.between(1, 90),
                  .K = 16 * rng.between(1, 20)};
    for (const int64_t bytes : {matrix.data_bytes(), matrix.scale_bytes()}) {
      auto& drawn = data.emplace_back(static_cast<size_t>(bytes));
      for (uint8_t& byte : drawn) byte = static_cast<uint8_t>(rng.between(0, 0x70));
      (bytes == matrix.data_bytes() && !matrix.data ? matrix.data : matrix.scale) = drawn.data();
    }
    rows.push_back(matrix);
  }
  int64_t bytes = 0;
  for (const Matrix& matrix : rows) {
    ASSERT_GT(ops::packed_bytes(DeviceKind::cpu, matrix), 0);
    bytes += ops::packed_bytes(DeviceKind::cpu, matrix);
  }
  auto direct = ops::WeightArena::make(**device, bytes);
  ASSERT_TRUE(direct.ok());
  std::vector<Matrix> expected;
  for (const Matrix& matrix : rows) expected.push_back(direct->pack(matrix));
  for (const auto& [readers, slots, slot_bytes] :
       std::vector<std::tuple<int, int, int64_t>>{{1, 1, 64 << 10}, {4, 3, 4 << 10}, {8, 12, 64 << 10}, {2, 2, 64}}) {
    auto arena = ops::WeightArena::make(**device, bytes);
    ASSERT_TRUE(arena.ok());
    std::vector<Matrix> found = rows;
    std::vector<Matrix*> pointers;
    for (Matrix& matrix : found) pointers.push_back(&matrix);
    size_t calls = 0;
    const auto done =
        pack_staged(**device, *arena, pointers, {.readers = readers, .slot_bytes = slot_bytes, .slots = slots},
                    [&](const Matrix& matrix) { EXPECT_EQ(matrix.data, rows[calls++].data); });
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(calls, rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto size = static_cast<size_t>(ops::packed_bytes(DeviceKind::cpu, rows[i]));
      EXPECT_EQ(std::memcmp(found[i].data, expected[i].data, size), 0) << i;
    }
  }
}

}  // namespace
}  // namespace wp
