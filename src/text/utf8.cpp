#include "text/utf8.h"

#include <unicode/uchar.h>

#include <cstring>

#include "core/assert.h"

namespace wp {

Utf8Step utf8_step(std::string_view text, size_t at) {
  WP_DASSERT(at < text.size());
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {Utf8Kind::valid, 1, lead};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Kind::invalid, 1, 0};
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte carries the exclusion of overlong forms, surrogates and what lies beyond U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  uint32_t character = lead & (0x7Fu >> length);
  for (int i = 1; i < length; ++i) {
    if (at + i >= text.size()) return {Utf8Kind::cut, i, 0};
    const uint8_t next = byte(i);
    if (next < (i == 1 ? low : 0x80) || next > (i == 1 ? high : 0xBF)) return {Utf8Kind::invalid, i, 0};
    character = (character << 6) | (next & 0x3Fu);
  }
  return {Utf8Kind::valid, length, character};
}

size_t utf8_valid_until(std::string_view text, size_t at) {
  while (at < text.size()) {
    uint64_t eight;
    if (at + 8 <= text.size()) {
      std::memcpy(&eight, text.data() + at, 8);
      if ((eight & 0x8080808080808080ull) == 0) {
        at += 8;
        continue;
      }
    }
    const Utf8Step step = utf8_step(text, at);
    if (step.kind != Utf8Kind::valid) break;
    at += step.length;
  }
  return at;
}

void append_utf8(std::string& out, uint32_t character) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (character < 0x80) {
    put(character);
  } else if (character < 0x800) {
    put(0xC0 | (character >> 6));
    put(0x80 | (character & 0x3F));
  } else if (character < 0x10000) {
    put(0xE0 | (character >> 12));
    put(0x80 | ((character >> 6) & 0x3F));
    put(0x80 | (character & 0x3F));
  } else {
    put(0xF0 | (character >> 18));
    put(0x80 | ((character >> 12) & 0x3F));
    put(0x80 | ((character >> 6) & 0x3F));
    put(0x80 | (character & 0x3F));
  }
}

int64_t utf8_count(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

bool is_white_space(uint32_t character) {
  return u_hasBinaryProperty(static_cast<UChar32>(character), UCHAR_WHITE_SPACE);
}

bool is_word_character(uint32_t character) {
  const auto c = static_cast<UChar32>(character);
  return u_hasBinaryProperty(c, UCHAR_ALPHABETIC) || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) ||
         (U_GET_GC_MASK(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

}  // namespace wp
