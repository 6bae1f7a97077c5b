// Detokenizer: turns one sequence's tokens into text as they come. Never emits half a character, and holds back what
// may still become a stop string. One owner, one thread at a time.
#pragma once

#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace wp {

class Detokenizer {
 public:
  // `stops`: stop strings; may span tokens. The one that is complete first wins, of two that end together the longer.
  // `skip_special`: special tokens give no text.
  Detokenizer(const Tokenizer& tokenizer, std::vector<std::string> stops, bool skip_special = true);

  // The text that is certain after this token: whole characters, nothing of a possible stop string. Invalid bytes
  // become U+FFFD as Python's errors="replace" does it.
  std::string push(TokenId token);
  // What was held back, at the end of generation; an incomplete character becomes U+FFFD.
  std::string finish();
  // True once a stop string was met. The text before it has been returned; the stop and what follows never is.
  bool stopped() const { return stopped_; }
  const std::string& stop() const { return stop_; }  // Which one.

  // Stop strings do not apply while this is set (inside reasoning, api.md 2).
  void ignore_stops(bool ignore) { ignore_stops_ = ignore; }

 private:
  // Finds one stop string in a text that comes byte by byte.
  struct StopMatcher {
    explicit StopMatcher(std::string text);
    bool advance(char byte);  // True when the stop is complete.

    std::string stop;
    std::vector<size_t> borders;
    size_t matched = 0;  // Bytes of the stop that end the text so far.
  };

  std::string take(bool at_end);

  const Tokenizer* tokenizer_;
  std::vector<StopMatcher> matchers_;
  bool skip_special_;
  bool ignore_stops_ = false;
  bool stopped_ = false;
  std::string stop_;
  std::string pending_bytes_;  // Bytes of an incomplete character.
  std::string held_;           // The characters that may begin a stop string: the shortest tail that can.
};

}  // namespace wp
