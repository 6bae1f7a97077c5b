// The answer that a request must get from the fake model, computed from its tokens alone: no pages, no state, no
// batch, no cache. Test programs only.
#pragma once

#include <vector>

#include "engine/engine.h"
#include "testing/fake_model.h"

namespace wp::testing {

struct FakeAnswer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;  // Of each token.
  FinishReason finish = FinishReason::length;
};

FakeAnswer fake_answer(const FakeModel& model, const GenerateRequest& request);

}  // namespace wp::testing
