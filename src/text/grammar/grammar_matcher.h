// GrammarMatcher: one answer under a grammar, token by token: which tokens may come next, and whether the answer may
// end. One per request; made by the submitting thread, then used by the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "text/grammar/grammar_run.h"
#include "text/grammar/token_grammar.h"

namespace wp {

class GrammarMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<const TokenGrammar> grammar);

  // A bit for each token that may come next. Good until the next call.
  std::span<const uint64_t> allowed();
  bool may_end() const { return at_ != GrammarRun::kDead && run_.ends(at_); }
  // False: it may not come next; then nothing may.
  bool advance(int32_t token);

 private:
  static constexpr size_t kMasksMax = 4;
  struct Mask {
    int32_t configuration = GrammarRun::kDead;
    std::vector<uint64_t> bits;
  };
  void fill(std::vector<uint64_t>& bits);
  void allow_below(int32_t node, int32_t configuration, std::vector<uint64_t>& bits);

  std::shared_ptr<const TokenGrammar> grammar_;
  GrammarRun run_;
  int32_t at_;
  Mask masks_[kMasksMax];  // Those found last.
  size_t next_mask_ = 0;
  StateTokens spare_;
  std::vector<int32_t> path_;  // Of a walk: the configuration at each depth.
};

}  // namespace wp
