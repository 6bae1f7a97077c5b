// The comparisons that hold the numerics properties of docs/invariants.md: the same tokens computed in two ways, bit by
// bit. Each returns the first difference in words, or nothing; so a test can ask for none, and its negative control for
// one. Test programs only.
#pragma once

#include <string>
#include <vector>

#include "core/rng.h"
#include "testing/model_run.h"

namespace wp::testing {

std::vector<TokenId> draw_tokens(Rng& rng, const ModelInfo& info, int64_t count);
bool equal_bits(const float* a, const float* b, int64_t count);
// All that two sequences leave: recurrent state (without index keys of an open block) and whole pages.
bool equal_states(ModelRun& run, const RunningSequence& a, const RunningSequence& b);

// prefill(tokens[0:n]) is the first n rows of prefill(tokens), for n around every multiple of 64 to 1,024.
std::string shorter_prompt_difference(ModelRun& run, int64_t length);
// A prompt cut anywhere, alone or beside other sequences: the same rows, states and pages.
std::string pieces_difference(ModelRun& run, Rng& rng, int64_t length);
// A prompt extended by 1, 7, 63, 64, 65 and some tokens from an anchor is the longer prompt computed at once.
std::string extended_prompt_difference(ModelRun& run);
// A decode row is itself in any batch and at any place of it. Seven sequences.
std::string decode_batch_difference(ModelRun& run, Rng& rng);
// Rows of a prefill and of a decode step, to be compared between runs of different threads.
std::vector<float> rows_of_both_phases(ModelRun& run);

}  // namespace wp::testing
