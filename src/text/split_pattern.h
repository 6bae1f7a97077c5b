// The Split pattern of a pre-tokenizer: a regular expression written for Oniguruma (Hugging Face tokenizers), run by
// PCRE2. Where the two dialects mean different things by the same characters the pattern is rewritten, and what has
// no rewriting here is refused by name. Const once compiled; any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

struct pcre2_real_code_8;

namespace wp {

// The same language for PCRE2 with UTF and UCP: \s is Unicode's White_Space (PCRE2's own \s also takes U+180E), and
// anchors, dots, word classes, nested classes and the like, which differ, are refused.
Result<std::string> translate_pattern(std::string_view pattern);

class SplitPattern {
 public:
  static Result<SplitPattern> compile(std::string_view pattern);

  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;
  ~SplitPattern();

  // Where the pieces of valid UTF-8 `text` end, in order, the last one text.size(): matches are pieces, and so is what
  // lies between them. Text on which the pattern exceeds the match limit becomes one piece from there on; no pattern
  // in use does.
  void split(std::string_view text, std::vector<size_t>& ends) const;

 private:
  explicit SplitPattern(pcre2_real_code_8* code) : code_(code) {}
  pcre2_real_code_8* code_ = nullptr;
};

}  // namespace wp
