// UTF-8, one step at a time: where a character ends, or the longest prefix of one that the bytes at hand could still
// become. The division of invalid bytes is Unicode's "maximal subpart", as Python's errors="replace" has it. Also the
// two character classes of Hugging Face's added tokens. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace wp {

enum class Utf8Kind { valid, invalid, cut };  // cut: the text ends within what is a character so far.

struct Utf8Step {
  Utf8Kind kind;
  int length;          // Bytes of the character, or of the maximal subpart. At least 1.
  uint32_t character;  // Where valid.
};

// Of the bytes at `at`, which must lie inside the text.
Utf8Step utf8_step(std::string_view text, size_t at);
// The end of the longest valid run that starts at `at`.
size_t utf8_valid_until(std::string_view text, size_t at);
void append_utf8(std::string& out, uint32_t character);
// Characters of valid UTF-8.
int64_t utf8_count(std::string_view text);

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// White_Space of Unicode, which Rust's \s and Oniguruma's \s both mean.
bool is_white_space(uint32_t character);
// Rust's \w: alphabetic, mark, decimal number, connector punctuation or join control.
bool is_word_character(uint32_t character);

}  // namespace wp
