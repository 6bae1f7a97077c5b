#include "serve/generation_run.h"

#include <algorithm>

#include "core/hash.h"
#include "core/log.h"

namespace wp {

GenerationRun::GenerationRun(const RunContext& context, bool streamed, size_t choices)
    : context_(context),
      streamed_(streamed),
      events_(context.response, context.state.clock, context.state.options.http.first_byte_ms_max,
              context.state.options.http.ping_ms),
      begin_ns_(context.state.clock.now_ns()),
      stats_(choices),
      stopped_(choices),
      last_token_ns_(choices) {}

bool GenerationRun::run(std::vector<GenerateRequest> requests) {
  context_.log.phase("queued");
  auto submitted = ChoiceStreams::submit(*context_.service.engine, std::move(requests));
  if (!submitted.ok()) {
    context_.response.fail(from_error(submitted.error()));
    return false;
  }
  streams_ = std::move(submitted).value();
  const Ending ending = drive(streams_, context_.response, context_.state, *this);
  if (ending == Ending::cut && !failure_) failure_ = draining();
  if (failure_) {
    context_.log.failed(failure_->status);
    context_.log.finish("error");
    failed(*failure_);
    return false;
  }
  if (ending == Ending::client_gone) {
    context_.log.client_left();
    context_.response.close();
    return false;
  }
  for (const RequestStats& one : stats_) context_.state.metrics.observe(one);
  context_.log.stats(stats_[0]);
  return true;
}

void GenerationRun::failed(const ApiError& error) {
  if (streamed_) events_.fail(error);
  else context_.response.fail(error);
}

void GenerationRun::stop_choice(size_t choice) {
  if (stopped_[choice]) return;
  stopped_[choice] = true;
  streams_.cancel(choice);
}

bool GenerationRun::on_event(size_t choice, TokenEvent& event) {
  if (failure_) return false;
  switch (event.kind) {
    case TokenEvent::Kind::started:
      stats_[choice] = event.stats;
      context_.log.phase("prefill");
      context_.log.stats(event.stats);
      return started(choice, event);
    case TokenEvent::Kind::progress: {
      stats_[choice] = event.stats;
      if (!progress(choice, event)) return false;
      return !streamed_ || keep_alive();
    }
    case TokenEvent::Kind::token: {
      context_.log.phase("decode");
      if (stopped_[choice]) return true;
      const int64_t now_ns = context_.state.clock.now_ns();
      if (last_token_ns_[choice] > 0)
        context_.state.metrics.observe_gap(static_cast<double>(now_ns - last_token_ns_[choice]) * 1e-9);
      last_token_ns_[choice] = now_ns;
      return token(choice, event);
    }
    case TokenEvent::Kind::finished: return on_finished(choice, event);
  }
  return true;
}

bool GenerationRun::on_finished(size_t choice, TokenEvent& event) {
  stats_[choice] = event.stats;
  FinishReason reason = event.finish;
  if (stopped_[choice]) reason = FinishReason::stop;
  if (reason == FinishReason::error) {
    log_warning("generation_failed", {{"reason", event.error}});
    failure_ = internal_error();
    return false;
  }
  if (reason == FinishReason::cancelled) {  // Not by us: the engine is being stopped.
    failure_ = draining();
    return false;
  }
  return finished(choice, reason);
}

bool GenerationRun::on_silence() { return !streamed_ || keep_alive(); }

GenerateRequest make_request(const RunContext& context, const HttpRequest& http, const CommonFields& fields,
                             std::vector<TokenId> tokens, uint64_t seed, int64_t index, int64_t count) {
  const Service& service = context.service;
  GenerateRequest request;
  request.id = count == 1 ? http.id : cat(http.id, ".", index);
  request.tokens = std::move(tokens);
  request.stop_tokens = service.defaults.eos_tokens;
  request.stop_tokens.insert(request.stop_tokens.end(), fields.stop_tokens.begin(), fields.stop_tokens.end());
  request.ignore_stop_tokens = fields.ignore_eos;
  request.min_tokens = fields.min_tokens;
  request.vocabulary_limit = service.tokenizer->vocabulary_count();
  request.sampling = fields.sampling;
  request.sampling.seed = seed + static_cast<uint64_t>(index);
  request.cache.enabled = fields.cache_prompt;
  request.cache.domain = cache_domain(service, http, fields.cache_domain);
  const std::string_view session = http.header("x-session-id");
  request.cache.conversation = session.empty() ? fields.conversation : std::string(session.substr(0, 1024));
  request.progress = fields.return_progress;
  return request;
}

uint64_t cache_domain(const Service& service, const HttpRequest& http, uint64_t salted) {
  return service.domain_per_key ? splitmix64(hash_text(http.key(), salted)) | 1 : salted;
}

uint64_t request_seed(const RunContext& context, const CommonFields& fields) {
  return fields.seed ? *fields.seed : splitmix64(context.service.seed ^ splitmix64(context.state.draws++));
}

std::optional<ApiError> fit_context(const Service& service, const CommonFields& fields, int64_t prompt_tokens,
                                    std::string_view param, int64_t* max_tokens) {
  const int64_t room = service.context_tokens - prompt_tokens;
  int64_t asked = fields.max_tokens.value_or(0);
  if (fields.max_tokens_bounded) asked = std::min(asked, std::max<int64_t>(room, 1));
  if (room < std::max<int64_t>(asked, fields.max_tokens ? 0 : 1))
    return context_length_exceeded(service.context_tokens, prompt_tokens, asked, param);
  *max_tokens = fields.max_tokens ? asked : room;
  return std::nullopt;
}

std::shared_ptr<const Service> require_service(ServerState& state, HttpResponse& response) {
  if (!state.draining) return loaded_service(state, response);
  response.fail(draining());
  return nullptr;
}

std::shared_ptr<const Service> loaded_service(ServerState& state, HttpResponse& response) {
  std::shared_ptr<const Service> service = state.service();
  if (service && service->engine) return service;
  const ServerState::Loading loading = state.loading();
  response.fail(loading_model(loading.phase, loading.percent));
  return nullptr;
}

bool read_json(const HttpRequest& request, HttpResponse& response, Json* body) {
  auto parsed = parse_json(request.body);
  if (!parsed.ok()) {
    response.fail(invalid_json(cat("body: ", parsed.error().message)));
    return false;
  }
  if (!parsed->is_object()) {
    response.fail(invalid_type("body", "an object", *parsed));
    return false;
  }
  *body = std::move(*parsed);
  return true;
}

bool accept_fields(const RunContext& context, const HttpRequest& request, const CommonFields& fields) {
  const Service& service = context.service;
  if (!fields.unknown.empty()) {
    std::string names;
    for (const std::string& name : fields.unknown) {
      if (names.size() > 256) break;
      names += cat(names.empty() ? "" : ",", name.substr(0, 64));
    }
    log_warning("unknown_fields", {{"id", request.id}, {"fields", names}});
  }
  if (service.strict_model && !fields.model.empty() && fields.model != service.model_name) {
    context.response.fail(not_found(cat("model: expected ", service.model_name, ", found ", fields.model.substr(0, 64)),
                                    "model_not_found"));
    return false;
  }
  return true;
}

bool is_silent(const Service& service, const CommonFields& fields, TokenId token) {
  if (!fields.ignore_eos) {
    const auto& eos = service.defaults.eos_tokens;
    if (std::find(eos.begin(), eos.end(), token) != eos.end()) return true;
    if (std::find(fields.stop_tokens.begin(), fields.stop_tokens.end(), token) != fields.stop_tokens.end()) return true;
  }
  if (!service.tokenizer->is_special(token)) return false;
  const std::string_view text = service.tokenizer->bytes(token);
  for (const char* markup :
       {"<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"})
    if (text == markup) return false;
  return true;
}

}  // namespace wp
