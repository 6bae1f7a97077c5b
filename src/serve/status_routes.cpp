// GET /v1/models, /health, /livez, /readyz, /metrics: small answers made at once, on the I/O thread.
#include <fmt/chrono.h>

#include "serve/routes.h"

namespace wp {
namespace {

Json model_json(const ServerState& state, const Service* service) {
  Json model = {{"id", service ? service->model_name : "loading"},
                {"object", "model"},
                {"created", state.created_s},
                {"owned_by", "warmpath"}};
  if (!service) {
    model["status"] = "loading";
    return model;
  }
  model["max_model_len"] = service->context_tokens;
  Json meta = {{"n_ctx", service->context_tokens},
               {"n_ctx_train", service->context_trained},
               {"n_vocab", service->tokenizer->vocabulary_count()},
               {"n_embd", service->embedding_width}};
  if (service->engine) {
    const ModelInfo& info = service->engine->model_info();
    meta["n_params"] = info.parameters;
    meta["size"] = info.weight_bytes;
  }
  model["meta"] = std::move(meta);
  model["architecture"] = {{"input_modalities", {"text"}}, {"output_modalities", {"text"}}};
  // What Anthropic's clients read.
  model["type"] = "model";
  model["display_name"] = service->model_name;
  model["created_at"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(state.created_s)));
  model["lifecycle"] = "active";
  model["max_input_tokens"] = model["max_tokens"] = service->context_tokens;
  return model;
}

}  // namespace

void models(const HttpRequest&, HttpResponse& response, ServerState& state) {
  const auto service = state.service();
  const Json model = model_json(state, service.get());
  Json body = {{"object", "list"},        {"data", Json::array({model})}, {"models", Json::array()},
               {"first_id", model["id"]}, {"last_id", model["id"]},       {"has_more", false}};
  if (service)
    body["models"].push_back({{"slug", service->model_name},
                              {"display_name", service->model_name},
                              {"context_window", service->context_tokens}});
  response.send_json(200, body);
}

void model_by_id(const HttpRequest& request, HttpResponse& response, ServerState& state) {
  const auto service = state.service();
  const std::string id = request.path.substr(std::string_view("/v1/models/").size());
  if (!service || id != service->model_name)
    return response.fail(not_found(
        cat("model: expected ", service ? service->model_name : "none while loading", ", found ", id.substr(0, 64)),
        "model_not_found"));
  response.send_json(200, model_json(state, service.get()));
}

void livez(const HttpRequest&, HttpResponse& response, ServerState&) { response.send_json(200, {{"status", "ok"}}); }

void readyz(const HttpRequest&, HttpResponse& response, ServerState& state) {
  const auto service = state.service();
  if (state.draining) return response.fail(draining());
  if (!service || !service->engine) {
    const ServerState::Loading loading = state.loading();
    return response.fail(loading_model(loading.phase, loading.percent));
  }
  response.send_json(200, {{"status", "ok"}});
}

// Asked without a key where there is one, it says no more than whether requests are taken.
void health(const HttpRequest& request, HttpResponse& response, ServerState& state) {
  const auto service = state.service();
  const bool known = has_key(request, state);
  if (!service || !service->engine) {
    const ServerState::Loading loading = known ? state.loading() : ServerState::Loading{};
    ApiError error = loading_model(known ? loading.phase : "model", loading.percent);
    Json body = error.body();
    body["status"] = "loading";
    if (known) {
      body["phase"] = loading.phase;
      body["percent"] = loading.percent;
    }
    response.add_header("retry-after", cat(error.retry_after_s));
    return response.send_json(503, body);
  }
  Json body = {{"status", state.draining ? "draining" : "ok"}};
  if (known) {
    const EngineStats stats = service->engine->stats();
    body["phase"] = state.draining ? "draining" : "serving";
    body["percent"] = 100;
    body["running"] = stats.running;
    body["waiting"] = stats.waiting;
    body["connections"] = state.connections.load();
  }
  response.send_json(200, body);
}

void metrics(const HttpRequest&, HttpResponse& response, ServerState& state) {
  const auto service = state.service();
  response.send(200, "text/plain; version=0.0.4; charset=utf-8", state.metrics.print(service.get()));
}

}  // namespace wp
