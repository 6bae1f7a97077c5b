// Replay: plays recorded conversations against something that answers, greedily, with the history as recorded, and
// keeps what each turn cost and said. Targets are an engine in this process or a server behind HTTP. run_replay()
// blocks and uses threads of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "engine/engine.h"
#include "measure/conversation.h"
#include "text/chat_prompt.h"
#include "text/tokenizer.h"

namespace wp::measure {

// What one turn cost and said. Times in seconds.
struct TurnResult {
  std::string conversation;
  int64_t turn = 0;   // 0 is the conversation's first.
  bool warm = false;  // Not the first.
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  int64_t shared_tokens = -1;  // With the conversation's previous prompt; -1: not known (over HTTP).
  int64_t added_tokens = -1;   // Beyond that prompt and its recorded answer: the client's own; -1 likewise.
  bool restored = false;
  std::string tier;  // Where the anchor came from, "device", "ram" or "disk"; empty: nowhere, or not known.
  std::string miss = "none", miss_detail;
  int64_t match_tokens = 0;
  char anchor_class = '-';  // S T U B A L
  // Where the prompt left the nearest known path, and the texts there; -1: nowhere, or not known.
  int64_t diverged_at = -1;
  std::string had, got, nearest;
  double ttft_s = 0;          // From before the prompt was rendered to the first token.
  double decode_s = 0;        // From the first token to the last.
  uint64_t text_hash = 0;     // Of the token ids, or of the text over HTTP.
  uint64_t logprob_hash = 0;  // Of the bits of the log-probabilities kept; 0 over HTTP.
  bool has_expected = false, exact = false;
  std::string fault;  // Empty: none.
};

// One prompt to answer.
struct TurnPrompt {
  const Conversation* conversation = nullptr;  // Null for synthetic prompts, which are tokens already.
  const ExpectedTurn* expected = nullptr;
  std::vector<TokenId> tokens;
  std::string label;  // The conversation's.
  int64_t turn = 0;
  int64_t tokens_max = 0;  // Generated at most; 0: what the expected text needs, and some more.
};

constexpr int64_t kPaceMaxNs = 60'000'000'000;

// A turn's token ids, where they are known.
struct TurnTokens {
  std::vector<TokenId> prompt;
  std::vector<TokenId> answered;  // The conversation with the recorded answer, as the next prompt renders it.
};

class ReplayTarget {
 public:
  virtual ~ReplayTarget() = default;
  // Any thread. A fault is a result too.
  virtual TurnResult answer(const TurnPrompt& prompt, TurnTokens* tokens) = 0;
  // Any thread. Blocks until finished turns have been consolidated, at most for kPaceMaxNs.
  virtual void settle() {}
};

// Everything outlives the target.
struct LocalTargetParts {
  Engine* engine;
  const Tokenizer* tokenizer;
  const ChatPrompter* prompter;  // May be null for synthetic prompts.
  std::vector<TokenId> stop_tokens;
  Clock* clock;
};
std::unique_ptr<ReplayTarget> make_local_target(const LocalTargetParts& parts);
// `use_cache` false sends cache_prompt:false.
std::unique_ptr<ReplayTarget> make_http_target(const std::string& url, bool use_cache, Clock& clock);

struct SyntheticShape {
  int64_t turns = 12, start = 24000, added = 500, generated = 16;
};
// "turns=12,start=24000,new=500"
Result<SyntheticShape> parse_synthetic(const std::string& text);
// Each turn's prompt is the previous one and new tokens; ids of ordinary tokens, from a fixed seed.
std::vector<TurnPrompt> synthetic_prompts(const SyntheticShape& shape, const Tokenizer& tokenizer, int64_t vocabulary);

struct ReplayOptions {
  int64_t parallel = 1;  // Conversations at a time.
  bool pace = false;     // Between two turns of a conversation the target settles.
  std::function<void(const TurnResult& done, int64_t turns_done, int64_t turns_total)> progress;
};

// What a prompt shares with the one before it in its conversation, and what the client added.
void relate_to_previous(const TurnTokens& before, const TurnTokens& tokens, TurnResult& result);

// The turns in the order of the file, whatever the order in which they were run.
std::vector<TurnResult> run_replay(ReplayTarget& target, const std::vector<Conversation>& conversations,
                                   const ReplayOptions& options);
std::vector<TurnResult> run_prompts(ReplayTarget& target, const std::vector<TurnPrompt>& prompts,
                                    const ReplayOptions& options);

}  // namespace wp::measure
