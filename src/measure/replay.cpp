// The order of turns, the local target and the synthetic prompts. The HTTP target is in replay_http.cpp.
#include "measure/replay.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "core/hash.h"
#include "core/rng.h"

namespace wp::measure {
namespace {

constexpr int64_t kTokensBeyondExpected = 16;  // A turn that goes wrong is cut soon after the right one would end.
constexpr int64_t kTokensUnknown = 512;
constexpr int32_t kTopLogprobs = 4;
constexpr std::chrono::milliseconds kPacePoll{1};
constexpr Seed kSyntheticSeed = 20240917;

int64_t common_prefix(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  const size_t shorter = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + static_cast<int64_t>(shorter), b.begin()).first - a.begin();
}

bool calls(const Json& message) {
  return message.is_object() && message.contains("tool_calls") && message["tool_calls"].is_array() &&
         !message["tool_calls"].empty();
}

class LocalTarget : public ReplayTarget {
 public:
  explicit LocalTarget(const LocalTargetParts& parts) : parts_(parts) {}
  TurnResult answer(const TurnPrompt& prompt, TurnTokens* tokens) override;
  void settle() override;

 private:
  void consolidate(const TurnPrompt& prompt, const CacheHints& hints) const;
  std::vector<TokenId> answered(const TurnPrompt& prompt, const std::vector<TokenId>& prompt_tokens) const;
  Result<GenerateRequest> make_request(const TurnPrompt& prompt) const;
  FinishReason read(TokenStream& stream, int64_t begin_ns, TurnResult& result, std::vector<TokenId>& generated) const;
  bool is_exact(const std::string& expected, const std::vector<TokenId>& generated, FinishReason finish) const;

