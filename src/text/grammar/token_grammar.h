// TokenGrammar: a grammar beside the vocabulary whose tokens spell its texts. What a state alone says of the tokens,
// whatever called its rule, is found once, by whoever meets the state first, and shared by all requests. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/grammar/grammar_run.h"
#include "text/grammar/token_trie.h"

namespace wp {

// Of one state: tokens it accepts without leaving its rule for the caller's bytes, and where in the trie its rule has
// ended and the caller decides about what is below.
struct StateTokens {
  std::vector<uint64_t> bits;  // Of all tokens; empty where `few` holds them.
  std::vector<int32_t> few;
  std::vector<int32_t> leaves;  // Nodes.
  int64_t size_bytes() const;
};

// In a mask of the vocabulary, a bit for each token.
inline void allow_token(std::vector<uint64_t>& bits, int32_t token) {
  bits[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
}

class TokenGrammar {
 public:
  TokenGrammar(Grammar grammar, std::shared_ptr<const TokenTrie> trie);
  ~TokenGrammar();
  TokenGrammar(const TokenGrammar&) = delete;
  TokenGrammar& operator=(const TokenGrammar&) = delete;

  const Grammar& grammar() const { return grammar_; }
  const TokenTrie& trie() const { return *trie_; }
  size_t words() const { return (static_cast<size_t>(trie_->vocabulary()) + 63) / 64; }

  // From the cache, or found and put there. Where the cache is full, `spare` holds it until the next call.
  const StateTokens& tokens_of(int32_t state, GrammarRun& run, StateTokens& spare) const;
  // Finds those of the states in order of their numbers until so many nodes of the trie were looked at.
  void warm_up(int64_t visits_max) const;

 private:
  StateTokens find(int32_t state, GrammarRun& run, int64_t* visits) const;
  const StateTokens* publish(int32_t state, StateTokens found) const;

  const Grammar grammar_;
  const std::shared_ptr<const TokenTrie> trie_;
  mutable std::vector<std::atomic<const StateTokens*>> cache_;  // By state.
  mutable std::atomic<int64_t> cached_bytes_ = 0;
};

}  // namespace wp
