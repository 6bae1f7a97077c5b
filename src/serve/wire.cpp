#include "serve/wire.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <random>

#include "core/hash.h"
#include "core/rng.h"

namespace wp {

void Usage::add(const Usage& other, bool same_prompt) {
  if (!same_prompt) {
    prompt_tokens += other.prompt_tokens;
    cached_tokens += other.cached_tokens;
  }
  completion_tokens += other.completion_tokens;
  reasoning_tokens += other.reasoning_tokens;
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details",
           {{"reasoning_tokens", usage.reasoning_tokens},
            {"accepted_prediction_tokens", 0},
            {"rejected_prediction_tokens", 0}}}};
}

Json timings_json(const RequestStats& stats, int64_t predicted_tokens) {
  const auto ms = [](int64_t ns) { return std::round(static_cast<double>(ns) * 1e-3) * 1e-3; };
  const auto each = [](double whole, int64_t count) { return count > 0 ? whole / static_cast<double>(count) : 0.0; };
  const auto rate = [](int64_t count, int64_t ns) {
    return ns > 0 ? static_cast<double>(count) / (static_cast<double>(ns) * 1e-9) : 0.0;
  };
  // The first token is the prefill's; the time of decoding belongs to those after it.
  const int64_t decoded = std::max<int64_t>(predicted_tokens - 1, 0);
  return {{"cache_n", stats.cached_tokens},
          {"prompt_n", stats.computed_tokens},
          {"prompt_ms", ms(stats.prefill_ns)},
          {"prompt_per_token_ms", each(ms(stats.prefill_ns), stats.computed_tokens)},
          {"prompt_per_second", rate(stats.computed_tokens, stats.prefill_ns)},
          {"predicted_n", predicted_tokens},
          {"predicted_ms", ms(stats.decode_ns)},
          {"predicted_per_token_ms", each(ms(stats.decode_ns), decoded)},
          {"predicted_per_second", rate(decoded, stats.decode_ns)},
          {"draft_n", 0},
          {"draft_n_accepted", 0},
          {"queue_ms", ms(stats.queue_ns)},
          {"ttft_ms", ms(stats.ttft_ns)},
          {"restore_ms", ms(stats.restore_ns)},
          {"id_slot", stats.slot},
          {"cache_source", stats.restored ? name(stats.tier) : "none"},
          {"miss_reason", stats.miss == MissReason::none ? Json(nullptr) : Json(name(stats.miss))}};
}

Json progress_json(const RequestStats& stats, int64_t prompt_done, int64_t time_ns) {
  return {{"total", stats.prompt_tokens},
          {"cache", stats.cached_tokens},
          {"processed", prompt_done},
          {"time_ms", time_ns / 1'000'000}};
}

std::string token_text(const Tokenizer& tokenizer, TokenId token) {
  const std::string bytes(tokenizer.bytes(token));
  if (find_invalid_utf8(bytes) < 0) return bytes;
  return Json::parse(dump_json(Json(bytes)), nullptr, false).get<std::string>();
}

double finite_logprob(float logprob) { return std::isfinite(logprob) ? logprob : -9999.0; }

namespace {

Json one_logprob(const Tokenizer& tokenizer, TokenId token, float logprob) {
  Json bytes = Json::array();
  for (const char c : tokenizer.bytes(token)) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", token_text(tokenizer, token)}, {"logprob", finite_logprob(logprob)}, {"bytes", std::move(bytes)}};
}

}  // namespace

Json logprob_json(const Tokenizer& tokenizer, const TokenEvent& event) {
  Json made = one_logprob(tokenizer, event.token, event.logprob);
  Json top = Json::array();
  for (const TokenLogprob& one : event.top) top.push_back(one_logprob(tokenizer, one.token, one.logprob));
  made["top_logprobs"] = std::move(top);
  return made;
}

std::string make_id(std::string_view prefix) {
  static const uint64_t start = (static_cast<uint64_t>(std::random_device{}()) << 32) ^ std::random_device{}();
  static std::atomic<uint64_t> count{0};
  const uint64_t number = count++;
  return cat(prefix, hex(splitmix64(start + number)), hex(splitmix64(~start + number)).substr(0, 8));
}

}  // namespace wp
