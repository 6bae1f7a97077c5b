#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/argmax.h"

namespace wp {
namespace {

using Candidate = SamplerScratch::Candidate;
constexpr float kMasked = -std::numeric_limits<float>::infinity();
constexpr double kNegligible = -40.0;  // ln of the mass, relative to the best, below which nothing is drawn.

bool goes_before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The candidates in their order, sorted only as far as somebody looks: sorting a whole vocabulary takes longer than
// the pass of a small model.
class Ordered {
 public:
  explicit Ordered(std::span<Candidate> all) : all_(all) {}
  const Candidate& operator[](size_t index) {
    while (index >= sorted_) sort_more();
    return all_[index];
  }

 private:
  void sort_more() {
    const size_t end = std::min(all_.size(), sorted_ == 0 ? size_t{64} : sorted_ * 8);
    const auto from = all_.begin() + static_cast<ptrdiff_t>(sorted_), to = all_.begin() + static_cast<ptrdiff_t>(end);
    if (to != all_.end()) std::nth_element(from, to, all_.end(), goes_before);
    std::sort(from, to, goes_before);
    sorted_ = end;
  }
  std::span<Candidate> all_;
  size_t sorted_ = 0;
};

// -1: none has a bit. An empty mask hides nothing.
TokenId best_of(std::span<const float> logits, std::span<const uint64_t> mask = {}) {
  if (mask.empty()) return static_cast<TokenId>(index_of_largest(logits));
  const size_t best = index_of_largest(logits, mask);
  return best < logits.size() ? static_cast<TokenId>(best) : -1;
}

double sum_of_mass(std::span<const Candidate> candidates) {
  double sum = 0;
  for (const Candidate& candidate : candidates) sum += candidate.mass;
  return sum;
}

// The `count` best of a row, best first.
std::vector<TokenLogprob> best_tokens(std::span<const float> logits, size_t count, double log_sum) {
  std::vector<TokenLogprob> best;
  best.reserve(count + 1);
  for (size_t i = 0; i < logits.size() && count > 0; ++i) {
    if (best.size() == count && logits[i] <= best.back().logprob) continue;
    auto at = best.end();
    while (at != best.begin() && (at - 1)->logprob < logits[i]) --at;
    best.insert(at, {static_cast<TokenId>(i), logits[i]});
    if (best.size() > count) best.pop_back();
  }
  for (TokenLogprob& entry : best) entry.logprob = static_cast<float>(entry.logprob - log_sum);
  return best;
}

}  // namespace

bool all_finite(std::span<const float> logits) {
  // By exponent bits and without a branch, so that the loop is vectorised.
  uint32_t bad = 0;
  for (float value : logits) bad |= (std::bit_cast<uint32_t>(value) & 0x7F800000u) == 0x7F800000u ? 1u : 0u;
  return bad == 0;
}

double log_sum_exp(std::span<const float> logits) {
  const double best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float value : logits) sum += std::exp(value - best);
  return best + std::log(sum);
}

SamplerScratch::SamplerScratch(int64_t vocabulary) : adjusted(static_cast<size_t>(vocabulary)) {
  candidates.reserve(static_cast<size_t>(vocabulary));
  mask.reserve((static_cast<size_t>(vocabulary) + 63) / 64);
}

Sampler::Sampler(const GenerateRequest& request)
    : params_(request.sampling), vocabulary_limit_(request.vocabulary_limit), min_tokens_(request.min_tokens) {
  if (request.grammar) grammar_ = std::make_unique<GrammarMatcher>(request.grammar);
  if (!request.ignore_stop_tokens) stop_tokens_ = request.stop_tokens;
  if (params_.repetition_penalty != 1.0f) {
    prompt_tokens_ = request.tokens;
    std::sort(prompt_tokens_.begin(), prompt_tokens_.end());
    prompt_tokens_.erase(std::unique(prompt_tokens_.begin(), prompt_tokens_.end()), prompt_tokens_.end());
  }
}

bool Sampler::adjusts() const {
  return !params_.logit_bias.empty() || params_.repetition_penalty != 1.0f || params_.presence_penalty != 0.0f ||
         params_.frequency_penalty != 0.0f || (generated_ < min_tokens_ && !stop_tokens_.empty());
}

void Sampler::adjust(std::span<float> logits) const {
  const auto inside = [&](TokenId id) { return id >= 0 && static_cast<size_t>(id) < logits.size(); };
  for (const auto& [id, bias] : params_.logit_bias)
    if (inside(id)) logits[static_cast<size_t>(id)] += bias;
  const auto repeated = [&](TokenId id) {
    float& logit = logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
  };
  if (params_.repetition_penalty != 1.0f) {
    for (TokenId id : prompt_tokens_)
      if (inside(id)) repeated(id);
    for (const auto& [id, count] : generated_counts_)
      if (!std::binary_search(prompt_tokens_.begin(), prompt_tokens_.end(), id)) repeated(id);
  }
  for (const auto& [id, count] : generated_counts_)
    logits[static_cast<size_t>(id)] -= params_.frequency_penalty * static_cast<float>(count) + params_.presence_penalty;
  if (generated_ < min_tokens_)
    for (TokenId id : stop_tokens_)
      if (inside(id)) logits[static_cast<size_t>(id)] = kMasked;
}

