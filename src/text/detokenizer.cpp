#include "text/detokenizer.h"

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace wp {
namespace {

// Moves the whole characters at the head of `bytes` to the result; invalid ones become U+FFFD. What may still grow
// into a character stays, unless this is the end.
std::string move_characters(std::string& bytes, bool at_end) {
  std::string text;
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t valid_end = utf8_valid_until(bytes, at);
    text.append(bytes, at, valid_end - at);
    at = valid_end;
    if (at == bytes.size()) break;
    const Utf8Step step = utf8_step(bytes, at);
    if (step.kind == Utf8Kind::cut && !at_end) break;
    text += kReplacementCharacter;
    at += step.length;
  }
  bytes.erase(0, at);
  return text;
}

}  // namespace

// Knuth, Morris and Pratt: borders[i] is the length of the longest proper prefix of the stop that ends its first i + 1
// bytes, to go on from after a mismatch.
Detokenizer::StopMatcher::StopMatcher(std::string text) : stop(std::move(text)), borders(stop.size()) {
  for (size_t i = 1, length = 0; i < stop.size(); ++i) {
    while (length > 0 && stop[i] != stop[length]) length = borders[length - 1];
    if (stop[i] == stop[length]) ++length;
    borders[i] = length;
  }
}

bool Detokenizer::StopMatcher::advance(char byte) {
  while (matched > 0 && byte != stop[matched]) matched = borders[matched - 1];
  if (byte == stop[matched]) ++matched;
  return matched == stop.size();
}

Detokenizer::Detokenizer(const Tokenizer& tokenizer, std::vector<std::string> stops, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special) {
  for (std::string& stop : stops) {
    // An empty one would stop before the first character, and text is always UTF-8: neither can be meant.
    if (stop.empty() || utf8_valid_until(stop, 0) != stop.size()) continue;
    matchers_.emplace_back(std::move(stop));
  }
}

std::string Detokenizer::push(TokenId token) {
  if (stopped_ || (skip_special_ && tokenizer_->is_special(token))) return "";
  pending_bytes_ += tokenizer_->bytes(token);
  return take(false);
}

std::string Detokenizer::finish() { return stopped_ ? "" : take(true); }

std::string Detokenizer::take(bool at_end) {
  const std::string text = move_characters(pending_bytes_, at_end);
  if (ignore_stops_) {
    // What comes later may not complete a stop that began here.
    for (StopMatcher& matcher : matchers_) matcher.matched = 0;
    return std::exchange(held_, "") + text;
  }
  // Byte by byte, so that how the text is cut into tokens decides nothing.
  for (const char byte : text) {
    held_ += byte;
    const StopMatcher* longest = nullptr;
    for (StopMatcher& matcher : matchers_)
      if (matcher.advance(byte) && (!longest || matcher.stop.size() > longest->stop.size())) longest = &matcher;
    if (!longest) continue;
    stopped_ = true;
    stop_ = longest->stop;
    held_.resize(held_.size() - stop_.size());
    pending_bytes_.clear();
    return std::exchange(held_, "");
  }
  size_t held_bytes = 0;
  for (const StopMatcher& matcher : matchers_) held_bytes = std::max(held_bytes, matcher.matched);
  if (at_end) held_bytes = 0;
  std::string out = held_.substr(0, held_.size() - held_bytes);
  held_.erase(0, out.size());
  return out;
}

}  // namespace wp
