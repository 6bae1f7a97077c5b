// Engine: the boundary between connection threads and the one engine thread. submit() and TokenStream may be used from
// any thread; everything behind them belongs to the engine thread. Token ids, never text.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/prefix_cache.h"
#include "core/clock.h"
#include "core/error.h"
#include "device/device.h"
#include "model/model.h"
#include "store/disk_tier.h"
#include "store/ram_tier.h"
#include "text/grammar/token_grammar.h"

namespace wp {

struct SamplingParams {
  float temperature = 0.0f;  // 0: greedy, the lower id wins a tie.
  int32_t top_k = 0;         // 0: all.
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::vector<std::pair<TokenId, float>> logit_bias;
  uint64_t seed = 0;          // Draws are a function of (seed, position) alone.
  int32_t top_logprobs = -1;  // -1: no log-probabilities; 0..20: the sampled token's and so many alternatives.
};

// What the serving layer knows of a prompt, for the cache. Never changes an answer.
struct CacheHints {
  bool enabled = true;  // cache_prompt; false: miss reason bypass=request.
  uint64_t domain = 0;
  std::string conversation;
  bool continues = false;              // The history holds an assistant turn.
  std::vector<CapturePoint> captures;  // S, T and U points, from the rendered prompt.
};

struct GenerateRequest {
  std::string id;               // For log lines; unique.
  std::vector<TokenId> tokens;  // The prompt, at least one.
  int64_t max_tokens = 0;       // 0 with prompt_logprobs only.
  std::vector<TokenId> stop_tokens;
  bool ignore_stop_tokens = false;
  int64_t min_tokens = 0;        // Stop tokens are masked before.
  TokenId vocabulary_limit = 0;  // Ids at or above are never sampled; 0: no limit.
  SamplingParams sampling;
  // The answer keeps to it, and ends only where it may; null: none.
  std::shared_ptr<const TokenGrammar> grammar;
  CacheHints cache;
  bool prompt_logprobs = false;  // A log-probability for each prompt token after the first; bypasses the cache.
  bool progress = false;         // Progress events during prefill.
};

// A finished turn, to be prefilled while nothing else runs, so that the next turn begins at its end
// (spec/prefix_cache.md 14). Has no stream and is best effort: it may be dropped without a word.
struct Consolidation {
  std::vector<TokenId> tokens;  // What the next prompt will begin with; used down to the grid.
  uint64_t domain = 0;
  std::string conversation;
  int32_t slot = -1;  // Of the request, and which one it was, if it is known: its slot's path ends here now.
  uint64_t order = 0;
};

// Where the anchor lay that a request resumed from.
enum class Tier : uint8_t { device, ram, disk };
constexpr int kTiers = 3;
const char* name(Tier tier);

// stuck: no token may follow under the request's grammar, and the answer may not end there either.
enum class FinishReason : uint8_t { stop, length, stuck, cancelled, error };
const char* name(FinishReason reason);
// The answer stops where the model would have gone on.
constexpr bool was_cut(FinishReason reason) { return reason == FinishReason::length || reason == FinishReason::stuck; }

struct TokenLogprob {
  TokenId token;
  float logprob;
};

// Times in ns. cached_tokens + computed_tokens == prompt_tokens, though of a cancelled request not all were computed.
// generated_tokens counts the stop token.
struct RequestStats {
  int64_t prompt_tokens = 0, cached_tokens = 0, computed_tokens = 0, generated_tokens = 0;
  int64_t queue_ns = 0;    // submit() to the lease.
  int64_t restore_ns = 0;  // Deciding and holding.
  int64_t prefill_ns = 0;  // First pass begins, last prefill pass ends: wall time, waits included.
  int64_t ttft_ns = 0;     // submit() to the first token.
  int64_t decode_ns = 0;   // First token to last token.
  int64_t total_ns = 0;
  MissReason miss = MissReason::cold;
  int64_t match_tokens = 0;
  bool restored = false;                           // From an anchor,
  CaptureClass anchor_class = CaptureClass::tail;  // Of that anchor.
  Tier tier = Tier::device;                        // which came from there,
  int64_t load_ns = 0;                             // in so long, waiting included.
  std::string miss_detail;
  int64_t diverged_at = -1;  // First token that differs from the nearest known path; -1: none is near.
  std::vector<TokenId> had;  // Up to twelve tokens of that path on either side.
  std::string nearest;       // Label of the conversation it left; may be empty.
  int32_t slot = -1;         // That it runs or ran in; -1: it never did.
  uint64_t order = 0;        // Of arrival.
};

struct TokenEvent {
  enum class Kind : uint8_t { started, progress, token, finished };
  Kind kind = Kind::token;
  TokenId token = -1;                        // token; a stop token ends the answer and is no event of its own.
  float logprob = 0;                         // token, when asked: before temperature and penalties.
  std::vector<TokenLogprob> top;             // token, when asked; best first.
  std::vector<float> prompt_logprobs;        // started, when asked: n-1 of them.
  int64_t prompt_done = 0;                   // progress: prompt tokens behind it, cached ones included.
  FinishReason finish = FinishReason::stop;  // finished
  std::string error;                         // finished with error.
  RequestStats stats;                        // started (cache fields), progress, finished (all).
};

// Reading end of a bounded channel. One reader. Dropping it cancels the request within one step.
class TokenStream {
 public:
  TokenStream() = default;
  TokenStream(TokenStream&&) noexcept;
  TokenStream& operator=(TokenStream&&) noexcept;
  ~TokenStream();

  // The next event; blocks. Nothing after `finished`.
  std::optional<TokenEvent> next();
  // As next(), giving up after a time: nothing, and *timed_out set.
  std::optional<TokenEvent> next_within(int64_t timeout_ns, bool* timed_out);
  void cancel();  // As dropping it, but `finished` still comes.

