#include "model/model.h"

#include <gtest/gtest.h>

#include "model/families.h"
#include "model/layout.h"
#include "model/ngram_block.h"
#include "testing/canonical_outputs.h"
#include "testing/op_case.h"
#include "testing/seeds.h"

namespace wp {
namespace {

TEST(NumericsId, IsTheSameAgainAndWithOtherThreads) {
  for (DeviceKind kind : testing::backends()) {
    uint64_t ids[3];
    for (int i = 0; i < 3; ++i) {
      auto device = Device::make(kind, 1 + i);
      ASSERT_TRUE(device.ok());
      Stream stream(**device);
      ids[i] = numerics_id(stream);
      EXPECT_EQ(ids[i], numerics_id(stream));
    }
    EXPECT_EQ(ids[0], ids[1]);
    EXPECT_EQ(ids[0], ids[2]);
  }
}

// The same constant under every compiler and on every processor: tools/canonical_bits.sh builds for others.
TEST(NumericsId, OfCpuIsTheSameOnEveryMachine) {
  testing::equal_on_all_instruction_sets(1, [](testing::OpCase& op) {
    EXPECT_EQ(canonical_outputs(op.stream()), testing::kCanonicalOutputsOfCpu)
        << "prefill arithmetic has changed: raise kPrefillNumerics, then this value";
  });
}

// Check values of spec/qwen4_exp.md 3.5.
TEST(NgramConstants, AreTheSpecificationsValues) {
  NgramConfig config{.embed_dim = 2560,
                     .taps = 4,
                     .order = 3,
                     .heads = 8,
                     .vocabulary_base = 20000000,
                     .divisible_by = 128,
                     .parts = 128,
                     .seed = 1234,
                     .end_of_text = 0};
  const NgramConstants released = ngram_constants(config, 248320, 0);
  EXPECT_EQ(released.multipliers, (std::vector<int64_t>{23703573157769, 20109073645365, 8052911324071}));
  EXPECT_EQ(released.moduli.front(), 20000003);
  EXPECT_EQ(released.moduli.back(), 20000171);
  EXPECT_EQ(released.offsets.back(), 300001275);
  EXPECT_EQ(released.table_rows, 320001536);
  config.order = 4;
  EXPECT_EQ(ngram_constants(config, 320, 0).multipliers,
            (std::vector<int64_t>{25912437101140037, 21043097849633001, 26491075874708125, 10634470178852029}));
  EXPECT_EQ(ngram_constants(config, 320, 1).multipliers,
            (std::vector<int64_t>{10031986262627403, 17031287529366677, 4282197419670581, 25905221106776765}));
}

TEST(StateLayout, AnAnchorIsTheFirstPartOfASlot) {
  StateLayout layout;
  EXPECT_EQ(layout.add(100), 0);
  EXPECT_EQ(layout.add(4), 128);
  EXPECT_EQ(layout.add_pending(10), 192);
  EXPECT_EQ(layout.anchor_bytes(), 192);
  EXPECT_EQ(layout.slot_bytes(), 256);
}

}  // namespace
}  // namespace wp
