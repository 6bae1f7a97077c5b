// ChatPrompter: from a conversation to the prompt's tokens and to the positions where the cache should keep a state.
// Text of users, tools and system messages never becomes a special token, whatever it says; only the template's own
// markup and what an assistant wrote do. Const once made; build() from any thread. Knows no request and no cache.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace wp {

// Where the prefix can be shared (spec/prefix_cache.md 6): multiples of 64 below the prompt's length; 0 means none.
struct CapturePositions {
  int64_t system_end = 0;  // S: the end of tools and system text, shared by conversations.
  int64_t stable_end = 0;  // T: what the conversation's next prompt renders identically.
  // U: less than that, where the template drops earlier thoughts once a user writes again: what is left then. 0 where
  // it drops none.
  int64_t user_start = 0;
  std::vector<int64_t> breakpoints;  // The ends of the messages that were asked for, in their order; 0: none there.
};

struct ChatPrompt {
  std::string text;  // As the template rendered it.
  std::vector<TokenId> tokens;
  CapturePositions captures;
  bool continues = false;  // The history holds an assistant turn.
};

// One genuine added token in a rendered text: bytes [begin, end), token `token` of the prompt.
struct PlacedToken {
  size_t begin, end;
  int64_t token;
};

class ChatPrompter {
 public:
  // Both outlive the prompter. Refuses a tokenizer whose added tokens swallow neighbouring text (lstrip, rstrip,
  // single_word), which the Qwen family does not use.
  static Result<ChatPrompter> make(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

  // `variables` are the template's: messages, tools, add_generation_prompt, and whatever chat_template_kwargs held.
  // Arguments of tool calls that are JSON texts are parsed first, as templates expect objects. Without `captures` the
  // conversation is rendered once; with them, up to four more times and once for each of `breakpoints` (how many
  // messages stand before each), and encoded once.
  Result<ChatPrompt> build(const Json& variables, bool captures = true,
                           const std::vector<size_t>& breakpoints = {}) const;
  // What the prompt after a finished turn will begin with, in whole pages: `messages` ends in the assistant's. The next
  // message is a tool's result where it calls, a user's where it does not. May differ from what the model generated.
  Result<std::vector<TokenId>> stable_prefix(const Json& variables) const;

 private:
  struct Encoded {
    std::string text;  // Still escaped.
    std::vector<TokenId> tokens;
    std::vector<PlacedToken> added;
  };

  ChatPrompter(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

  // Length of the added token's text at `at`, and which; 0: none begins here. The longest wins.
  size_t added_at(std::string_view text, size_t at, TokenId* token) const;
  bool may_begin_added(std::string_view text, size_t at) const;  // The text ends inside an added token's text.
  std::string escaped(std::string_view text) const;
  std::string unescaped(std::string_view text) const;
  void escape_strings(Json& value) const;
  void escape_message(Json& message) const;
  std::vector<TokenId> encode_piece(std::string_view escaped_piece) const;
  Encoded encode(std::string escaped_text) const;
  int64_t common_tokens(const Encoded& prompt, std::string_view other) const;
  CapturePositions find_captures(const Encoded& prompt, Json& variables, const std::vector<size_t>& breakpoints) const;
  struct Stable {
    int64_t user = -1, tool = -1;  // Tokens in common with the prompt that comes with a user's turn, a tool's result.
  };
  Stable stable_tokens(const Encoded& prompt, Json& variables) const;
  Result<Json> prepare(const Json& variables, bool* continues) const;
  int64_t margined(const Encoded& prompt, int64_t end) const;

  struct Added {
    std::string text;
    TokenId token;
    size_t first_bytes;  // Of its first character.
    char code;           // Which first character it is, in an escape.
  };

  const ChatTemplate* template_;
  const Tokenizer* tokenizer_;
  std::vector<Added> added_;  // Longest first.
  std::vector<std::string> first_characters_;
  bool begins_[256] = {};  // Bytes an added token can begin with.
  size_t added_bytes_max_ = 0;
};

}  // namespace wp
