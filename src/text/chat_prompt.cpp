// How user text is kept from becoming markup: before rendering, the first character of every added token's text in a
// string of the request is replaced by an escape, U+F8FF and a letter. What the rendered text then holds of added
// tokens is genuine. The escapes are undone in the plain text between them.
#include "text/chat_prompt.h"

#include <algorithm>

#include "core/cat.h"

namespace wp {
namespace {

constexpr std::string_view kEscape = "\xEF\xA3\xBF";        // U+F8FF, private use.
constexpr char kEscapeItself = '~';                         // The letter of a U+F8FF that the text held already.
constexpr std::string_view kDummyUser = "\xEF\xA3\xBE q7";  // U+F8FE: begins like no real message.
constexpr std::string_view kOtherUser = "7";                // Has nothing in common with it.
constexpr int64_t kGrid = 64;
constexpr int64_t kCaptureTokensMin = 256;  // Shorter prompts capture nothing.
constexpr int64_t kMargin = 32;             // Tokens before an end that merges may still move.

size_t character_bytes(std::string_view text, size_t at) {
  size_t end = at + 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  return end - at;
}

bool is_template_constant(std::string_view name) {
  return name == "bos_token" || name == "eos_token" || name == "pad_token" || name == "unk_token";
}

int64_t floor_below(int64_t position, int64_t n) {
  const int64_t limit = std::min(position, n - 1);
  return limit < kGrid ? 0 : limit / kGrid * kGrid;
}

bool has_role(const Json& message, std::string_view role) {
  if (!message.is_object()) return false;
  const auto found = message.find("role");
  return found != message.end() && found->is_string() && found->get_ref<const std::string&>() == role;
}

void parse_arguments(Json& message) {
  if (!message.is_object() || !message.contains("tool_calls") || !message["tool_calls"].is_array()) return;
  for (Json& call : message["tool_calls"]) {
    if (!call.is_object()) continue;
    Json& function = call.contains("function") ? call["function"] : call;
    if (!function.is_object() || !function.contains("arguments") || !function["arguments"].is_string()) continue;
    auto parsed = parse_json(function["arguments"].get_ref<const std::string&>());
    if (parsed.ok()) function["arguments"] = std::move(*parsed);
  }
}

Json dummy_answer() { return {{"role", "assistant"}, {"content", "d4"}}; }

Json dummy_call(bool thinks) {
  Json function = {{"name", "d5"}, {"arguments", {{"k", "v"}}}};
  Json call = {{"id", "call_0"}, {"type", "function"}, {"function", std::move(function)}};
  Json message = {{"role", "assistant"}, {"content", ""}};
  if (thinks) message["reasoning_content"] = "r6";
  message["tool_calls"] = Json::array({std::move(call)});
  return message;
}

Json user_message(std::string_view text = kDummyUser) { return {{"role", "user"}, {"content", std::string(text)}}; }

Json tool_message(std::string_view text = kDummyUser) {
  return {{"role", "tool"}, {"tool_call_id", "call_0"}, {"content", std::string(text)}};
}

bool has_calls(const Json& message) {
  return message.contains("tool_calls") && message["tool_calls"].is_array() && !message["tool_calls"].empty();
}

}  // namespace

ChatPrompter::ChatPrompter(const ChatTemplate& chat_template, const Tokenizer& tokenizer)
    : template_(&chat_template), tokenizer_(&tokenizer) {}

Result<ChatPrompter> ChatPrompter::make(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  ChatPrompter made(chat_template, tokenizer);
  for (TokenId token = 0; token < tokenizer.vocabulary_count(); ++token) {
    if (!tokenizer.is_added(token)) continue;
    const std::string text(tokenizer.bytes(token));
    if (text.empty()) continue;
    if (text.find(kEscape) != std::string::npos)
      return Error{ErrorCode::unsupported, cat("tokenizer: added token ", token, ": U+F8FF is reserved here")};
    const std::string probe = cat("a ", text, " b");
    std::vector<TokenId> want = tokenizer.encode_plain("a ");
    want.push_back(token);
    for (TokenId after : tokenizer.encode_plain(" b")) want.push_back(after);
    if (tokenizer.encode_with_special(probe) != want)
      return Error{ErrorCode::unsupported,
                   cat("tokenizer: added token ", text, ": expected one without lstrip, rstrip and single_word")};
    const std::string first = text.substr(0, character_bytes(text, 0));
    auto known = std::find(made.first_characters_.begin(), made.first_characters_.end(), first);
    if (known == made.first_characters_.end()) known = made.first_characters_.insert(known, first);
    const auto index = known - made.first_characters_.begin();
    if (index >= 50) return Error{ErrorCode::unsupported, "tokenizer: added tokens begin with over 50 characters"};
    made.added_.push_back({text, token, first.size(), static_cast<char>('A' + index)});
    made.begins_[static_cast<unsigned char>(text[0])] = true;
    made.added_bytes_max_ = std::max(made.added_bytes_max_, text.size());
  }
  std::stable_sort(made.added_.begin(), made.added_.end(),
                   [](const Added& a, const Added& b) { return a.text.size() > b.text.size(); });
  return made;
}

size_t ChatPrompter::added_at(std::string_view text, size_t at, TokenId* token) const {
  for (const Added& added : added_) {
    if (text.compare(at, added.text.size(), added.text) != 0) continue;
    *token = added.token;
    return added.text.size();
  }
  return 0;
}

bool ChatPrompter::may_begin_added(std::string_view text, size_t at) const {
  const std::string_view rest = text.substr(at);
  if (rest.size() >= added_bytes_max_) return false;
  return std::any_of(added_.begin(), added_.end(), [&](const Added& added) {
    return rest.size() < added.text.size() && added.text.compare(0, rest.size(), rest) == 0;
  });
}

// An added token's text that the string only begins is escaped too: two strings side by side could complete it.
std::string ChatPrompter::escaped(std::string_view text) const {
  std::string out;
  size_t done = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == kEscape[0] && text.compare(at, kEscape.size(), kEscape) == 0) {
      out.append(text, done, at - done);
      out += kEscape;
      out += kEscapeItself;
      done = at + kEscape.size();
      continue;
    }
    if (!begins_[static_cast<unsigned char>(text[at])]) continue;
    TokenId token = -1;
    if (!added_at(text, at, &token) && !may_begin_added(text, at)) continue;
    const size_t first_bytes = character_bytes(text, at);
    const auto known =
        std::find(first_characters_.begin(), first_characters_.end(), std::string(text.substr(at, first_bytes)));
    if (known == first_characters_.end()) continue;
    out.append(text, done, at - done);
    out += kEscape;
    out += static_cast<char>('A' + (known - first_characters_.begin()));
    done = at + first_bytes;
  }
  out.append(text, done, text.size() - done);
  return out;
}