  LocalTargetParts parts_;
  std::atomic<int64_t> requests_{0};
};

Result<GenerateRequest> LocalTarget::make_request(const TurnPrompt& prompt) const {
  GenerateRequest request;
  request.tokens = prompt.tokens;
  request.max_tokens = prompt.tokens_max;
  request.cache.conversation = prompt.label;
  request.vocabulary_limit = parts_.tokenizer->vocabulary_count();
  request.sampling.top_logprobs = kTopLogprobs;
  if (!prompt.conversation) {
    request.ignore_stop_tokens = true;
    request.cache.continues = prompt.turn > 0;
    const int64_t tail = (static_cast<int64_t>(prompt.tokens.size()) - 1) / kPageTokens * kPageTokens;
    if (tail > 0) request.cache.captures.push_back({tail, CaptureClass::tail});
    return request;
  }
  if (!parts_.prompter)
    return Error{ErrorCode::bad_request, "replay: expected a model with a chat template, found none"};
  WP_TRY(ChatPrompt built, parts_.prompter->build(prompt.conversation->template_variables(*prompt.expected)));
  request.tokens = std::move(built.tokens);
  request.stop_tokens = parts_.stop_tokens;
  request.cache.continues = built.continues;
  const CapturePositions& at = built.captures;
  if (at.system_end > 0) request.cache.captures.push_back({at.system_end, CaptureClass::system});
  if (at.stable_end > 0) request.cache.captures.push_back({at.stable_end, CaptureClass::tail});
  if (at.user_start > 0) request.cache.captures.push_back({at.user_start, CaptureClass::user});
  if (request.max_tokens == 0 && !prompt.expected->text.empty())
    request.max_tokens = kTokensBeyondExpected +
                         static_cast<int64_t>(parts_.tokenizer->encode_with_special(prompt.expected->text).size());
  if (request.max_tokens == 0) request.max_tokens = kTokensUnknown;
  return request;
}

// A stop token ends the answer and is no part of it, so the hash takes the finish reason too.
FinishReason LocalTarget::read(TokenStream& stream, int64_t begin_ns, TurnResult& result,
                               std::vector<TokenId>& generated) const {
  std::vector<std::byte> bits;
  const auto keep = [&bits](TokenId token, float logprob) {
    const size_t at = bits.size();
    bits.resize(at + 8);
    std::memcpy(bits.data() + at, &token, 4);
    std::memcpy(bits.data() + at + 4, &logprob, 4);
  };
  FinishReason finish = FinishReason::error;
  result.fault = "the stream ended without a last event";
  while (const auto event = stream.next()) {
    if (event->kind != TokenEvent::Kind::token && event->kind != TokenEvent::Kind::finished) continue;
    if (result.ttft_s == 0) result.ttft_s = static_cast<double>(parts_.clock->now_ns() - begin_ns) * 1e-9;
    if (event->kind == TokenEvent::Kind::token) {
      generated.push_back(event->token);
      keep(event->token, event->logprob);
      for (const TokenLogprob& other : event->top) keep(other.token, other.logprob);
      continue;
    }
    const RequestStats& stats = event->stats;
    finish = event->finish;
    result.prompt_tokens = stats.prompt_tokens;
    result.cached_tokens = stats.cached_tokens;
    result.generated_tokens = stats.generated_tokens;
    result.restored = stats.restored;
    result.miss = name(stats.miss);
    result.miss_detail = stats.miss_detail;
    result.match_tokens = stats.match_tokens;
    if (stats.restored) result.anchor_class = letter(stats.anchor_class);
    if (stats.restored) result.tier = name(stats.tier);
    result.diverged_at = stats.diverged_at;
    result.had = parts_.tokenizer->decode(stats.had);
    result.nearest = stats.nearest;
    result.decode_s = static_cast<double>(stats.decode_ns) * 1e-9;
    result.fault = finish == FinishReason::error ? event->error : finish == FinishReason::cancelled ? "cancelled" : "";
    break;
  }
  result.text_hash = hash_bytes(generated.data(), generated.size() * sizeof(TokenId), static_cast<uint64_t>(finish));
  result.logprob_hash = hash_bytes(bits.data(), bits.size());
  return finish;
}

// What the model should have said, less the end mark where it is a stop token.
bool LocalTarget::is_exact(const std::string& expected, const std::vector<TokenId>& generated,
                           FinishReason finish) const {
  std::string said = parts_.tokenizer->decode(generated);
  if (finish != FinishReason::stop) return said == expected;
  return std::any_of(parts_.stop_tokens.begin(), parts_.stop_tokens.end(),
                     [&](TokenId stop) { return cat(said, parts_.tokenizer->bytes(stop)) == expected; });
}

TurnResult LocalTarget::answer(const TurnPrompt& prompt, TurnTokens* tokens) {
  TurnResult result{.conversation = prompt.label, .turn = prompt.turn, .warm = prompt.turn > 0};
  const int64_t begin_ns = parts_.clock->now_ns();
  auto request = make_request(prompt);
  if (!request.ok()) {
    result.fault = request.error().message;
    return result;
  }
  request->id = cat("replay-", ++requests_);
  tokens->prompt = request->tokens;
  const CacheHints hints = request->cache;
  auto stream = parts_.engine->submit(std::move(*request));
  if (!stream.ok()) {
    result.fault = stream.error().message;
    return result;
  }
  std::vector<TokenId> generated;
  const FinishReason finish = read(*stream, begin_ns, result, generated);
  if (result.diverged_at >= 0) result.got = parts_.tokenizer->decode(tokens_around(tokens->prompt, result.diverged_at));
  if (result.fault.empty()) {
    consolidate(prompt, hints);
    tokens->answered = answered(prompt, tokens->prompt);
  }
  if (prompt.expected && !prompt.expected->text.empty()) {
    result.has_expected = true;
    result.exact = is_exact(prompt.expected->text, generated, finish);
  }
  return result;
}

// What the next prompt will begin with: the recording's answer, whatever the model said, is what goes into the history.
void LocalTarget::consolidate(const TurnPrompt& prompt, const CacheHints& hints) const {
  const EngineLimits& limits = parts_.engine->limits();
  if (!prompt.conversation || !limits.cache || !limits.consolidate) return;
  ExpectedTurn behind = *prompt.expected;
  ++behind.message_index;
  auto prefix = parts_.prompter->stable_prefix(prompt.conversation->template_variables(behind));
  if (!prefix.ok()) return;
  // As the server does: a tool's result will continue this conversation soon.
  if (calls(prompt.conversation->messages[static_cast<size_t>(prompt.expected->message_index)]))
    parts_.engine->hold_conversation(hints.conversation);
  parts_.engine->consolidate(
      {.tokens = std::move(*prefix), .domain = hints.domain, .conversation = hints.conversation});
}

std::vector<TokenId> LocalTarget::answered(const TurnPrompt& prompt, const std::vector<TokenId>& prompt_tokens) const {
  if (!prompt.conversation) return prompt_tokens;
  ExpectedTurn behind = *prompt.expected;
  ++behind.message_index;
  Json variables = prompt.conversation->template_variables(behind);
  variables["add_generation_prompt"] = false;
  auto built = parts_.prompter->build(variables, false);
  return built.ok() ? std::move(built->tokens) : std::vector<TokenId>();
}

void LocalTarget::settle() {
  const int64_t end_ns = parts_.clock->now_ns() + kPaceMaxNs;
  while (parts_.engine->stats().consolidation.waiting > 0 && parts_.clock->now_ns() < end_ns)
    std::this_thread::sleep_for(kPacePoll);
}

}  // namespace

