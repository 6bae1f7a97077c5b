#include "text/grammar/token_grammar.h"

namespace wp {
namespace {

constexpr int64_t kCacheBytesMax = 32 << 20;

}  // namespace

int64_t StateTokens::size_bytes() const {
  return static_cast<int64_t>(sizeof(*this) + bits.size() * sizeof(uint64_t) +
                              (few.size() + leaves.size()) * sizeof(int32_t));
}

TokenGrammar::TokenGrammar(Grammar grammar, std::shared_ptr<const TokenTrie> trie)
    : grammar_(std::move(grammar)), trie_(std::move(trie)), cache_(static_cast<size_t>(grammar_.states())) {}

TokenGrammar::~TokenGrammar() {
  for (auto& entry : cache_) delete entry.load();
}

// The state with nothing below it: where it ends, the caller decides.
StateTokens TokenGrammar::find(int32_t state, GrammarRun& run, int64_t* visits) const {
  const TokenTrie& trie = *trie_;
  StateTokens found;
  std::vector<int32_t> path(static_cast<size_t>(trie.depth_max()) + 1);
  path[0] = run.begin_at(state, GrammarRun::kBottom);
  std::vector<int32_t> accepted;
  for (int32_t i = 0; i < trie.nodes();) {
    ++*visits;
    const TokenTrie::Node& node = trie.node(i);
    const int32_t at = run.step(path[node.depth - 1u], node.byte);
    if (at == GrammarRun::kDead) {
      i = node.end;
      continue;
    }
    path[node.depth] = at;
    for (const int32_t token : trie.tokens(i)) accepted.push_back(token);
    if (run.ends(at) && node.end > i + 1) found.leaves.push_back(i);
    ++i;
  }
  if (accepted.size() * 2 <= words()) {
    found.few.assign(accepted.begin(), accepted.end());
  } else {
    found.bits.assign(words(), 0);
    for (const int32_t token : accepted) allow_token(found.bits, token);
  }
  found.leaves.shrink_to_fit();
  return found;
}

const StateTokens* TokenGrammar::publish(int32_t state, StateTokens found) const {
  const int64_t bytes = found.size_bytes();
  if (cached_bytes_.fetch_add(bytes) + bytes > kCacheBytesMax) {
    cached_bytes_ -= bytes;
    return nullptr;
  }
  const auto* made = new StateTokens(std::move(found));
  const StateTokens* known = nullptr;
  if (cache_[static_cast<size_t>(state)].compare_exchange_strong(known, made)) return made;
  delete made;  // Another thread was faster; theirs is the same.
  cached_bytes_ -= bytes;
  return known;
}

const StateTokens& TokenGrammar::tokens_of(int32_t state, GrammarRun& run, StateTokens& spare) const {
  if (const StateTokens* known = cache_[static_cast<size_t>(state)].load()) return *known;
  int64_t visits = 0;
  spare = find(state, run, &visits);
  if (cached_bytes_.load() >= kCacheBytesMax) return spare;
  const StateTokens* made = publish(state, spare);
  return made ? *made : spare;
}

void TokenGrammar::warm_up(int64_t visits_max) const {
  GrammarRun run(grammar_);
  int64_t visits = 0;
  for (int32_t state = 0; state < grammar_.states() && visits < visits_max; ++state) {
    if (!grammar_.reads(state) || run.full()) continue;
    publish(state, find(state, run, &visits));
  }
}

}  // namespace wp