 private:
  friend class Engine;
  struct Channel;
  explicit TokenStream(std::shared_ptr<Channel> channel);
  std::shared_ptr<Channel> channel_;
};

// Maxima of everything that could grow, and the knobs of the scheduler. Never changes an answer.
struct EngineLimits {
  int64_t context_tokens = 0;      // Longest prompt + generation; at most the model's.
  int32_t sequences = 4;           // Running at once (slots).
  int32_t pages = 0;               // Pool size; at least one sequence's context.
  int32_t anchors = 0;             // Pool size; 0: 2 * sequences + 4.
  int32_t queue_max = 256;         // Waiting requests; above, submit() fails with overloaded.
  int64_t pass_tokens = 512;       // Rows of a prefill pass at most; multiple of 64.
  int64_t stall_ns = 250'000'000;  // A prefill pass while others decode is sized to end within this.
  int32_t events_max = 1024;       // Per stream; a full channel pauses its sequence.
  int64_t ram_bytes = 0;           // Host memory for what the pools evict; 0: none.
  bool cache = true;               // false: miss reason bypass=server.
  bool consolidate = true;  // Finished turns are prefilled while nothing runs; false: consolidate() does nothing.
};

// Finished turns: `idle` is what nobody waited for, `request` what the next turn had to compute or wait for itself.
struct ConsolidationStats {
  int64_t waiting = 0;  // Given, and neither done nor dropped.
  int64_t done = 0, dropped = 0, gave_way = 0;
  int64_t tokens_idle = 0, tokens_request = 0;
  int64_t ns_idle = 0, ns_request = 0;
};

// A slot and the request that has it, or had it last. order 0: none yet, or what it had was restored from a file.
struct SlotStats {
  bool running = false, prefilling = false;
  uint64_t order = 0;  // Of arrival, from 1.
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0, max_tokens = 0;
  MissReason miss = MissReason::none;
  float temperature = 0, top_p = 1, min_p = 0;
  int32_t top_k = 0;
  uint64_t seed = 0;
};

struct EngineStats {
  int64_t running = 0, waiting = 0, prefilling = 0, decoding = 0;
  int64_t requests_total = 0, cancelled_queued = 0, cancelled_prefill = 0, cancelled_decode = 0;
  int64_t finished_stop = 0, finished_length = 0, finished_stuck = 0, finished_error = 0;
  int64_t prompt_tokens = 0, generated_tokens = 0, computed_tokens = 0;
  int64_t prefill_ns = 0, decode_ns = 0, steps_prefill = 0, steps_decode = 0;
  int64_t pages_total = 0, slots_total = 0;
  int64_t device_bytes = 0;         // Pools, scratch and logits.
  int64_t captures_dropped = 0;     // Asked for off the grid or out of the prompt.
  int64_t captures_incomplete = 0;  // A layer left no receipt; must be 0.
  int64_t stall_ns_max = 0;         // Longest gap of a running stream due to prefill.
  int64_t steps_waited_max = 0;  // Longest wait of an admitted prompt for its next piece, that piece's step included.
  int64_t shared_prefills = 0;   // Requests that waited for a prefix that another was computing.
  int64_t ram_restores = 0;      // Anchors that came back from host memory
  int64_t disk_restores = 0;     // or from the disk.
  int64_t misses[kMissReasons] = {};                 // Requests admitted, by their reason.
  int64_t restores[kTiers] = {};                     // Requests that resumed, by where their anchor lay;
  int64_t hit_tokens[kTiers][kCaptureClasses] = {};  // tokens that they did not compute, by its class too.
  int64_t pauses = 0;                                // Times a sequence stopped for its slow reader.
  std::vector<SlotStats> slots;                      // By number.
  ConsolidationStats consolidation;
  CacheStats cache;
  RamTierStats ram;    // Zeros without that tier.
  DiskTierStats disk;  // The same.
};

class CacheViewOrder;  // cache_view.h
class PathTransfer;
struct PathTransferOrder;

class Engine {
 public:
  // Takes pools and scratch from the device and starts the engine thread. The model, device and
  // tier (null: none) outlive it.
  static Result<std::unique_ptr<Engine>> make(const Model& model, Device& device, const EngineLimits& limits,
                                              Clock& clock, DiskTier* tier = nullptr);
  ~Engine();  // Cancels what runs and joins.

  // Queues a request. bad_request for what cannot be (a token or parameter out of range), too_long for what does not
  // fit the context ("prompt 900 + max_tokens 200 > context 1024"), overloaded when the queue is full, unavailable when
  // draining. Capture points off the grid or beyond the prompt are dropped and counted: they never fail a request.
  Result<TokenStream> submit(GenerateRequest request);

  void consolidate(Consolidation turn);  // Any thread.

  // No new requests; what runs goes on. idle() tells when all have ended.
  void drain();
  bool idle() const;
  void cancel_all();  // Every request ends with `cancelled` within a step.

  EngineStats stats() const;  // Any thread.
  const EngineLimits& limits() const;
  const ModelInfo& model_info() const;
  // Moves a slot's path out of the pools or into them (path_transfer.h), while what runs goes on. Any thread.
  std::shared_ptr<PathTransfer> transfer(PathTransferOrder order);
  // A bounded look at a domain's part of the cache, taken between two passes. Any thread.
  std::shared_ptr<CacheViewOrder> view_cache(uint64_t domain);
  void flush_cache();  // Any thread; done by the engine thread before its next step.
  void hold_conversation(const std::string& conversation);  // A tool call is pending.

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace wp
