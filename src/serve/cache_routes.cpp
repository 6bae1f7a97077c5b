// GET /cache, POST /cache/flush and /cache/save: what the prefix cache holds, and orders to it. `warmpath ctl` asks
// here.
#include <chrono>
#include <iterator>
#include <thread>

#include "serve/generation_run.h"
#include "serve/request_log.h"
#include "serve/routes.h"

namespace wp {
namespace {

constexpr int64_t kSaveNsMax = 60'000'000'000;
constexpr int64_t kLookNs = 5'000'000;  // Between two looks at what is left to write.

Json disk_json(const DiskTierStats& disk) {
  return {{"records", disk.records},
          {"bytes", disk.bytes},
          {"segments", disk.segments},
          {"pending_bytes", disk.pending_bytes},
          {"written", disk.written},
          {"dropped", disk.dropped},
          {"loads", disk.loads},
          {"foreign", disk.foreign},
          {"torn", disk.torn},
          {"errors", {{"write", disk.write_errors}, {"read", disk.read_errors}, {"corrupt", disk.corrupt}}}};
}

Json cache_json(const Service& service) {
  const Engine& engine = *service.engine;
  const EngineStats stats = engine.stats();
  const CacheStats& cache = stats.cache;
  Json misses = Json::object();
  for (size_t i = 0; i < std::size(stats.misses); ++i) misses[name(static_cast<MissReason>(i))] = stats.misses[i];
  Json out = {{"enabled", engine.limits().cache},
              {"lookups", cache.lookups},
              {"tokens", {{"looked_up", cache.query_tokens}, {"not_computed", cache.hit_tokens}}},
              {"restores",
               {{"device", stats.restores[static_cast<size_t>(Tier::device)]},
                {"ram", stats.restores[static_cast<size_t>(Tier::ram)]},
                {"disk", stats.restores[static_cast<size_t>(Tier::disk)]}}},
              {"misses", std::move(misses)}};
  out["device"] = {
      {"anchors",
       {{"published", cache.anchors_published}, {"pending", cache.anchors_pending}, {"free", cache.anchors_free}}},
      {"pages", {{"cached", cache.pages_cached}, {"leased", cache.pages_leased}, {"free", cache.pages_free}}}};
  out["ram"] = nullptr;
  if (engine.limits().ram_bytes > 0)
    out["ram"] = {{"parts", stats.ram.parts}, {"bytes", stats.ram.bytes}, {"evicted", stats.ram.evicted}};
  out["disk"] = nullptr;
  if (service.disk_tier) out["disk"] = disk_json(stats.disk);
  return out;
}

}  // namespace

void cache_stats(const HttpRequest&, HttpResponse& response, ServerState& state) {
  if (const auto service = loaded_service(state, response)) response.send_json(200, cache_json(*service));
}

// The engine thread does it before its next step; a request that is submitted after the answer finds an empty device.
void cache_flush(const HttpRequest& http, HttpResponse& response, ServerState& state) {
  RequestLog log(state, http, response, "cache-flush");
  const auto service = loaded_service(state, response);
  if (!service) return;
  service->engine->flush_cache();
  response.send_json(200, {{"flushed", "device"}});
}

// What is published is written behind anyway: this waits until it is on the disk.
void cache_save(const HttpRequest& http, HttpResponse& response, ServerState& state) {
  RequestLog log(state, http, response, "cache-save");
  const auto service = loaded_service(state, response);
  if (!service) return;
  if (!service->disk_tier)
    return response.fail({.status = 501,
                          .type = "not_implemented_error",
                          .code = "no_disk_tier",
                          .message = "cache save: expected a server with --cache-disk DIR, found one without"});
  const int64_t begin_ns = state.clock.now_ns();
  DiskTierStats disk = service->engine->stats().disk;
  for (; disk.pending_bytes > 0; disk = service->engine->stats().disk) {
    if (state.clock.now_ns() - begin_ns > kSaveNsMax || state.cut)
      return response.fail(overloaded(
          cat("cache save: expected the disk to take all, found ", disk.pending_bytes, " bytes still to be written")));
    std::this_thread::sleep_for(std::chrono::nanoseconds(kLookNs));
  }
  response.send_json(200, {{"records", disk.records},
                           {"bytes", disk.bytes},
                           {"dropped", disk.dropped},
                           {"save_ms", static_cast<double>(state.clock.now_ns() - begin_ns) * 1e-6}});
}

}  // namespace wp
