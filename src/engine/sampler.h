// Sampler: the next token of one request from its row of logits. One per sequence, used by the engine thread; all
// of them share one SamplerScratch, so that sampling allocates nothing. A result depends on the row, the request and
// the position alone: never on the batch, the step or what was sampled for others.
//
// In this order:
//   1. masked: ids at or above vocabulary_limit; stop tokens while fewer than min_tokens were generated; under a
//   grammar
//      every id that it does not allow next, and stop tokens, whatever they spell, until the answer is whole
//   2. logit_bias is added
//   3. repetition_penalty, over prompt and generated tokens: l / r where l > 0, else l * r
//   4. frequency_penalty * count + presence_penalty subtracted, over generated tokens
//   5. temperature 0: the largest, the lower id of equals. Else l / temperature, and
//   6. top_k, then top_p over what is left, then min_p relative to the best; candidates in order of probability, then
//   id
//   7. the draw: uniform(seed, position) of the mass that is left, walked in that order
// Candidates below e^-40 of the best are never drawn. Log-probabilities are log-softmax of the row as the model gave
// it, summed in double in index order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "text/grammar/grammar_matcher.h"

namespace wp {

struct SamplerScratch {
  explicit SamplerScratch(int64_t vocabulary);

  struct Candidate {
    float logit;
    TokenId id;
    double mass;  // e^(scaled logit - best).
  };
  std::vector<float> adjusted;        // [V]
  std::vector<Candidate> candidates;  // capacity V
  std::vector<uint64_t> mask;         // A bit for each of V; capacity for them.
};

struct Sampled {
  // Under a grammar there may be no token: the answer is whole and nothing may follow, not even a stop token (there is
  // none, or min_tokens masks it); or it is not whole and nothing may follow.
  enum class End : uint8_t { none, whole, stuck };
  End end = End::none;
  TokenId token = -1;             // Where end is none.
  float logprob = 0;              // When asked.
  std::vector<TokenLogprob> top;  // When asked; best first, the lower id of equals first.
};

class Sampler {
 public:
  Sampler() = default;
  // Reads of the request: sampling, stop_tokens, ignore_stop_tokens, min_tokens, vocabulary_limit, grammar and, for the
  // repetition penalty, tokens.
  explicit Sampler(const GenerateRequest& request);

  // The token for `position` (prompt length + tokens generated so far). Nothing where the row is not finite.
  std::optional<Sampled> sample(std::span<const float> logits, int64_t position, SamplerScratch& scratch);

 private:
  bool adjusts() const;
  // The mask of a row of this size; empty without a grammar.
  std::span<const uint64_t> mask_of(size_t size, std::vector<uint64_t>& mask);
  void adjust(std::span<float> logits) const;
  TokenId draw(std::span<const float> logits, std::span<const uint64_t> mask, TokenId best_id, int64_t position,
               SamplerScratch& scratch) const;

  SamplingParams params_;
  TokenId vocabulary_limit_ = 0;
  int64_t min_tokens_ = 0, generated_ = 0;
  std::vector<TokenId> stop_tokens_;    // Masked before min_tokens_.
  std::vector<TokenId> prompt_tokens_;  // Distinct ones, for the repetition penalty.
  std::unordered_map<TokenId, int32_t> generated_counts_;
  std::unique_ptr<GrammarMatcher> grammar_;
};

bool all_finite(std::span<const float> logits);
// log of the sum of e^x, in double, in index order.
double log_sum_exp(std::span<const float> logits);

}  // namespace wp
