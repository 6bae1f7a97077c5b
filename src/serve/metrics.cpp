#include "serve/metrics.h"

#include <algorithm>

#include "core/cat.h"
#include "engine/memory_plan.h"
#include "serve/memory_pools.h"

namespace wp {
namespace {

void family(std::string& out, std::string_view name, std::string_view type, std::string_view help) {
  out += cat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
}

void single(std::string& out, std::string_view name, std::string_view type, std::string_view help, double value) {
  family(out, name, type, help);
  out += cat(name, " ", value, "\n");
}

std::string label_value(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') out += "\\n";
    else out += c;
  }
  return out;
}

void print_engine(std::string& out, const EngineStats& s) {
  single(out, "warmpath_num_requests_running", "gauge", "Requests that hold a slot.", s.running);
  single(out, "warmpath_num_requests_waiting", "gauge", "Requests in the queue.", s.waiting);
  single(out, "warmpath_num_requests_prefilling", "gauge", "Running requests that read their prompt.", s.prefilling);
  single(out, "warmpath_num_requests_decoding", "gauge", "Running requests that generate.", s.decoding);
  const double used = s.pages_total > 0 ? 1.0 - static_cast<double>(s.cache.pages_free) / s.pages_total : 0.0;
  single(out, "warmpath_kv_cache_usage_perc", "gauge", "Share of KV pages in use, 0 to 1.", used);
  single(out, "warmpath_slots", "gauge", "Sequences that can run at once.", s.slots_total);
  single(out, "warmpath_prompt_tokens_total", "counter", "Prompt tokens, cached ones included.", s.prompt_tokens);
  single(out, "warmpath_prompt_tokens_computed_total", "counter", "Prompt tokens computed.", s.computed_tokens);
  single(out, "warmpath_generation_tokens_total", "counter", "Tokens generated.", s.generated_tokens);
  single(out, "warmpath_prompt_seconds_total", "counter", "Time in prefill passes.", s.prefill_ns * 1e-9);
  single(out, "warmpath_generation_seconds_total", "counter", "Time in decode passes.", s.decode_ns * 1e-9);
  family(out, "warmpath_steps_total", "counter", "Passes of the model.");
  out += cat("warmpath_steps_total{kind=\"prefill\"} ", s.steps_prefill, "\n");
  out += cat("warmpath_steps_total{kind=\"decode\"} ", s.steps_decode, "\n");
  single(out, "warmpath_decode_stall_seconds_max", "gauge", "Longest gap of a running stream due to prefill.",
         s.stall_ns_max * 1e-9);
}

void print_memory(std::string& out, const Engine& engine, const EngineStats& stats) {
  const std::vector<PoolUse> pools = memory_pools(engine, stats);
  family(out, "warmpath_mem_bytes", "gauge", "Bytes taken at start, by pool; ram is the host's, behind --cache-ram.");
  for (const PoolUse& pool : pools) out += cat("warmpath_mem_bytes{pool=\"", pool.name, "\"} ", pool.bytes, "\n");
  family(out, "warmpath_mem_used_bytes", "gauge", "Of these, in use.");
  for (const PoolUse& pool : pools)
    out += cat("warmpath_mem_used_bytes{pool=\"", pool.name, "\"} ", pool.used_bytes, "\n");
  family(out, "warmpath_mem_available_bytes", "gauge", "What this process may still take.");
  out += cat("warmpath_mem_available_bytes{source=\"host\"} ", available_memory_bytes(), "\n");
}

void print_consolidation(std::string& out, const ConsolidationStats& c) {
  family(out, "warmpath_cache_consolidation_tokens_total", "counter",
         "Tokens of finished turns computed while idle, or by the next request.");
  out += cat("warmpath_cache_consolidation_tokens_total{when=\"idle\"} ", c.tokens_idle, "\n");
  out += cat("warmpath_cache_consolidation_tokens_total{when=\"request\"} ", c.tokens_request, "\n");
  family(out, "warmpath_cache_consolidation_seconds_total", "counter",
         "Time for that: nobody waited, or a request did.");
  out += cat("warmpath_cache_consolidation_seconds_total{when=\"idle\"} ", c.ns_idle * 1e-9, "\n");
  out += cat("warmpath_cache_consolidation_seconds_total{when=\"request\"} ", c.ns_request * 1e-9, "\n");
  family(out, "warmpath_cache_consolidations_total", "counter", "Finished turns by what became of them.");
  out += cat("warmpath_cache_consolidations_total{event=\"done\"} ", c.done, "\n");
  out += cat("warmpath_cache_consolidations_total{event=\"dropped\"} ", c.dropped, "\n");
  out += cat("warmpath_cache_consolidations_total{event=\"gave_way\"} ", c.gave_way, "\n");
  single(out, "warmpath_cache_consolidations_waiting", "gauge", "Finished turns not yet consolidated.", c.waiting);
}

char class_letter(size_t index) { return letter(static_cast<CaptureClass>(index)); }

void print_restores(std::string& out, const EngineStats& stats) {
  family(out, "warmpath_cache_restore_total", "counter", "Requests that resumed from an anchor, by where it lay.");
  for (size_t tier = 0; tier < kTiers; ++tier)
    out += cat("warmpath_cache_restore_total{source=\"", name(static_cast<Tier>(tier)), "\"} ", stats.restores[tier],
               "\n");
  family(out, "warmpath_cache_restore_bytes_total", "counter",
         "Bytes of pages and anchors read back; the device's own are read in place.");
  out += "warmpath_cache_restore_bytes_total{source=\"device\"} 0\n";
  out += cat("warmpath_cache_restore_bytes_total{source=\"ram\"} ", stats.ram.loaded_bytes, "\n");
  out += cat("warmpath_cache_restore_bytes_total{source=\"disk\"} ", stats.disk.loaded_bytes, "\n");
  family(out, "warmpath_cache_hit_tokens_total", "counter", "Tokens not computed, by class and place of the anchor.");
  for (size_t tier = 0; tier < kTiers; ++tier)
    for (size_t at = 0; at < kCaptureClasses; ++at)
      out += cat("warmpath_cache_hit_tokens_total{class=\"", class_letter(at), "\",tier=\"",
                 name(static_cast<Tier>(tier)), "\"} ", stats.hit_tokens[tier][at], "\n");
}

void print_tiers(std::string& out, const EngineStats& stats) {
  const RamTierStats& r = stats.ram;
  const DiskTierStats& d = stats.disk;
  family(out, "warmpath_cache_tier_errors_total", "counter", "What a tier could not write, read or believe.");
  out += cat("warmpath_cache_tier_errors_total{tier=\"ram\",kind=\"corrupt\"} ", r.corrupt, "\n");
  out += cat("warmpath_cache_tier_errors_total{tier=\"ram\",kind=\"refused\"} ", r.refused, "\n");
  out += cat("warmpath_cache_tier_errors_total{tier=\"disk\",kind=\"write\"} ", d.write_errors, "\n");
  out += cat("warmpath_cache_tier_errors_total{tier=\"disk\",kind=\"read\"} ", d.read_errors, "\n");
  out += cat("warmpath_cache_tier_errors_total{tier=\"disk\",kind=\"corrupt\"} ", d.corrupt, "\n");
  out += cat("warmpath_cache_tier_errors_total{tier=\"disk\",kind=\"dropped\"} ", d.dropped, "\n");
  single(out, "warmpath_cache_ram_bytes", "gauge", "Of the pages and anchors in --cache-ram.", r.bytes);
  single(out, "warmpath_cache_ram_evictions_total", "counter", "Pages and anchors that gave way there.", r.evicted);
  single(out, "warmpath_cache_disk_bytes", "gauge", "Of the segments of --cache-disk.", d.bytes);
}

// On its way to the disk an anchor is spilling; the device's own is free for others meanwhile.
void print_anchors(std::string& out, const EngineStats& stats, int64_t anchor_bytes) {
  const CacheStats& c = stats.cache;
  const struct {
    const char *tier, *state;
    int64_t count;
  } kAnchors[] = {{"device", "published", c.anchors_published},
                  {"device", "pending", c.anchors_pending},
                  {"device", "free", c.anchors_free},
                  {"ram", "published", stats.ram.anchors},
                  {"disk", "published", stats.disk.anchors - stats.disk.anchors_pending},
                  {"disk", "spilling", stats.disk.anchors_pending}};
  const auto print = [&](std::string_view metric, std::string_view help, int64_t each) {
    family(out, metric, "gauge", help);
    for (const auto& a : kAnchors)
      out += cat(metric, "{tier=\"", a.tier, "\",state=\"", a.state, "\"} ", a.count * each, "\n");
  };
  print("warmpath_cache_anchors", "Anchors by place and state.", 1);
  print("warmpath_cache_anchor_bytes", "Bytes of these anchors.", anchor_bytes);
  family(out, "warmpath_cache_pages", "gauge", "Pages by owner.");
  out += cat("warmpath_cache_pages{state=\"free\"} ", c.pages_free, "\n");
  out += cat("warmpath_cache_pages{state=\"cached\"} ", c.pages_cached, "\n");
  out += cat("warmpath_cache_pages{state=\"leased\"} ", c.pages_leased, "\n");
}

// What was published, left out or given up: an event has a reason where there may be several.
void print_events(std::string& out, const CacheStats& c) {
  const auto event = [&](const char* what, size_t at, std::string_view reason, int64_t count) {
    out += cat("warmpath_cache_anchor_events_total{event=\"", what, "\",class=\"", class_letter(at), "\",reason=\"",
               reason, "\"} ", count, "\n");
  };
  family(out, "warmpath_cache_anchor_events_total", "counter", "Captures by outcome, and anchors evicted.");
  for (size_t at = 0; at < kCaptureClasses; ++at) {
    event("published", at, "", c.published_by_class[at]);
    event("deduped", at, "", c.deduped_by_class[at]);
    event("skipped", at, "", c.skipped_by_class[at]);
    for (size_t why = 0; why < kEvictionReasons; ++why)
      event("evicted", at, name(static_cast<EvictionReason>(why)), c.evictions[at][why]);
  }
  family(out, "warmpath_cache_evictions_total", "counter", "Anchors evicted, by class and reason.");
  for (size_t at = 0; at < kCaptureClasses; ++at)
    for (size_t why = 0; why < kEvictionReasons; ++why)
      out += cat("warmpath_cache_evictions_total{class=\"", class_letter(at), "\",reason=\"",
                 name(static_cast<EvictionReason>(why)), "\"} ", c.evictions[at][why], "\n");
  family(out, "warmpath_cache_captures_refused_total", "counter", "Captures without a free anchor, by reason.");
  for (size_t why = 0; why < kCaptureRefusals; ++why)
    out += cat("warmpath_cache_captures_refused_total{reason=\"", name(static_cast<CaptureRefusal>(why)), "\"} ",
               c.refused_by_reason[why], "\n");
  family(out, "warmpath_cache_ghost_hits_total", "counter", "Lookups that met an evicted path, by its class.");
  for (size_t at = 0; at < kCaptureClasses; ++at)
    out += cat("warmpath_cache_ghost_hits_total{class=\"", class_letter(at), "\"} ", c.ghost_hits_by_class[at], "\n");
}

void print_cache(std::string& out, const EngineStats& stats, int64_t anchor_bytes) {
  const CacheStats& c = stats.cache;
  single(out, "warmpath_prefix_cache_queries_total", "counter", "Tokens looked up.", c.query_tokens);
  single(out, "warmpath_prefix_cache_hits_total", "counter", "Tokens not computed.", c.hit_tokens);
  single(out, "warmpath_cache_lookups_total", "counter", "Requests looked up.", c.lookups);
  single(out, "warmpath_prompt_tokens_recomputed_total", "counter", "Tokens between anchor and match.",
         c.recomputed_tokens);
  print_restores(out, stats);
  print_tiers(out, stats);
  family(out, "warmpath_cache_miss_total", "counter", "Requests by miss reason; none is a full hit.");
  for (size_t i = 0; i < std::size(stats.misses); ++i)
    out += cat("warmpath_cache_miss_total{reason=\"", name(static_cast<MissReason>(i)), "\"} ", stats.misses[i], "\n");
  print_anchors(out, stats, anchor_bytes);
  print_events(out, c);
  single(out, "warmpath_cache_hold_denials_total", "counter", "Holds refused by their limit.", c.hold_denials);
}

}  // namespace

