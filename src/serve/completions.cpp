// POST /v1/completions.
#include <algorithm>
#include <memory>

#include "serve/api_completions.h"
#include "serve/generation_run.h"
#include "serve/routes.h"
#include "text/detokenizer.h"

namespace wp {
namespace {

// One choice: its text so far, and its log-probabilities in the lists of this dialect.
struct TextChoice {
  TextChoice(const Tokenizer& tokenizer, const std::vector<std::string>& stops) : detokenizer(tokenizer, stops) {}

  Detokenizer detokenizer;
  std::vector<TokenId> prompt;
  std::string text;
  size_t text_sent = 0, entries_sent = 0;
  int64_t text_characters = 0;  // Of `text` and what its tokens still hold back: offsets count characters.
  int64_t tokens = 0;
  bool ended = false;
  const char* finish_reason = "stop";
  Json log_tokens = Json::array(), log_values = Json::array(), log_tops = Json::array(), log_offsets = Json::array();

  void add_logprob(const Tokenizer& tokenizer, TokenId token, const Json& value, Json top) {
    const std::string piece = token_text(tokenizer, token);
    log_offsets.push_back(text_characters);
    for (const char c : piece) text_characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    log_tokens.push_back(piece);
    log_values.push_back(value);
    log_tops.push_back(std::move(top));
  }

  Json logprobs(size_t from) const {
    const auto tail = [&](const Json& list) {
      Json out = Json::array();
      for (size_t i = from; i < list.size(); ++i) out.push_back(list[i]);
      return out;
    };
    return {{"tokens", tail(log_tokens)},
            {"token_logprobs", tail(log_values)},
            {"top_logprobs", tail(log_tops)},
            {"text_offset", tail(log_offsets)}};
  }
};

class CompletionRun final : public GenerationRun {
 public:
  CompletionRun(const RunContext& run_context, const CompletionRequest& request, size_t choices)
      : GenerationRun(run_context, request.common.stream, choices),
        request_(request),
        id_(make_id("cmpl-")),
        created_(unix_time_s()) {
    choices_.reserve(choices);
  }

  void add_choice(std::vector<TokenId> prompt) {
    choices_.emplace_back(*context().service.tokenizer, request_.common.stops);
    choices_.back().prompt = std::move(prompt);
  }

  void answer() {
    Usage total;
    int64_t generated = 0;
    for (size_t i = 0; i < choices_.size(); ++i) {
      total.add(usage(i), i % static_cast<size_t>(request_.common.n) != 0);
      generated += choices_[i].tokens;
      context().state.metrics.count_finish(choices_[i].finish_reason);
    }
    context().log.generated(generated);
    context().log.finish(choices_[0].finish_reason);
    if (is_streamed()) return finish_stream(total);
    Json body = envelope();
    for (size_t i = 0; i < choices_.size(); ++i)
      body["choices"].push_back({{"text", choices_[i].text},
                                 {"index", i},
                                 {"logprobs", request_.logprobs >= 0 ? choices_[i].logprobs(0) : Json(nullptr)},
                                 {"finish_reason", choices_[i].finish_reason}});
    body["usage"] = usage_json(total);
    body["timings"] = timings_json(stats(0), choices_[0].tokens);
    context().response.send_json(200, body);
  }

 private:
  Usage usage(size_t choice) const {
    return {.prompt_tokens = stats(choice).prompt_tokens,
            .cached_tokens = stats(choice).cached_tokens,
            .completion_tokens = choices_[choice].tokens};
  }

  Json envelope() const {
    return {{"id", id_},
            {"object", "text_completion"},
            {"created", created_},
            {"model", context().service.model_name},
            {"system_fingerprint", context().service.build},
            {"choices", Json::array()}};
  }

  bool send(size_t index, Json finish_reason) {
    TextChoice& choice = choices_[index];
    const bool fresh = choice.text.size() > choice.text_sent || choice.log_tokens.size() > choice.entries_sent;
    if (!fresh && finish_reason.is_null()) return events().ping_when_due();
    Json made = envelope();
    made["choices"].push_back(
        {{"text", choice.text.substr(choice.text_sent)},
         {"index", index},
         {"logprobs", request_.logprobs >= 0 ? choice.logprobs(choice.entries_sent) : Json(nullptr)},
         {"finish_reason", std::move(finish_reason)}});
    if (request_.common.include_usage) made["usage"] = nullptr;
    if (request_.common.timings_per_token) made["timings"] = timings_json(stats(index), choice.tokens);
    choice.text_sent = choice.text.size();
    choice.entries_sent = choice.log_tokens.size();
    return events().send(made);
  }

  bool started(size_t index, TokenEvent& event) override {
    if (!request_.echo) return !is_streamed() || events().ping_when_due();
    TextChoice& choice = choices_[index];
    const Tokenizer& tokenizer = *context().service.tokenizer;
    // Through a detokenizer of its own: what a prompt's last token leaves open is no part of the completion.
    Detokenizer echo(tokenizer, {}, false);
    for (const TokenId token : choice.prompt) choice.text += echo.push(token);
    choice.text += echo.finish();
    if (request_.logprobs >= 0) {
      for (size_t i = 0; i < choice.prompt.size(); ++i) {
        const bool known = i > 0 && i - 1 < event.prompt_logprobs.size();
        const Json value = known ? Json(finite_logprob(event.prompt_logprobs[i - 1])) : Json(nullptr);
        Json top = nullptr;
        if (known) top = {{token_text(tokenizer, choice.prompt[i]), value}};
        choice.add_logprob(tokenizer, choice.prompt[i], value, std::move(top));
      }
    }
    return !is_streamed() || send(index, nullptr);
  }

