#include "testing/fake_answer.h"

#include <algorithm>

#include "engine/sampler.h"

namespace wp::testing {

FakeAnswer fake_answer(const FakeModel& model, const GenerateRequest& request) {
  FakeAnswer answer;
  const int64_t vocabulary = model.info().vocabulary;
  std::vector<float> row(static_cast<size_t>(vocabulary));
  SamplerScratch scratch(vocabulary);
  Sampler sampler(request);
  uint64_t history = FakeModel::kNoHistory;
  for (size_t i = 0; i < request.tokens.size(); ++i) {
    history = FakeModel::history({&request.tokens[i], 1}, history);
    if (!request.prompt_logprobs || i + 1 == request.tokens.size()) continue;  // Else every row is read.
    model.write_logits(history, request.tokens[i], row);
    if (all_finite(row)) continue;
    answer.finish = FinishReason::error;
    return answer;
  }
  TokenId last = request.tokens.back();
  for (int64_t i = 0; i < request.max_tokens; ++i) {
    model.write_logits(history, last, row);
    const auto sampled = sampler.sample(row, static_cast<int64_t>(request.tokens.size()) + i, scratch);
    if (!sampled) {
      answer.finish = FinishReason::error;
      return answer;
    }
    if (sampled->end != Sampled::End::none) {
      answer.finish = sampled->end == Sampled::End::whole ? FinishReason::stop : FinishReason::stuck;
      return answer;
    }
    last = sampled->token;
    const auto& stops = request.stop_tokens;
    if (!request.ignore_stop_tokens && std::find(stops.begin(), stops.end(), last) != stops.end()) {
      answer.finish = FinishReason::stop;
      return answer;
    }
    answer.tokens.push_back(last);
    answer.logprobs.push_back(sampled->logprob);
    history = FakeModel::history({&last, 1}, history);
  }
  return answer;
}

}  // namespace wp::testing