void Histogram::observe(double value) {
  const size_t bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  ++counts_[bucket];
  ++count_;
  sum_ += value;
}

void Histogram::print(std::string& out, std::string_view name) const {
  out += cat("# TYPE ", name, " histogram\n");
  print_labelled(out, name, "");
}

void Histogram::print_labelled(std::string& out, std::string_view name, std::string_view label) const {
  const std::string first = label.empty() ? "" : cat(label, ","), alone = label.empty() ? "" : cat("{", label, "}");
  int64_t below = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    below += counts_[i];
    out += cat(name, "_bucket{", first, "le=\"", bounds_[i], "\"} ", below, "\n");
  }
  out += cat(name, "_bucket{", first, "le=\"+Inf\"} ", count_, "\n");
  out += cat(name, "_sum", alone, " ", sum_, "\n", name, "_count", alone, " ", count_, "\n");
}

std::vector<double> Metrics::latencies() {
  return {0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600};
}
std::vector<double> Metrics::gaps() { return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5}; }
std::vector<double> Metrics::sizes() {
  return {16, 64, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144};
}

void Metrics::count_http(std::string_view route, int status) {
  const std::lock_guard lock(mutex_);
  ++http_[{std::string(route), status}];
}

void Metrics::count_repair(std::string_view kind) {
  const std::lock_guard lock(mutex_);
  ++repairs_[std::string(kind)];
}