  bool progress(size_t, const TokenEvent& event) override {
    if (!is_streamed() || !request_.common.return_progress) return true;
    Json made = envelope();
    made["choices"].push_back({{"text", ""}, {"index", 0}, {"logprobs", nullptr}, {"finish_reason", nullptr}});
    made["prompt_progress"] = progress_json(event.stats, event.prompt_done, elapsed_ns());
    return events().send(made);
  }

  bool token(size_t index, TokenEvent& event) override {
    TextChoice& choice = choices_[index];
    if (choice.ended) return true;
    ++choice.tokens;
    if (is_silent(context().service, request_.common, event.token)) return true;
    const Tokenizer& tokenizer = *context().service.tokenizer;
    if (request_.logprobs >= 0) {
      Json top = Json::object();
      for (const TokenLogprob& one : event.top) top[token_text(tokenizer, one.token)] = finite_logprob(one.logprob);
      choice.add_logprob(tokenizer, event.token, finite_logprob(event.logprob), std::move(top));
    }
    choice.text += choice.detokenizer.push(event.token);
    if (choice.detokenizer.stopped()) {
      choice.ended = true;
      stop_choice(index);
    }
    return !is_streamed() || send(index, nullptr);
  }

  bool finished(size_t index, FinishReason reason) override {
    TextChoice& choice = choices_[index];
    if (!choice.ended) {
      choice.text += choice.detokenizer.finish();
      choice.tokens = std::max(choice.tokens, stats(index).generated_tokens);  // The one that ended it is no event.
    }
    if (was_cut(reason)) choice.finish_reason = "length";
    choice.ended = true;
    return !is_streamed() || send(index, choice.finish_reason);
  }

  void finish_stream(const Usage& total) {
    if (request_.common.include_usage) {
      Json last = envelope();
      last["usage"] = usage_json(total);
      last["timings"] = timings_json(stats(0), choices_[0].tokens);
      if (!events().send(last)) return context().log.client_left();
    }
    if (!events().done()) context().log.client_left();
  }

  const CompletionRequest& request_;
  std::string id_;
  int64_t created_;
  std::vector<TextChoice> choices_;
};

std::optional<ApiError> encode_prompt(const Service& service, const CompletionRequest& request,
                                      const PromptInput& prompt, std::vector<TokenId>* out) {
  const Tokenizer& tokenizer = *service.tokenizer;
  if (const auto* tokens = std::get_if<std::vector<TokenId>>(&prompt)) {
    *out = *tokens;
  } else {
    const std::string& text = std::get<std::string>(prompt);
    *out = request.parse_special ? tokenizer.encode_with_special(text) : tokenizer.encode_plain(text);
  }
  if (out->empty()) return invalid_value("prompt", "prompt: expected at least one token, found none");
  if (!request.suffix || request.suffix->empty()) return std::nullopt;
  const auto prefix_token = tokenizer.find("<|fim_prefix|>"), middle_token = tokenizer.find("<|fim_middle|>"),
             suffix_token = tokenizer.find("<|fim_suffix|>");
  if (!prefix_token || !middle_token || !suffix_token)
    return unsupported_value("suffix", "suffix: expected a model with fill-in-the-middle tokens, found none");
  std::vector<TokenId> whole = {*prefix_token};
  whole.insert(whole.end(), out->begin(), out->end());
  whole.push_back(*suffix_token);
  for (const TokenId token : tokenizer.encode_plain(*request.suffix)) whole.push_back(token);
  whole.push_back(*middle_token);
  *out = std::move(whole);
  return std::nullopt;
}

}  // namespace

void completions(const HttpRequest& http, HttpResponse& response, ServerState& state) {
  RequestLog log(state, http, response, "completions");
  const std::shared_ptr<const Service> service = require_service(state, response);
  if (!service) return;
  const RunContext context{*service, state, response, log};
  Json body;
  if (!read_json(http, response, &body)) return;
  CompletionRequest request;
  if (auto error = parse_completion(body, parse_context(*service), &request)) return response.fail(*error);
  if (!accept_fields(context, http, request.common)) return;

  const uint64_t seed = request_seed(context, request.common);
  const int64_t n = request.common.n, count = n * static_cast<int64_t>(request.prompts.size());
  CompletionRun run(context, request, static_cast<size_t>(count));
  std::vector<GenerateRequest> requests;
  int64_t prompt_tokens = 0;
  for (const PromptInput& prompt : request.prompts) {
    std::vector<TokenId> tokens;
    if (auto error = encode_prompt(*service, request, prompt, &tokens)) return response.fail(*error);
    int64_t max_tokens = 0;
    const int64_t size = static_cast<int64_t>(tokens.size());
    if (auto error = fit_context(*service, request.common, size, "prompt", &max_tokens)) return response.fail(*error);
    prompt_tokens += size;
    for (int64_t i = 0; i < n; ++i) {
      run.add_choice(tokens);
      GenerateRequest made =
          make_request(context, http, request.common, tokens, seed, static_cast<int64_t>(requests.size()), count);
      made.max_tokens = max_tokens;
      made.prompt_logprobs = request.echo && (request.logprobs >= 0 || max_tokens == 0);
      requests.push_back(std::move(made));
    }
  }
  log.start(prompt_tokens, request.common.stream);
  if (run.run(std::move(requests))) run.answer();
}

}  // namespace wp