std::unique_ptr<ReplayTarget> make_local_target(const LocalTargetParts& parts) {
  return std::make_unique<LocalTarget>(parts);
}

Result<SyntheticShape> parse_synthetic(const std::string& text) {
  SyntheticShape shape;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view item = std::string_view(text).substr(at, comma - at);
    at = comma + 1;
    const size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    int64_t* target = key == "turns"       ? &shape.turns
                      : key == "start"     ? &shape.start
                      : key == "new"       ? &shape.added
                      : key == "generated" ? &shape.generated
                                           : nullptr;
    const std::string_view digits = equals == std::string_view::npos ? "" : item.substr(equals + 1);
    int64_t value = 0;
    const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (!target || fault != std::errc() || end != digits.data() + digits.size() || value < 1 || value > (1 << 24))
      return Error{ErrorCode::bad_request,
                   cat("--synthetic: expected turns=N,start=N,new=N,generated=N, found '", item, "'")};
    *target = value;
  }
  return shape;
}

std::vector<TurnPrompt> synthetic_prompts(const SyntheticShape& shape, const Tokenizer& tokenizer, int64_t vocabulary) {
  std::vector<TokenId> ordinary;
  const int64_t ids = std::min<int64_t>(tokenizer.vocabulary_count(), vocabulary);
  for (TokenId id = 0; id < ids; ++id)
    if (!tokenizer.is_added(id) && !tokenizer.bytes(id).empty()) ordinary.push_back(id);
  WP_ASSERT(!ordinary.empty());
  Rng rng(kSyntheticSeed);
  std::vector<TurnPrompt> prompts;
  std::vector<TokenId> tokens;
  for (int64_t turn = 0; turn < shape.turns; ++turn) {
    const int64_t added = turn == 0 ? shape.start : shape.added;
    for (int64_t i = 0; i < added; ++i)
      tokens.push_back(ordinary[rng.between(0, static_cast<int64_t>(ordinary.size()) - 1)]);
    prompts.push_back({.tokens = tokens, .label = "synthetic", .turn = turn, .tokens_max = shape.generated});
  }
  return prompts;
}

void relate_to_previous(const TurnTokens& before, const TurnTokens& tokens, TurnResult& result) {
  if (result.turn == 0 || tokens.prompt.empty()) return;
  result.shared_tokens = common_prefix(before.prompt, tokens.prompt);
  if (!before.answered.empty())
    result.added_tokens = static_cast<int64_t>(tokens.prompt.size()) - common_prefix(before.answered, tokens.prompt);
}

std::vector<TurnResult> run_prompts(ReplayTarget& target, const std::vector<TurnPrompt>& prompts,
                                    const ReplayOptions& options) {
  std::vector<TurnResult> results;
  TurnTokens before, tokens;
  for (const TurnPrompt& prompt : prompts) {
    if (options.pace && prompt.turn > 0) target.settle();
    results.push_back(target.answer(prompt, &tokens));
    relate_to_previous(before, tokens, results.back());
    before = std::exchange(tokens, {});
    if (options.progress)
      options.progress(results.back(), static_cast<int64_t>(results.size()), static_cast<int64_t>(prompts.size()));
  }
  return results;
}

std::vector<TurnResult> run_replay(ReplayTarget& target, const std::vector<Conversation>& conversations,
                                   const ReplayOptions& options) {
  std::vector<std::vector<TurnResult>> results(conversations.size());
  int64_t turns_total = 0;
  for (const Conversation& conversation : conversations) turns_total += static_cast<int64_t>(conversation.turns.size());

  std::atomic<size_t> next{0};
  std::mutex mutex;
  int64_t turns_done = 0;
  const ReplayOptions counting{.pace = options.pace, .progress = [&](const TurnResult& done, int64_t, int64_t) {
                                 const std::lock_guard lock(mutex);
                                 ++turns_done;
                                 if (options.progress) options.progress(done, turns_done, turns_total);
                               }};
  const auto work = [&] {
    for (size_t i = next++; i < conversations.size(); i = next++) {
      std::vector<TurnPrompt> prompts;
      int64_t turn = 0;
      for (const ExpectedTurn& expected : conversations[i].turns)
        prompts.push_back(
            {.conversation = &conversations[i], .expected = &expected, .label = conversations[i].id, .turn = turn++});
      results[i] = run_prompts(target, prompts, counting);
    }
  };
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < options.parallel; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();

  std::vector<TurnResult> all;
  for (auto& turns : results) all.insert(all.end(), turns.begin(), turns.end());
  return all;
}

}  // namespace wp::measure
