#include "text/grammar/grammar_matcher.h"

#include <algorithm>

namespace wp {

GrammarMatcher::GrammarMatcher(std::shared_ptr<const TokenGrammar> grammar)
    : grammar_(std::move(grammar)),
      run_(grammar_->grammar()),
      at_(run_.start()),
      path_(static_cast<size_t>(grammar_->trie().depth_max()) + 1) {
  for (Mask& mask : masks_) mask.bits.reserve(grammar_->words());
}

std::span<const uint64_t> GrammarMatcher::allowed() {
  for (const Mask& mask : masks_)
    if (!mask.bits.empty() && mask.configuration == at_) return mask.bits;
  Mask& mask = masks_[next_mask_];
  next_mask_ = (next_mask_ + 1) % kMasksMax;
  mask.configuration = at_;
  mask.bits.assign(grammar_->words(), 0);
  if (at_ != GrammarRun::kDead) fill(mask.bits);
  if (run_.full()) {
    at_ = run_.forget(at_);
    for (Mask& other : masks_)
      if (&other != &mask) other.bits.clear();
    mask.configuration = at_;
  }
  return mask.bits;
}

void GrammarMatcher::fill(std::vector<uint64_t>& bits) {
  // By number: walks add configurations, and so move what a span of them would view.
  const size_t count = run_.frames(at_).size();
  for (size_t i = 0; i < count; ++i) {
    const GrammarRun::Frame frame = run_.frame(run_.frames(at_)[i]);
    const StateTokens& tokens = grammar_->tokens_of(frame.state, run_, spare_);
    for (size_t word = 0; word < tokens.bits.size(); ++word) bits[word] |= tokens.bits[word];
    for (const int32_t token : tokens.few) allow_token(bits, token);
    const int32_t after = run_.after(frame.parent);
    if (after == GrammarRun::kDead) continue;
    for (const int32_t leaf : tokens.leaves) allow_below(leaf, after, bits);
  }
}

void GrammarMatcher::allow_below(int32_t node, int32_t configuration, std::vector<uint64_t>& bits) {
  const TokenTrie& trie = grammar_->trie();
  path_[trie.node(node).depth] = configuration;
  const int32_t end = trie.node(node).end;
  for (int32_t i = node + 1; i < end;) {
    const TokenTrie::Node& below = trie.node(i);
    const int32_t at = run_.step(path_[below.depth - 1u], below.byte);
    if (at == GrammarRun::kDead) {
      i = below.end;
      continue;
    }
    path_[below.depth] = at;
    for (const int32_t token : trie.tokens(i)) allow_token(bits, token);
    ++i;
  }
}

bool GrammarMatcher::advance(int32_t token) {
  if (token < 0 || token >= grammar_->trie().vocabulary()) at_ = GrammarRun::kDead;
  const std::string_view bytes = at_ == GrammarRun::kDead ? std::string_view() : grammar_->trie().bytes(token);
  if (bytes.empty()) at_ = GrammarRun::kDead;
  for (size_t i = 0; i < bytes.size() && at_ != GrammarRun::kDead; ++i)
    at_ = run_.step(at_, static_cast<uint8_t>(bytes[i]));
  return at_ != GrammarRun::kDead;
}

}  // namespace wp