std::span<const uint64_t> Sampler::mask_of(size_t size, std::vector<uint64_t>& mask) {
  if (!grammar_) return {};
  const std::span<const uint64_t> allowed = grammar_->allowed();
  mask.assign((size + 63) / 64, 0);
  std::copy_n(allowed.begin(), std::min(allowed.size(), mask.size()), mask.begin());
  if (size % 64 != 0) mask.back() &= (uint64_t{1} << (size % 64)) - 1;
  const bool may_end = grammar_->may_end() && generated_ >= min_tokens_;
  for (const TokenId id : stop_tokens_) {
    if (id < 0 || static_cast<size_t>(id) >= size) continue;
    const uint64_t bit = uint64_t{1} << (id % 64);
    uint64_t& word = mask[static_cast<size_t>(id) / 64];
    word = may_end ? word | bit : word & ~bit;
  }
  return mask;
}

TokenId Sampler::draw(std::span<const float> logits, std::span<const uint64_t> mask, TokenId best_id, int64_t position,
                      SamplerScratch& scratch) const {
  const double best = logits[static_cast<size_t>(best_id)];
  if (best == kMasked) return best_id;  // Every id is masked: there is nothing to draw from.
  std::vector<Candidate>& pool = scratch.candidates;
  pool.clear();
  const auto consider = [&](size_t i) {
    const double scaled = (logits[i] - best) / params_.temperature;
    if (scaled >= kNegligible) pool.push_back({logits[i], static_cast<TokenId>(i), std::exp(scaled)});
  };
  if (mask.empty()) {
    for (size_t i = 0; i < logits.size(); ++i) consider(i);
  } else {
    for (size_t word = 0; word < mask.size(); ++word)
      for (uint64_t bits = mask[word]; bits != 0; bits &= bits - 1)
        consider(word * 64 + static_cast<size_t>(std::countr_zero(bits)));
  }
  if (params_.top_k > 0 && static_cast<size_t>(params_.top_k) < pool.size()) {
    std::nth_element(pool.begin(), pool.begin() + params_.top_k, pool.end(), goes_before);
    pool.resize(static_cast<size_t>(params_.top_k));
    std::sort(pool.begin(), pool.end(), goes_before);  // The sums below are taken in an order of ours.
  }
  const double chance = uniform(params_.seed, static_cast<uint64_t>(position));
  if (params_.top_p < 1.0f) {
    const double wanted = params_.top_p * sum_of_mass(pool);
    Ordered ordered(pool);
    size_t kept = 0;
    for (double sum = 0; kept < pool.size() && (kept == 0 || sum < wanted); ++kept) sum += ordered[kept].mass;
    pool.resize(kept);
  }
  if (params_.min_p > 0.0f) std::erase_if(pool, [&](const Candidate& c) { return c.mass < params_.min_p; });
  double left = sum_of_mass(pool) * chance;
  Ordered ordered(pool);
  size_t at = 0;
  for (; at + 1 < pool.size(); ++at) {
    left -= ordered[at].mass;
    if (left < 0) break;
  }
  return ordered[at].id;
}

std::optional<Sampled> Sampler::sample(std::span<const float> logits, int64_t position, SamplerScratch& scratch) {
  if (!all_finite(logits)) return std::nullopt;
  std::span<const float> row = logits;
  if (vocabulary_limit_ > 0) row = row.first(std::min(row.size(), static_cast<size_t>(vocabulary_limit_)));
  if (adjusts()) {
    const std::span<float> adjusted(scratch.adjusted.data(), row.size());
    std::copy(row.begin(), row.end(), adjusted.begin());
    adjust(adjusted);
    row = adjusted;
  }
  Sampled out;
  const std::span<const uint64_t> mask = mask_of(row.size(), scratch.mask);
  const TokenId best = best_of(row, mask);
  if (best < 0) {
    out.end = grammar_->may_end() ? Sampled::End::whole : Sampled::End::stuck;
    return out;
  }
  out.token = params_.temperature > 0.0f ? draw(row, mask, best, position, scratch) : best;
  const bool stops = std::find(stop_tokens_.begin(), stop_tokens_.end(), out.token) != stop_tokens_.end();
  if (grammar_ && !stops && !grammar_->advance(out.token)) {  // Deeper than any reader goes.
    out.end = Sampled::End::stuck;
    return out;
  }
  if (params_.top_logprobs >= 0) {
    const double log_sum = log_sum_exp(logits);
    out.logprob = static_cast<float>(logits[static_cast<size_t>(out.token)] - log_sum);
    out.top = best_tokens(logits, static_cast<size_t>(params_.top_logprobs), log_sum);
  }
  ++generated_;
  if (params_.repetition_penalty != 1.0f || params_.presence_penalty != 0.0f || params_.frequency_penalty != 0.0f)
    ++generated_counts_[out.token];
  return out;
}

}  // namespace wp