void Metrics::count_template_error() {
  const std::lock_guard lock(mutex_);
  ++template_errors_;
}

void Metrics::count_finish(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  ++finishes_[std::string(reason)];
}

void Metrics::count_cancelled(std::string_view phase) {
  const std::lock_guard lock(mutex_);
  ++cancelled_[std::string(phase)];
}

void Metrics::count_repeated_call() {
  const std::lock_guard lock(mutex_);
  ++repeated_calls_;
}

void Metrics::count_volatile_lines(int lines) {
  const std::lock_guard lock(mutex_);
  volatile_lines_ += lines;
}

void Metrics::observe(const RequestStats& stats) {
  const std::lock_guard lock(mutex_);
  recent_.push_back({.number = ++finished_,
                     .prompt_tokens = stats.prompt_tokens,
                     .cached_tokens = stats.cached_tokens,
                     .ttft_ns = stats.ttft_ns,
                     .queue_ns = stats.queue_ns,
                     .miss = stats.miss,
                     .tier = stats.tier});
  if (recent_.size() > kRecentMax) recent_.pop_front();
  ttft_.observe(stats.ttft_ns * 1e-9);
  total_.observe(stats.total_ns * 1e-9);
  queue_.observe(stats.queue_ns * 1e-9);
  prefill_.observe(stats.prefill_ns * 1e-9);
  decode_.observe(stats.decode_ns * 1e-9);
  prompt_tokens_.observe(static_cast<double>(stats.prompt_tokens));
  generated_tokens_.observe(static_cast<double>(stats.generated_tokens));
  if (stats.restored) restores_[static_cast<size_t>(stats.tier)].observe((stats.restore_ns + stats.load_ns) * 1e-9);
}