std::string ChatPrompter::unescaped(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  for (size_t at = text.find(kEscape); at != std::string_view::npos; at = text.find(kEscape, done)) {
    out.append(text, done, at - done);
    const size_t code_at = at + kEscape.size();
    const char code = code_at < text.size() ? text[code_at] : '\0';
    const size_t index = static_cast<size_t>(code - 'A');
    done = code_at + 1;
    if (code == kEscapeItself) {
      out += kEscape;
    } else if (code >= 'A' && index < first_characters_.size()) {
      out += first_characters_[index];
    } else {  // The template's own U+F8FF.
      out += kEscape;
      done = code_at;
    }
  }
  out.append(text, done, text.size() - done);
  return out;
}

void ChatPrompter::escape_strings(Json& value) const {
  if (value.is_string()) {
    value = escaped(value.get_ref<const std::string&>());
  } else if (value.is_array()) {
    for (Json& item : value) escape_strings(item);
  } else if (value.is_object()) {
    Json made = Json::object();
    for (auto& [key, item] : value.items()) {
      escape_strings(item);
      made[escaped(key)] = std::move(item);
    }
    value = std::move(made);
  }
}

// An assistant's own words may hold markup: a model wrote it. Its calls' arguments are data like any other.
void ChatPrompter::escape_message(Json& message) const {
  if (!message.is_object()) return;
  const bool assistant = has_role(message, "assistant");
  for (auto& [key, item] : message.items()) {
    if (assistant && (key == "content" || key == "reasoning_content")) continue;
    escape_strings(item);
  }
}

