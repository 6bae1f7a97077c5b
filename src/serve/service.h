// Service: what the handlers of routes need of a loaded model. app/ fills it once the model is loaded and hands it to
// Server::ready(); const from then on, read by every connection thread. Owns nothing: all it points at outlives the
// server's stop(). Never reads a flag, a file or the environment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/rng.h"
#include "engine/engine.h"
#include "engine/slot_files.h"
#include "text/chat_prompt.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace wp {

// The checkpoint's generation_config.json, or flags over it. A request's own value wins.
struct GenerationDefaults {
  float temperature = 1.0f;  // 0 where the checkpoint says do_sample: false.
  int32_t top_k = 0;         // 0: all.
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  std::vector<TokenId> eos_tokens;  // Generation ends at any of them.
};

// Maxima of what one request may ask for.
struct ApiLimits {
  int32_t choices_max = 16;  // n times prompts.
  int32_t stops_max = 16;
  int32_t stop_bytes_max = 1024;
  int32_t messages_max = 65536;
  int32_t tools_max = 1024;
  int32_t stop_tokens_max = 64;
  int32_t logit_bias_max = 1024;
};

struct Service {
  Engine* engine = nullptr;
  SlotFiles* slot_files = nullptr;  // Null: no --slot-save-path.
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat_template = nullptr;  // Null: the checkpoint has none; chat answers 400.
  const ChatPrompter* prompter = nullptr;       // Null exactly when chat_template is.
  Clock* clock = nullptr;

  std::string model_name;       // As served: "flash-next-mini".
  std::string model_path;       // As it was given.
  std::string build;            // "warmpath 0.1.0 (abc1234)", for system_fingerprint and metrics.
  int64_t context_tokens = 0;   // n_ctx: longest prompt and generation.
  int64_t context_trained = 0;  // n_ctx_train; 0: unknown.
  int64_t embedding_width = 0;  // n_embd; 0: unknown.

  GenerationDefaults defaults;
  ApiLimits limits;
  Seed seed = 1;                 // Of requests that bring none: each draws its own from it.
  bool domain_per_key = false;   // Requests under different API keys share no cached prefix.
  bool disk_tier = false;        // The engine has a folder of --cache-disk.
  bool strict_api = false;       // Unknown fields are errors.
  bool strict_model = false;     // A foreign model name is an error.
  bool call_in_thinking = true;  // A complete call inside a thought ends it and is returned (A1); false: it stays text.
  bool strip_volatile = true;    // Known lines of system texts that differ with every request are taken out.
  bool reasoning_both = false;   // `reasoning` beside `reasoning_content`.
};

}  // namespace wp
