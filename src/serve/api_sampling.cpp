#include "serve/api_sampling.h"

#include <charconv>
#include <limits>

#include "core/hash.h"

namespace wp {
namespace {

void read_sampling(FieldReader& reader, const ParseContext& context, SamplingParams* sampling) {
  const GenerationDefaults& defaults = context.defaults;
  *sampling = {.temperature = defaults.temperature,
               .top_k = defaults.top_k,
               .top_p = defaults.top_p,
               .min_p = defaults.min_p,
               .repetition_penalty = defaults.repetition_penalty};
  if (const auto value = reader.number("temperature", 0, 2)) sampling->temperature = static_cast<float>(*value);
  if (const auto value = reader.number("top_p", 0, 1)) {
    if (*value <= 0) reader.fail(invalid_value("top_p", cat("top_p: expected above 0 to 1, found ", *value)));
    sampling->top_p = static_cast<float>(*value);
  }
  if (const auto value = reader.integer("top_k", -1, std::numeric_limits<int32_t>::max()))
    sampling->top_k = *value < 0 ? 0 : static_cast<int32_t>(*value);
  if (const auto value = reader.number("min_p", 0, 1)) sampling->min_p = static_cast<float>(*value);
  for (const char* name : {"repeat_penalty", "repetition_penalty"}) {
    const auto value = reader.number(name, 0, 10);
    if (!value) continue;
    if (*value <= 0) reader.fail(invalid_value(name, cat(name, ": expected above 0 to 10, found ", *value)));
    sampling->repetition_penalty = static_cast<float>(*value);
  }
  if (const auto value = reader.number("presence_penalty", -2, 2))
    sampling->presence_penalty = static_cast<float>(*value);
  if (const auto value = reader.number("frequency_penalty", -2, 2))
    sampling->frequency_penalty = static_cast<float>(*value);
}

void read_logit_bias(FieldReader& reader, const ParseContext& context, SamplingParams* sampling) {
  const Json* biases = reader.object("logit_bias");
  if (!biases) return;
  if (biases->size() > static_cast<size_t>(context.limits.logit_bias_max))
    return reader.fail(invalid_value("logit_bias", cat("logit_bias: expected at most ", context.limits.logit_bias_max,
                                                       " members, found ", biases->size())));
  for (const auto& [key, value] : biases->items()) {
    TokenId token = -1;
    const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (failed != std::errc{} || end != key.data() + key.size() || token < 0 || token >= context.vocabulary)
      return reader.fail(invalid_value("logit_bias", cat("logit_bias: expected token ids 0..", context.vocabulary - 1,
                                                         ", found ", dump_json(Json(key.substr(0, 24))))));
    if (!value.is_number()) return reader.fail(invalid_type(cat("logit_bias.", key), "a number", value));
    const double bias = value.get<double>();
    if (!(bias >= -100 && bias <= 100))
      return reader.fail(invalid_value(cat("logit_bias.", key),
                                       cat("logit_bias.", key, ": expected -100..100, found ", dump_json(value))));
    sampling->logit_bias.emplace_back(token, static_cast<float>(bias));
  }
}

void add_stop(FieldReader& reader, const ParseContext& context, const Json& value, CommonFields* fields) {
  if (!value.is_string()) return reader.fail(invalid_type("stop", "a string or a list of strings", value));
  const std::string& text = value.get_ref<const std::string&>();
  if (text.empty()) return;  // Some clients send it; it stops nothing.
  if (text.size() > static_cast<size_t>(context.limits.stop_bytes_max))
    return reader.fail(invalid_value(
        "stop", cat("stop: expected at most ", context.limits.stop_bytes_max, " bytes each, found ", text.size())));
  fields->stops.push_back(text);
}

void read_stops(FieldReader& reader, const ParseContext& context, CommonFields* fields) {
  if (const Json* stop = reader.find("stop")) {
    if (stop->is_array()) {
      if (stop->size() > static_cast<size_t>(context.limits.stops_max))
        return reader.fail(invalid_value(
            "stop", cat("stop: expected at most ", context.limits.stops_max, " strings, found ", stop->size())));
      for (const Json& one : *stop) add_stop(reader, context, one, fields);
    } else {
      add_stop(reader, context, *stop, fields);
    }
  }
  const Json* tokens = reader.list("stop_token_ids");
  if (!tokens) return;
  if (tokens->size() > static_cast<size_t>(context.limits.stop_tokens_max))
    return reader.fail(invalid_value(
        "stop_token_ids",
        cat("stop_token_ids: expected at most ", context.limits.stop_tokens_max, " items, found ", tokens->size())));
  for (const Json& token : *tokens) {
    if (!token.is_number_integer()) return reader.fail(invalid_type("stop_token_ids", "a list of integers", token));
    const int64_t id =
        token.is_number_unsigned() && token.get<uint64_t>() > uint64_t{1} << 62 ? int64_t{-1} : token.get<int64_t>();
    if (id < 0 || id >= context.vocabulary)
      return reader.fail(invalid_value(
          "stop_token_ids", cat("stop_token_ids: expected 0..", context.vocabulary - 1, ", found ", dump_json(token))));
    fields->stop_tokens.push_back(static_cast<TokenId>(id));
  }
}

void read_stream(FieldReader& reader, CommonFields* fields) {
  fields->stream = reader.boolean("stream").value_or(false);
  if (const Json* options = reader.object("stream_options")) {
    FieldReader nested(*options, "stream_options.");
    fields->include_usage = nested.boolean("include_usage").value_or(false);
    if (nested.error()) reader.fail(*nested.error());
  }
  fields->return_progress = reader.boolean("return_progress").value_or(false);
  fields->timings_per_token = reader.boolean("timings_per_token").value_or(false);
}

// Fields of other servers that have no effect here, or none yet. A value that would matter is refused by name.
void read_foreign(FieldReader& reader, const ParseContext& context) {
  const int64_t n_ctx = context.context_tokens;
  reader.refuse("typical_p", "1 (off)", {1, 1.0});
  reader.refuse("repeat_last_n", "-1 (the whole context)", {-1});
  reader.refuse("dry_multiplier", "0 (off)", {0, 0.0});
  reader.number("dry_base", 0, 1e6);
  reader.integer("dry_allowed_length", 0, n_ctx);
  reader.integer("dry_penalty_last_n", -1, n_ctx);
  reader.list("dry_sequence_breakers");
  reader.refuse("thinking_budget", "-1 (no limit)", {-1});
  reader.refuse("id_slot", "-1 (any)", {-1});
  reader.refuse("priority", "0", {0});
  reader.refuse("truncation", "disabled", {"disabled"});
  for (const char* name : {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs",
                           "structural_tag", "json_schema", "grammar"})
    reader.refuse(name, "none (constrained output is not offered)");
  reader.refuse("chat_template", "none (the checkpoint's own is used)");
  reader.integer("n_keep", -1, n_ctx);
  reader.integer("n_discard", 0, n_ctx);
  reader.integer("min_keep", 0, context.vocabulary);
  reader.refuse("n_probs", "0 (use logprobs)", {0});
  reader.string("user");
  reader.string("safety_identifier");
  reader.string("service_tier");
  reader.object("metadata");
  reader.boolean("store");
}

}  // namespace

ParseContext parse_context(const Service& service) {
  return {.defaults = service.defaults,
          .limits = service.limits,
          .context_tokens = service.context_tokens,
          .vocabulary = service.tokenizer ? service.tokenizer->vocabulary_count() : 0,
          .strict_api = service.strict_api};
}

uint64_t read_salt(FieldReader& reader) {
  const std::string salt = reader.string("cache_salt").value_or("");
  return salt.empty() ? 0 : hash_text(salt) | 1;
}

void read_common(FieldReader& reader, const ParseContext& context, CommonFields* fields) {
  fields->model = reader.string("model", 1024).value_or("");
  fields->max_tokens = reader.integer("max_tokens", 0, context.context_tokens);
  if (const auto value = reader.integer("max_completion_tokens", 0, context.context_tokens)) fields->max_tokens = value;
  fields->n = reader.integer("n", 1, context.limits.choices_max).value_or(1);
  read_sampling(reader, context, &fields->sampling);
  read_logit_bias(reader, context, &fields->sampling);
  if (const auto seed =
          reader.integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()))
    fields->seed = static_cast<uint64_t>(*seed);
  read_stops(reader, context, fields);
  fields->ignore_eos = reader.boolean("ignore_eos").value_or(false);
  fields->min_tokens = reader.integer("min_tokens", 0, context.context_tokens).value_or(0);
  read_stream(reader, fields);
  fields->cache_prompt = reader.boolean("cache_prompt").value_or(true);
  fields->cache_domain = read_salt(reader);
  fields->conversation = reader.string("prompt_cache_key", 1024).value_or("");
  read_foreign(reader, context);
}

void finish_fields(FieldReader& reader, const ParseContext& context, CommonFields* fields) {
  fields->unknown = reader.unknown();
  if (context.strict_api && !fields->unknown.empty())
    reader.fail(invalid_value(fields->unknown[0], cat(fields->unknown[0].substr(0, 64), ": expected a known field")));
}

}  // namespace wp
