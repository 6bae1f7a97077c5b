#include "text/added_tokens.h"

#include <algorithm>

#include "text/utf8.h"

namespace wp {
namespace {

// The character that ends at `end`, or 0 where those bytes are none.
uint32_t character_before(std::string_view text, size_t end, size_t& begin) {
  for (size_t length = 1; length <= 4 && length <= end; ++length) {
    const Utf8Step step = utf8_step(text, end - length);
    if (step.kind != Utf8Kind::valid || step.length != static_cast<int>(length)) continue;
    begin = end - length;
    return step.character;
  }
  return 0;
}

size_t strip_left(std::string_view text, size_t end) {
  for (size_t begin = end; end > 0; end = begin)
    if (!is_white_space(character_before(text, end, begin))) break;
  return end;
}

size_t strip_right(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text, at);
    if (step.kind != Utf8Kind::valid || !is_white_space(step.character)) break;
    at += step.length;
  }
  return at;
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  size_t unused;
  if (begin > 0 && is_word_character(character_before(text, begin, unused))) return false;
  if (end == text.size()) return true;
  const Utf8Step after = utf8_step(text, end);
  return after.kind != Utf8Kind::valid || !is_word_character(after.character);
}

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token, std::string pattern) {
  if (pattern.empty()) return;
  auto& entries = by_first_byte_[static_cast<uint8_t>(pattern[0])];
  const auto shorter = [&](const Entry& entry) { return entry.pattern.size() < pattern.size(); };
  const auto place = std::find_if(entries.begin(), entries.end(), shorter);
  entries.insert(place, {std::move(pattern), token.id, token.lstrip, token.rstrip, token.single_word});
}

const AddedTokenMatcher::Entry* AddedTokenMatcher::find_at(std::string_view text, size_t at) const {
  for (const Entry& entry : by_first_byte_[static_cast<uint8_t>(text[at])])
    if (text.compare(at, entry.pattern.size(), entry.pattern) == 0) return &entry;
  return nullptr;
}

void AddedTokenMatcher::split(std::string_view text, std::vector<TextSegment>& segments) const {
  size_t segment_begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Entry* found = find_at(text, at);
    if (!found) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + found->pattern.size();
    at = end;
    if (found->single_word && !stands_alone(text, begin, end)) continue;
    if (found->lstrip) begin = std::max(strip_left(text, begin), segment_begin);
    if (found->rstrip) end = strip_right(text, end);
    if (begin > segment_begin) segments.push_back({text.substr(segment_begin, begin - segment_begin), -1});
    segments.push_back({text.substr(begin, end - begin), found->id});
    segment_begin = at = end;
  }
  if (segment_begin < text.size()) segments.push_back({text.substr(segment_begin), -1});
}

}  // namespace wp
