// `warmpath chat`: a conversation in the terminal. stdout is the answer, stderr the thinking; reads pipes.
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>

#include "app/commands.h"
#include "app/model_session.h"
#include "core/clock.h"
#include "core/log.h"
#include "measure/http_client.h"
#include "text/detokenizer.h"

namespace wp::app {
namespace {

void show(FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

struct Reply {
  std::string thinking, content;
  Json calls = Json::array();  // As the API gives them; empty for a local model, whose calls stay text.
};

class Partner {
 public:
  virtual ~Partner() = default;
  virtual Result<Reply> answer(const Json& messages) = 0;  // Shows what it says as it comes.
};

// Splits what a model says into thinking and answer at its markers, which may come in any pieces.
class ThinkingSplitter {
 public:
  explicit ThinkingSplitter(bool thinking) : thinking_(thinking) {}

  void push(std::string_view text, Reply& reply) {
    held_ += text;
    for (;;) {
      const std::string_view marker = thinking_ ? "</think>" : "<think>";
      const size_t at = held_.find(marker);
      if (at == std::string::npos) break;
      emit(held_.substr(0, at), reply);
      held_.erase(0, at + marker.size());
      thinking_ = !thinking_;
    }
    // What may still become a marker waits.
    size_t keep = std::min<size_t>(held_.size(), 7);
    const std::string_view marker = thinking_ ? "</think>" : "<think>";
    while (keep > 0 && held_.compare(held_.size() - keep, keep, marker.substr(0, keep)) != 0) --keep;
    emit(held_.substr(0, held_.size() - keep), reply);
    held_.erase(0, held_.size() - keep);
  }
  void finish(Reply& reply) {
    emit(held_, reply);
    held_.clear();
  }

 private:
  void emit(std::string text, Reply& reply) {
    std::string& all = thinking_ ? reply.thinking : reply.content;
    if (all.empty()) text.erase(0, std::min(text.find_first_not_of('\n'), text.size()));
    all += text;
    show(thinking_ ? stderr : stdout, text);
  }

  bool thinking_;
  std::string held_;
};

class LocalPartner : public Partner {
 public:
  LocalPartner(std::unique_ptr<Session> session, bool thinking, int64_t tokens_max)
      : session_(std::move(session)), thinking_(thinking), tokens_max_(tokens_max) {}

  Result<Reply> answer(const Json& messages) override {
    const GenerationDefaults& defaults = session_->defaults;
    WP_TRY(ChatPrompt prompt,
           session_->prompter->build(
               {{"messages", messages}, {"add_generation_prompt", true}, {"enable_thinking", thinking_}}));
    const size_t open = prompt.text.rfind("<think>"), close = prompt.text.rfind("</think>");
    const bool inside = open != std::string::npos && (close == std::string::npos || close < open);
    GenerateRequest request{.id = cat("chat-", ++turns_), .tokens = std::move(prompt.tokens)};
    const int64_t room = session_->limits.context_tokens - static_cast<int64_t>(request.tokens.size());
    request.max_tokens = std::max<int64_t>(1, std::min(room, tokens_max_ > 0 ? tokens_max_ : room));
    request.stop_tokens = defaults.eos_tokens;
    request.vocabulary_limit = session_->tokenizer->vocabulary_count();
    request.sampling.temperature = defaults.temperature;
    request.sampling.top_k = defaults.top_k;
    request.sampling.top_p = defaults.top_p;
    request.sampling.min_p = defaults.min_p;
    request.sampling.repetition_penalty = defaults.repetition_penalty;
    request.sampling.seed = splitmix64(static_cast<uint64_t>(system_clock().now_ns()));
    request.cache.conversation = "chat";
    request.cache.continues = prompt.continues;
    const auto capture = [&request](int64_t position, CaptureClass capture_class) {
      if (position > 0) request.cache.captures.push_back({position, capture_class});
    };
    capture(prompt.captures.system_end, CaptureClass::system);
    capture(prompt.captures.stable_end, CaptureClass::tail);
    capture(prompt.captures.user_start, CaptureClass::user);
    WP_TRY(TokenStream stream, session_->engine->submit(std::move(request)));

    Reply reply;
    ThinkingSplitter splitter(inside);
    Detokenizer detokenizer(*session_->tokenizer, {}, false);
    while (const auto event = stream.next()) {
      if (event->kind == TokenEvent::Kind::token) splitter.push(detokenizer.push(event->token), reply);
      if (event->kind != TokenEvent::Kind::finished) continue;
      if (event->finish == FinishReason::error) return Error{ErrorCode::device, event->error};
      break;
    }
    splitter.push(detokenizer.finish(), reply);
    splitter.finish(reply);
    return reply;
  }

 private:
  std::unique_ptr<Session> session_;
  bool thinking_;
  int64_t tokens_max_;
  int64_t turns_ = 0;
};

class HttpPartner : public Partner {
 public:
  HttpPartner(measure::HttpClient client, bool thinking, int64_t tokens_max)
      : client_(std::move(client)), thinking_(thinking), tokens_max_(tokens_max) {}

  Result<Reply> answer(const Json& messages) override {
    Json body = {{"messages", messages}, {"stream", true}, {"chat_template_kwargs", {{"enable_thinking", thinking_}}}};
    if (tokens_max_ > 0) body["max_tokens"] = tokens_max_;
    Reply reply;
    std::string fault;
    WP_TRY(client_.stream("/v1/chat/completions", body, [&](std::string_view data) {
      const auto chunk = data == "[DONE]" ? Result<Json>(Json(nullptr)) : parse_json(data);
      if (!chunk.ok() || !chunk->is_object()) return;
      if (chunk->contains("error")) fault = dump_json((*chunk)["error"]);
      if (!chunk->contains("choices") || !(*chunk)["choices"].is_array() || (*chunk)["choices"].empty()) return;
      const Json& choice = (*chunk)["choices"][0];
      if (choice.is_object() && choice.contains("delta") && choice["delta"].is_object()) add(choice["delta"], reply);
    }));
    if (!fault.empty()) return Error{ErrorCode::unavailable, fault};
    return reply;
  }

 private:
  static void add(const Json& delta, Reply& reply) {
    const auto take = [&delta](const char* name, std::string& all, FILE* stream) {
      if (!delta.contains(name) || !delta[name].is_string()) return;
      all += delta[name].get<std::string>();
      show(stream, delta[name].get<std::string>());
    };
    take("reasoning_content", reply.thinking, stderr);
    take("content", reply.content, stdout);
    if (!delta.contains("tool_calls") || !delta["tool_calls"].is_array()) return;
    for (const Json& call : delta["tool_calls"]) {
      if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
      for (const char* name : {"name", "arguments"})
        if (call["function"].contains(name) && call["function"][name].is_string())
          show(stdout, cat(call["function"][name].get<std::string>(), name == std::string("name") ? " " : ""));
    }
  }

  measure::HttpClient client_;
  bool thinking_;
  int64_t tokens_max_;
};

Result<std::unique_ptr<Partner>> make_partner(const Flags& flags) {
  const std::string model = flags.positional("MODEL").value_or("");
  const int64_t tokens_max = flags.integer("max-tokens");
  if (is_url(model)) {
    WP_TRY(auto client, measure::HttpClient::make(model, flags.text("api-key")));
    return std::unique_ptr<Partner>(new HttpPartner(std::move(client), flags.on("thinking"), tokens_max));
  }
  configure_log({.level = LogLevel::warning});
  WP_TRY(auto session, open_session(flags));
  if (!session->prompter) return Error{ErrorCode::bad_file, cat(model, ": expected a chat template, found none")};
  return std::unique_ptr<Partner>(new LocalPartner(std::move(session), flags.on("thinking"), tokens_max));
}

Result<void> say(Partner& partner, const std::string& text, Json& messages) {
  messages.push_back({{"role", "user"}, {"content", text}});
  auto reply = partner.answer(messages);
  if (!reply.ok()) {
    messages.erase(messages.end() - 1);
    return std::move(reply).error();
  }
  show(stdout, "\n");
  Json message = {{"role", "assistant"}, {"content", reply->content}};
  if (!reply->thinking.empty()) message["reasoning_content"] = reply->thinking;
  messages.push_back(std::move(message));
  return {};
}

Result<int> chat(const Flags& flags) {
  std::string first = flags.text("prompt");
  const bool terminal = isatty(STDIN_FILENO);
  if (!terminal && !flags.set("prompt"))
    first.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  WP_TRY(const auto partner, make_partner(flags));
  Json messages = Json::array();
  if (flags.set("system")) messages.push_back({{"role", "system"}, {"content", flags.text("system")}});
  if (!first.empty()) {
    WP_TRY(say(*partner, first, messages));
    return 0;
  }
  if (!terminal) return Error{ErrorCode::bad_request, "chat: expected a prompt in the pipe or with -p, found nothing"};
  show(stderr, "Type a message; /clear forgets, /exit or Ctrl-D ends.\n");
  const Json beginning = messages;
  for (std::string line;;) {
    show(stderr, "> ");
    if (!std::getline(std::cin, line) || line == "/exit") break;
    if (line.empty()) continue;
    if (line == "/clear") {
      messages = beginning;
      continue;
    }
    const auto said = say(*partner, line, messages);
    if (!said.ok()) show(stderr, cat("\n", said.error().message, "\n"));
  }
  show(stderr, "\n");
  return 0;
}

}  // namespace

Command chat_command() {
  return {.name = "chat",
          .positionals = {{.name = "MODEL", .help = "a model folder, or http://HOST:PORT of a server"}},
          .summary = "talk to a model in the terminal; stdout is the answer, stderr the thinking",
          .examples =
              "  warmpath chat http://127.0.0.1:8080\n  warmpath chat models/flash-next-mini -p 'Hello'\n"
              "  echo 'Hello' | warmpath chat models/flash-next-mini > answer.txt\n",
          .flags = joined(
              {{.name = "prompt",
                .fallback = "",
                .placeholder = "TEXT",
                .help = "Ask this once and end",
                .group = "Chat",
                .aliases = {"-p"}},
               {.name = "system", .fallback = "", .placeholder = "TEXT", .help = "System message", .group = "Chat"},
               {.name = "thinking",
                .kind = FlagKind::boolean,
                .fallback = "true",
                .help = "Let the model think first",
                .group = "Chat"},
               {.name = "max-tokens",
                .kind = FlagKind::integer,
                .fallback = "0",
                .placeholder = "N",
                .help = "Tokens of an answer; 0: what fits",
                .group = "Chat",
                .low = 0},
               {.name = "api-key",
                .fallback = "",
                .placeholder = "K",
                .help = "Key of the server",
                .group = "Chat",
                .secret = true}},
              engine_flags()),
          .run = chat};
}

}  // namespace wp::app
