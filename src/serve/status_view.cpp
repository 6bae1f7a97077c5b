// GET /status and GET /cache/tree: what the page and `warmpath ctl` show of a running server. Numbers alone: no prompt,
// no name of a conversation, and of the cache the asking key's own domain only.
#include "engine/cache_view.h"
#include "engine/memory_plan.h"
#include "serve/generation_run.h"
#include "serve/memory_pools.h"
#include "serve/routes.h"

namespace wp {
namespace {

constexpr int64_t kViewNsMax = 2'000'000'000;  // For a pass that is under way.

Json recent_json(const std::vector<RecentRequest>& recent) {
  Json list = Json::array();
  for (const RecentRequest& one : recent)
    list.push_back({{"number", one.number},
                    {"prompt_tokens", one.prompt_tokens},
                    {"cached_tokens", one.cached_tokens},
                    {"ttft_ms", static_cast<double>(one.ttft_ns) * 1e-6},
                    {"queue_ms", static_cast<double>(one.queue_ns) * 1e-6},
                    {"cache_source", one.cached_tokens > 0 ? name(one.tier) : "none"},
                    {"miss_reason", one.miss == MissReason::none ? Json(nullptr) : Json(name(one.miss))}});
  return list;
}

Json memory_json(const Engine& engine, const EngineStats& stats) {
  Json pools = Json::array();
  for (const PoolUse& pool : memory_pools(engine, stats))
    pools.push_back({{"pool", pool.name}, {"bytes", pool.bytes}, {"used_bytes", pool.used_bytes}});
  return {{"pools", std::move(pools)},
          {"host_available_bytes", available_memory_bytes()},
          {"disk_cache_bytes", stats.disk.bytes}};
}

void add_engine(const Service& service, Json& body) {
  const Engine& engine = *service.engine;
  const EngineStats stats = engine.stats();
  body["requests"] = {{"running", stats.running},       {"waiting", stats.waiting},
                      {"prefilling", stats.prefilling}, {"decoding", stats.decoding},
                      {"slots", stats.slots_total},     {"queue_max", engine.limits().queue_max}};
  body["tokens"] = {{"prompt", stats.prompt_tokens},
                    {"computed", stats.computed_tokens},
                    {"reused", stats.cache.hit_tokens},
                    {"generated", stats.generated_tokens}};
  body["memory"] = memory_json(engine, stats);
}

Json run_json(const TreeRun& run, int64_t saved_ns) {
  Json out = {
      {"parent", run.parent}, {"begin", run.begin}, {"end", run.end}, {"readers", run.readers}, {"anchor", nullptr}};
  if (!run.anchor) return out;
  const AnchorView& anchor = *run.anchor;
  out["anchor"] = {{"class", std::string(1, letter(anchor.capture_class))},
                   {"superseded", anchor.superseded},
                   {"probation", anchor.probation},
                   {"held", anchor.held},
                   {"idle_s", static_cast<double>(anchor.idle_ns) * 1e-9},
                   {"expected_uses", anchor.expected_uses},
                   {"saves_tokens", run.end - anchor.above},
                   {"saves_ms", static_cast<double>(saved_ns) * 1e-6},
                   {"tokens_per_mib", anchor.tokens_per_mib}};
  return out;
}

}  // namespace

void status(const HttpRequest&, HttpResponse& response, ServerState& state) {
  const auto service = state.service();
  const bool loaded = service && service->engine;
  const ServerState::Loading loading = state.loading();
  Json body = {{"state", !loaded          ? "loading"
                         : state.draining ? "draining"
                                          : "serving"},
               {"phase", loaded ? "" : loading.phase},
               {"percent", loaded ? 100 : loading.percent},
               {"uptime_s", unix_time_s() - state.created_s}};
  if (loaded) {
    body["model"] = service->model_name;
    body["build"] = service->build;
    body["context_tokens"] = service->context_tokens;
    add_engine(*service, body);
    body["recent"] = recent_json(state.metrics.recent());
  }
  response.send_json(200, body);
}

void cache_tree(const HttpRequest& http, HttpResponse& response, ServerState& state) {
  const auto service = loaded_service(state, response);
  if (!service) return;
  const auto view = service->engine->view_cache(cache_domain(*service, http, 0))->wait_within(kViewNsMax);
  Json body = {{"busy", view == nullptr}, {"whole", view && view->tree.whole}, {"runs", Json::array()}};
  if (view)
    for (size_t i = 0; i < view->tree.runs.size(); ++i)
      body["runs"].push_back(run_json(view->tree.runs[i], view->saved_ns[i]));
  response.send_json(200, body);
}

}  // namespace wp