std::vector<TokenId> ChatPrompter::encode_piece(std::string_view escaped_piece) const {
  if (escaped_piece.find(kEscape) == std::string_view::npos) return tokenizer_->encode_plain(escaped_piece);
  return tokenizer_->encode_plain(unescaped(escaped_piece));
}

ChatPrompter::Encoded ChatPrompter::encode(std::string escaped_text) const {
  Encoded made;
  made.text = std::move(escaped_text);
  const std::string_view text = made.text;
  size_t done = 0;
  const auto plain = [&](size_t end) {
    if (end == done) return;
    const auto piece = encode_piece(text.substr(done, end - done));
    made.tokens.insert(made.tokens.end(), piece.begin(), piece.end());
  };
  for (size_t at = 0; at < text.size();) {
    TokenId token = -1;
    const size_t bytes = begins_[static_cast<unsigned char>(text[at])] ? added_at(text, at, &token) : 0;
    if (!bytes) {
      ++at;
      continue;
    }
    plain(at);
    made.added.push_back({at, at + bytes, static_cast<int64_t>(made.tokens.size())});
    made.tokens.push_back(token);
    done = at += bytes;
  }
  plain(text.size());
  return made;
}

// Tokens that `prompt` and the encoding of `other` have in common from the start. Encodes only the plain piece in
// which the texts part: merges do not cross an added token, so all before it is equal.
int64_t ChatPrompter::common_tokens(const Encoded& prompt, std::string_view other) const {
  const size_t shorter = std::min(prompt.text.size(), other.size());
  const size_t same = std::mismatch(other.begin(), other.begin() + shorter, prompt.text.begin()).first - other.begin();
  const auto after = std::upper_bound(prompt.added.begin(), prompt.added.end(), same,
                                      [](size_t bytes, const PlacedToken& added) { return bytes < added.end; });
  const size_t begin = after == prompt.added.begin() ? 0 : std::prev(after)->end;
  const int64_t first = after == prompt.added.begin() ? 0 : std::prev(after)->token + 1;
  const int64_t last = after == prompt.added.end() ? static_cast<int64_t>(prompt.tokens.size()) : after->token;

  size_t end = begin;
  for (TokenId token = -1; end < other.size(); ++end)
    if (begins_[static_cast<unsigned char>(other[end])] && added_at(other, end, &token)) break;
  const auto piece = encode_piece(other.substr(begin, end - begin));
  int64_t common = 0;
  while (common < static_cast<int64_t>(piece.size()) && first + common < last &&
         piece[common] == prompt.tokens[first + common])
    ++common;
  return first + common;
}

// `end`, less what merges with the text behind it could still move: down to the nearest added token, which no merge
// crosses, or by the margin.
int64_t ChatPrompter::margined(const Encoded& prompt, int64_t end) const {
  const auto after = std::upper_bound(prompt.added.begin(), prompt.added.end(), end,
                                      [](int64_t token, const PlacedToken& added) { return token < added.token; });
  if (after == prompt.added.begin()) return end - kMargin;
  const int64_t token = std::prev(after)->token;
  return std::max(end - kMargin, std::min(end, token + 1));
}

// Two continuations that have little in common: a user's turn and a tool's result. What one of them renders as the
// request did is what that next request will render too. A template that refuses one of them leaves the other.
ChatPrompter::Stable ChatPrompter::stable_tokens(const Encoded& prompt, Json& variables) const {
  Json& messages = variables["messages"];
  const bool answered = has_role(messages.back(), "assistant");
  const size_t count = messages.size();
  const bool thinks = !variables.contains("enable_thinking") || variables["enable_thinking"] != false;
  Stable stable;
  for (const bool tool : {false, true}) {
    if (!answered) messages.push_back(tool ? dummy_call(thinks) : dummy_answer());
    messages.push_back(tool ? tool_message() : user_message());
    const auto rendered = template_->render(variables);
    messages.erase(messages.begin() + static_cast<int64_t>(count), messages.end());
    if (rendered.ok()) (tool ? stable.tool : stable.user) = common_tokens(prompt, *rendered);
  }
  return stable;
}

