// POST /tokenize, /detokenize and /apply-template: what the server makes of a text, for debugging.
#include "serve/render_chat.h"
#include "serve/routes.h"

namespace wp {
void tokenize(const HttpRequest& http, HttpResponse& response, ServerState& state) {
  RequestLog log(state, http, response, "tokenize");
  const auto service = loaded_service(state, response);
  Json body;
  if (!service || !read_json(http, response, &body)) return;
  FieldReader reader(body);
  std::optional<std::string> content = reader.string("content", SIZE_MAX);
  if (!content) content = reader.string("prompt", SIZE_MAX);
  if (!content) reader.fail(invalid_type("content", "a string", Json()));
  reader.boolean("add_special");  // The Qwen family adds no token of its own.
  const bool special = reader.boolean("parse_special").value_or(true);
  const bool pieces = reader.boolean("with_pieces").value_or(false);
  if (reader.error()) return response.fail(*reader.error());
  const Tokenizer& tokenizer = *service->tokenizer;
  const std::vector<TokenId> tokens =
      special ? tokenizer.encode_with_special(*content) : tokenizer.encode_plain(*content);
  log.start(static_cast<int64_t>(tokens.size()), false);
  Json list = Json::array();
  for (const TokenId token : tokens) {
    if (!pieces) {
      list.push_back(token);
      continue;
    }
    // A piece that is no text by itself is given as its bytes.
    const std::string bytes(tokenizer.bytes(token));
    Json piece = bytes;
    if (find_invalid_utf8(bytes) >= 0) {
      piece = Json::array();
      for (const char c : bytes) piece.push_back(static_cast<unsigned char>(c));
    }
    list.push_back({{"id", token}, {"piece", std::move(piece)}});
  }
  response.send_json(
      200, {{"tokens", std::move(list)}, {"count", tokens.size()}, {"max_model_len", service->context_tokens}});
}

void detokenize(const HttpRequest& http, HttpResponse& response, ServerState& state) {
  RequestLog log(state, http, response, "detokenize");
  const auto service = loaded_service(state, response);
  Json body;
  if (!service || !read_json(http, response, &body)) return;
  FieldReader reader(body);
  const Json* list = reader.list("tokens");
  if (!list) reader.fail(invalid_type("tokens", "a list of token ids", Json()));
  std::vector<TokenId> tokens;
  const int64_t vocabulary = service->tokenizer->vocabulary_count();
  for (size_t i = 0; reader.ok() && i < list->size(); ++i) {
    const Json& value = (*list)[i];
    if (!value.is_number_integer()) {
      reader.fail(invalid_type(cat("tokens[", i, "]"), "a token id", value));
      break;
    }
    const bool huge = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{1} << 62;
    const int64_t id = huge ? -1 : value.get<int64_t>();
    if (id < 0 || id >= vocabulary)
      reader.fail(invalid_value(cat("tokens[", i, "]"),
                                cat("tokens[", i, "]: expected 0..", vocabulary - 1, ", found ", dump_json(value))));
    else tokens.push_back(static_cast<TokenId>(id));
  }
  if (reader.error()) return response.fail(*reader.error());
  log.start(static_cast<int64_t>(tokens.size()), false);
  const std::string text = service->tokenizer->decode(tokens);
  response.send_json(200, {{"content", text}, {"prompt", text}});
}

void apply_template(const HttpRequest& http, HttpResponse& response, ServerState& state) {
  RequestLog log(state, http, response, "apply-template");
  const auto service = loaded_service(state, response);
  Json body;
  if (!service || !read_json(http, response, &body)) return;
  const RunContext context{*service, state, response, log};
  ChatRequest request;
  if (auto error = parse_chat(body, parse_context(*service), &request)) return response.fail(*error);
  const auto prompt = render_chat(context, http, request, true);
  if (!prompt) return;
  log.start(static_cast<int64_t>(prompt->tokens.size()), false);
  response.send_json(200, {{"prompt", prompt->text},
                           {"tokens", prompt->tokens.size()},
                           {"captures",
                            {{"system_end", prompt->captures.system_end},
                             {"stable_end", prompt->captures.stable_end},
                             {"user_start", prompt->captures.user_start}}}});
}

}  // namespace wp
