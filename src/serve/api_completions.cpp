#include "serve/api_completions.h"

namespace wp {
namespace {

std::optional<ApiError> read_token(const Json& value, const std::string& where, const ParseContext& context,
                                   std::vector<TokenId>* out) {
  if (!value.is_number_integer()) return invalid_type(where, "a token id", value);
  const bool huge = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{1} << 62;
  const int64_t id = huge ? -1 : value.get<int64_t>();
  if (id < 0 || id >= context.vocabulary)
    return invalid_value(where, cat(where, ": expected 0..", context.vocabulary - 1, ", found ", dump_json(value)));
  out->push_back(static_cast<TokenId>(id));
  return std::nullopt;
}

std::optional<ApiError> read_tokens(const Json& list, const std::string& where, const ParseContext& context,
                                    std::vector<PromptInput>* out) {
  if (list.empty()) return invalid_value("prompt", cat(where, ": expected at least one token, found none"));
  std::vector<TokenId> tokens;
  tokens.reserve(list.size());
  for (const Json& value : list)
    if (auto error = read_token(value, where, context, &tokens)) return error;
  out->emplace_back(std::move(tokens));
  return std::nullopt;
}

std::optional<ApiError> read_text(const Json& value, const std::string& where, std::vector<PromptInput>* out) {
  const std::string& text = value.get_ref<const std::string&>();
  if (text.empty()) return invalid_value("prompt", cat(where, ": expected text, found an empty string"));
  out->emplace_back(text);
  return std::nullopt;
}

std::optional<ApiError> read_prompts(const Json* prompt, const ParseContext& context, std::vector<PromptInput>* out) {
  constexpr std::string_view kExpected = "a string, a list of strings, a list of token ids or a list of such lists";
  if (!prompt) return invalid_type("prompt", kExpected, Json());
  if (prompt->is_string()) return read_text(*prompt, "prompt", out);
  if (!prompt->is_array()) return invalid_type("prompt", kExpected, *prompt);
  if (prompt->empty()) return invalid_value("prompt", "prompt: expected at least one item, found none");
  if ((*prompt)[0].is_number()) return read_tokens(*prompt, "prompt", context, out);
  if (prompt->size() > static_cast<size_t>(context.limits.choices_max))
    return invalid_value(
        "prompt", cat("prompt: expected at most ", context.limits.choices_max, " prompts, found ", prompt->size()));
  for (size_t i = 0; i < prompt->size(); ++i) {
    const Json& one = (*prompt)[i];
    const std::string where = cat("prompt[", i, "]");
    std::optional<ApiError> error;
    if (one.is_string()) error = read_text(one, where, out);
    else if (one.is_array()) error = read_tokens(one, where, context, out);
    else error = invalid_type(where, "a string or a list of token ids", one);
    if (error) return error;
  }
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> parse_completion(const Json& body, const ParseContext& context, CompletionRequest* out) {
  if (!body.is_object()) return invalid_type("body", "an object", body);
  FieldReader reader(body);
  const Json* prompt = reader.find("prompt");
  if (auto error = read_prompts(prompt, context, &out->prompts)) reader.fail(std::move(*error));
  read_common(reader, context, &out->common);
  out->echo = reader.boolean("echo").value_or(false);
  out->parse_special = reader.boolean("parse_special").value_or(false);
  out->suffix = reader.string("suffix");
  if (const auto logprobs = reader.integer("logprobs", 0, 20)) {
    out->logprobs = static_cast<int32_t>(*logprobs);
    out->common.sampling.top_logprobs = out->logprobs;
  }
  reader.integer("best_of", 1, 1);
  reader.refuse("response_format", "none (constrained output is not offered)", {Json{{"type", "text"}}});
  reader.refuse("prompt_logprobs", "none (use echo with logprobs)");
  if (out->common.max_tokens && *out->common.max_tokens == 0 && !out->echo)
    reader.fail(invalid_value("max_tokens",
                              cat("max_tokens: expected 1..", context.context_tokens, " (0 with echo only), found 0")));
  if (out->echo && out->suffix) reader.fail(unsupported_value("suffix", "suffix: expected echo false beside it"));
  const int64_t choices = static_cast<int64_t>(out->prompts.size()) * out->common.n;
  if (choices > context.limits.choices_max)
    reader.fail(invalid_value(
        "n", cat("n: expected at most ", context.limits.choices_max, " choices over all prompts, found ", choices)));
  finish_fields(reader, context, &out->common);
  return reader.error();
}

}  // namespace wp