CapturePositions ChatPrompter::find_captures(const Encoded& prompt, Json& variables,
                                             const std::vector<size_t>& breakpoints) const {
  CapturePositions found;
  const int64_t n = static_cast<int64_t>(prompt.tokens.size());
  if (n < kCaptureTokensMin) return found;
  const auto position = [&](int64_t end) { return floor_below(margined(prompt, end), n); };
  const Stable stable = stable_tokens(prompt, variables);
  const bool drops_thoughts = stable.user >= 0 && stable.user + kGrid < stable.tool;
  if (drops_thoughts) {  // The answer decides which of them comes next; both are kept.
    found.stable_end = position(stable.tool);
    found.user_start = position(stable.user);
  } else {
    found.stable_end = position(stable.user < 0 || stable.tool < 0 ? std::max(stable.user, stable.tool)
                                                                   : std::min(stable.user, stable.tool));
  }

  // The messages up to and without the `kept`-th, and a user message that begins like no other.
  const Json messages = std::move(variables["messages"]);
  const auto cut_before = [&](size_t kept) -> int64_t {
    variables["messages"] = Json::array();
    for (size_t i = 0; i < kept; ++i) variables["messages"].push_back(messages[i]);
    variables["messages"].push_back(user_message());
    const auto rendered = template_->render(variables);
    return rendered.ok() ? common_tokens(prompt, *rendered) : 0;
  };
  size_t system_count = 0;
  while (system_count < messages.size() &&
         (has_role(messages[system_count], "system") || has_role(messages[system_count], "developer")))
    ++system_count;
  const bool has_system = system_count > 0 || (variables.contains("tools") && !variables["tools"].empty());
  if (has_system) found.system_end = floor_below(cut_before(system_count), n);
  for (const size_t before : breakpoints)
    found.breakpoints.push_back(before >= messages.size() ? found.stable_end : position(cut_before(before)));
  return found;
}

Result<Json> ChatPrompter::prepare(const Json& variables, bool* continues) const {
  if (!variables.is_object() || !variables.contains("messages") || !variables["messages"].is_array() ||
      variables["messages"].empty())
    return Error{ErrorCode::bad_request, "messages: expected a list of at least one message, found none"};

  Json prepared = variables;
  for (auto& [key, value] : prepared.items()) {
    if (key == "messages") {
      for (Json& message : value) {
        parse_arguments(message);
        escape_message(message);
        *continues |= has_role(message, "assistant");
      }
    } else if (!is_template_constant(key)) {
      escape_strings(value);
    }
  }
  return prepared;
}

Result<ChatPrompt> ChatPrompter::build(const Json& variables, bool captures,
                                       const std::vector<size_t>& breakpoints) const {
  ChatPrompt prompt;
  WP_TRY(Json prepared, prepare(variables, &prompt.continues));
  WP_TRY(std::string rendered, template_->render(prepared));
  Encoded encoded = encode(std::move(rendered));
  if (captures) prompt.captures = find_captures(encoded, prepared, breakpoints);
  prompt.text = unescaped(encoded.text);
  prompt.tokens = std::move(encoded.tokens);
  return prompt;
}

Result<std::vector<TokenId>> ChatPrompter::stable_prefix(const Json& variables) const {
  bool continues = false;
  WP_TRY(Json prepared, prepare(variables, &continues));
  prepared["add_generation_prompt"] = false;
  Json& messages = prepared["messages"];
  if (!has_role(messages.back(), "assistant"))
    return Error{ErrorCode::bad_request, "messages: expected an assistant's message at the end, found another"};
  const bool calls = has_calls(messages.back());
  const auto next = [&](std::string_view text) {
    messages.push_back(calls ? tool_message(text) : user_message(text));
    auto rendered = template_->render(prepared);
    messages.erase(messages.size() - 1);
    return rendered;
  };
  WP_TRY(std::string one, next(kDummyUser));
  WP_TRY(const std::string other, next(kOtherUser));
  Encoded encoded = encode(std::move(one));
  const int64_t end = std::max<int64_t>(0, margined(encoded, common_tokens(encoded, other)));
  encoded.tokens.resize(static_cast<size_t>(end / kGrid * kGrid));
  return std::move(encoded.tokens);
}

}  // namespace wp