std::vector<RecentRequest> Metrics::recent() const {
  const std::lock_guard lock(mutex_);
  return {recent_.begin(), recent_.end()};
}

void Metrics::observe_gap(double seconds) {
  const std::lock_guard lock(mutex_);
  gap_.observe(seconds);
}

std::string Metrics::print(const Service* service) const {
  std::string out;
  family(out, "warmpath_build_info", "gauge", "Always 1.");
  out += cat("warmpath_build_info{build=\"", service ? label_value(service->build) : "", "\",model=\"",
             service ? label_value(service->model_name) : "", "\"} 1\n");
  if (service && service->engine) {
    const EngineStats stats = service->engine->stats();
    print_engine(out, stats);
    print_memory(out, *service->engine, stats);
    print_consolidation(out, stats.consolidation);
    print_cache(out, stats, service->engine->model_info().anchor_bytes);
  }
  const std::lock_guard lock(mutex_);
  family(out, "warmpath_request_success_total", "counter", "Finished generations by reason.");
  for (const auto& [reason, count] : finishes_)
    out += cat("warmpath_request_success_total{finished_reason=\"", reason, "\"} ", count, "\n");
  family(out, "warmpath_requests_cancelled_total", "counter", "Requests whose client left, by phase.");
  for (const auto& [phase, count] : cancelled_)
    out += cat("warmpath_requests_cancelled_total{phase=\"", phase, "\"} ", count, "\n");
  family(out, "warmpath_http_requests_total", "counter", "Answers by route and status; 499: the client left.");
  for (const auto& [key, count] : http_)
    out += cat("warmpath_http_requests_total{route=\"", key.first, "\",code=\"", key.second, "\"} ", count, "\n");
  family(out, "warmpath_tool_parse_repairs_total", "counter", "Tool calls that were not quite well formed.");
  for (const auto& [kind, count] : repairs_)
    out += cat("warmpath_tool_parse_repairs_total{kind=\"", kind, "\"} ", count, "\n");
  single(out, "warmpath_template_errors_total", "counter", "Requests the chat template refused.", template_errors_);
  single(out, "warmpath_repeat_tool_calls_total", "counter", "Requests whose history repeats a call three times.",
         repeated_calls_);
  single(out, "warmpath_volatile_lines_stripped_total", "counter", "Per-request lines taken out of system texts.",
         volatile_lines_);
  ttft_.print(out, "warmpath_time_to_first_token_seconds");
  gap_.print(out, "warmpath_inter_token_latency_seconds");
  total_.print(out, "warmpath_e2e_request_latency_seconds");
  queue_.print(out, "warmpath_request_queue_time_seconds");
  prefill_.print(out, "warmpath_request_prefill_time_seconds");
  decode_.print(out, "warmpath_request_decode_time_seconds");
  prompt_tokens_.print(out, "warmpath_request_prompt_tokens");
  generated_tokens_.print(out, "warmpath_request_generation_tokens");
  family(out, "warmpath_cache_restore_seconds", "histogram",
         "Time to decide on and load a restored prefix, by source.");
  for (size_t tier = 0; tier < kTiers; ++tier)
    restores_[tier].print_labelled(out, "warmpath_cache_restore_seconds",
                                   cat("source=\"", name(static_cast<Tier>(tier)), "\""));
  return out;
}

}  // namespace wp
