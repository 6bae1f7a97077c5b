// `warmpath inspect why MODEL FILE`: recorded conversations against the tree, without the model.
#include <cstdio>

#include "app/commands.h"
#include "app/model_session.h"
#include "core/clock.h"
#include "core/log.h"
#include "measure/hollow_model.h"
#include "measure/why.h"

namespace wp::app {
namespace {

Result<TokenId> end_token(const std::vector<TokenId>& ends) {
  if (!ends.empty()) return ends.front();
  return Error{ErrorCode::bad_file, "inspect why: expected an eos_token_id in the model's folder, found none"};
}

// As serve and replay take it where nothing else is said, so that pages are as scarce here as there.
EngineLimits limits_of(const Flags& flags, const FolderTexts& folder) {
  EngineLimits limits;
  limits.sequences = static_cast<int32_t>(flags.integer("sequences"));
  limits.anchors = static_cast<int32_t>(flags.integer("anchors"));
  limits.consolidate = flags.on("consolidate");
  limits.context_tokens = flags.integer("context-tokens");
  if (limits.context_tokens == 0) limits.context_tokens = folder.context_max;
  return limits;
}

}  // namespace

Result<int> inspect_why(const Flags& flags) {
  const auto path = flags.positional("OF"), file = flags.positional("FILE");
  if (!path || !file)
    return Error{ErrorCode::bad_request, "inspect why: expected MODEL and FILE.jsonl, found fewer arguments"};
  configure_log({.level = LogLevel::warning});
  WP_TRY(auto conversations, measure::read_conversations(*file));
  WP_TRY(const Tokenizer tokenizer, Tokenizer::load(*path));
  WP_TRY(const ChatTemplate chat_template, ChatTemplate::load(*path));
  WP_TRY(const ChatPrompter prompter, ChatPrompter::make(chat_template, tokenizer));
  WP_TRY(const FolderTexts folder, read_folder(*path));
  WP_TRY(const TokenId end, end_token(folder.defaults.eos_tokens));
  WP_TRY(const auto device, Device::make(DeviceKind::ref, 1));

  const measure::HollowModel model(tokenizer.vocabulary_count(), folder.context_max, end);
  WP_TRY(const auto engine, Engine::make(model, *device, limits_of(flags, folder), system_clock()));
  const auto target = measure::make_local_target({.engine = engine.get(),
                                                  .tokenizer = &tokenizer,
                                                  .prompter = &prompter,
                                                  .stop_tokens = folder.defaults.eos_tokens,
                                                  .clock = &system_clock()});
  const auto turns =
      measure::run_replay(*target, conversations, {.parallel = flags.integer("parallel"), .pace = flags.on("pace")});
  if (flags.on("json")) {
    std::printf("%s\n", dump_json(measure::why_json(turns)).c_str());
    return 0;
  }
  std::fputs(measure::why_header().c_str(), stdout);
  for (const measure::TurnResult& turn : turns) std::fputs(measure::why_lines(turn).c_str(), stdout);
  std::printf("\n");
  std::fputs(measure::why_summary(turns).c_str(), stdout);
  return 0;
}

}  // namespace wp::app
