// Code points and their UTF-8 byte ranges, for every code point there is.
#include "text/grammar/code_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "testing/seeds.h"

namespace wp {
namespace {

// By the definition of UTF-8, one shape of character after the other.
std::string encode(uint32_t code) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | (code >> 6)), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | (code >> 12)), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | (code >> 18)), tail(12), tail(6), tail(0)};
}

// How many of the sequences are exactly these bytes: a set's sequences never overlap, so 0 or 1.
int matches(const std::vector<ByteSequence>& sequences, const std::string& bytes) {
  int found = 0;
  for (const ByteSequence& sequence : sequences) {
    bool fits = sequence.count == static_cast<int>(bytes.size());
    for (int i = 0; fits && i < sequence.count; ++i) {
      const auto byte = static_cast<uint8_t>(bytes[static_cast<size_t>(i)]);
      fits = sequence.ranges[i].first <= byte && byte <= sequence.ranges[i].second;
    }
    found += fits;
  }
  return found;
}

int64_t strings_of(const std::vector<ByteSequence>& sequences) {
  int64_t total = 0;
  for (const ByteSequence& sequence : sequences) {
    int64_t count = 1;
    for (int i = 0; i < sequence.count; ++i) count *= sequence.ranges[i].second - sequence.ranges[i].first + 1;
    total += count;
  }
  return total;
}

bool is_surrogate(uint32_t code) { return code >= 0xD800 && code <= 0xDFFF; }

// Every member once, nothing else once, and as many byte strings as members: so no string that is not UTF-8.
void check(const CodeSet& set) {
  const std::vector<ByteSequence> sequences = utf8_sequences(set);
  int64_t members = 0;
  for (uint32_t code = 0; code <= 0x10FFFF; ++code) {
    const bool inside = set.has(code) && !is_surrogate(code);
    members += inside;
    if (matches(sequences, encode(code)) != (inside ? 1 : 0)) {
      ADD_FAILURE() << "code point " << code << ": expected " << inside;
      return;
    }
  }
  EXPECT_EQ(strings_of(sequences), members);
}

TEST(CodeSet, AllCodePointsAreTheNineShapesOfUtf8) {
  check(CodeSet(0, 0x10FFFF));
  EXPECT_EQ(utf8_sequences(CodeSet(0, 0x10FFFF)).size(), 9u);  // The Unicode standard's table of well-formed UTF-8.
}

TEST(CodeSet, SurrogatesHaveNoBytes) {
  EXPECT_TRUE(utf8_sequences(CodeSet(0xD800, 0xDFFF)).empty());
  EXPECT_FALSE(CodeSet('a', 'a').complement().has(0xD912));
  EXPECT_EQ(matches(utf8_sequences(CodeSet().complement()), "\xED\xA0\x80"), 0);
  EXPECT_EQ(matches(utf8_sequences(CodeSet().complement()), "\xC0\x80"), 0);  // Overlong.
}

TEST(CodeSet, MergesWhatTouches) {
  CodeSet set('d', 'f');
  set.add('a', 'c');
  set.add('x', 'z');
  set.add('z', 'y');  // Nothing.
  ASSERT_EQ(set.ranges().size(), 2u);
  EXPECT_EQ(set.ranges()[0].low, static_cast<uint32_t>('a'));
  EXPECT_EQ(set.ranges()[0].high, static_cast<uint32_t>('f'));
}

TEST(CodeSet, RandomSetsAndTheirComplements) {
  for (const Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    Rng rng(seed);
    CodeSet set;
    for (int i = 0; i < 6; ++i) {
      const auto low = static_cast<uint32_t>(rng.between(0, i % 2 ? 0x10FFFF : 0x900));
      set.add(low, std::min<uint32_t>(0x10FFFF, low + static_cast<uint32_t>(rng.between(0, i % 2 ? 90'000 : 70))));
    }
    check(set);
    check(set.complement());
    const CodeSet other(0x40, 0x2000), without = set.complement(), difference = set.minus(other);
    for (uint32_t code = 0; code <= 0x10FFFF; ++code) {
      if (is_surrogate(code)) continue;
      ASSERT_EQ(difference.has(code), set.has(code) && !other.has(code)) << code;
      ASSERT_NE(without.has(code), set.has(code)) << code;
    }
  }
}

}  // namespace
}  // namespace wp
