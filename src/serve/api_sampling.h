// The fields that chat and completions share: sampling, limits, cache, stream. Parsing only: no engine, no text. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serve/field_reader.h"
#include "serve/service.h"

namespace wp {

struct CommonFields {
  std::string model;
  std::optional<int64_t> max_tokens;
  bool max_tokens_bounded = false;  // More than the context leaves is no error, and means all of it.
  SamplingParams sampling;
  std::optional<uint64_t> seed;
  int64_t n = 1;
  std::vector<std::string> stops;
  std::vector<TokenId> stop_tokens;  // Beside those of the checkpoint.
  bool ignore_eos = false;
  int64_t min_tokens = 0;
  bool stream = false;
  bool include_usage = false;
  bool return_progress = false;
  bool timings_per_token = false;
  bool cache_prompt = true;
  uint64_t cache_domain = 0;
  std::string conversation;  // prompt_cache_key.
  std::vector<std::string> unknown;
};

// What parsing must know of the service. Plain values, so that a fuzzer can have them.
struct ParseContext {
  GenerationDefaults defaults;
  ApiLimits limits;
  int64_t context_tokens = 0;
  int64_t vocabulary = 0;
  bool strict_api = false;
};

ParseContext parse_context(const Service& service);
// Reads the shared members. max_tokens is left to the caller's dialect for 0. Refusals stay in the reader.
// The domain of `cache_salt`; 0 without one.
uint64_t read_salt(FieldReader& reader);
void read_common(FieldReader& reader, const ParseContext& context, CommonFields* fields);
// The last step: unknown members are refused by --strict-api, else kept for the log.
void finish_fields(FieldReader& reader, const ParseContext& context, CommonFields* fields);

}  // namespace wp
