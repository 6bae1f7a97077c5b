// ApiError: one refusal (spec/api.md 7): status, type, param, code, and a message that says what was expected and what
// was found. OpenAI's words; printed in the shape of the dialect that was spoken. Plain data; any thread. Never holds
// prompt text or a path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/json.h"

namespace wp {

// Whose clients read the refusal.
enum class ErrorShape : uint8_t { openai, anthropic };

struct ApiError {
  int status = 500;
  std::string type = "server_error";
  std::string code;   // Empty: null on the wire.
  std::string param;  // Empty: null on the wire.
  std::string message;
  int64_t retry_after_s = 0;  // > 0: a Retry-After header.
  std::string allow;          // 405: the Allow header.
  Json more = nullptr;        // Further members of the error object (n_ctx, ...); null: none.

  // {"error":{...}}, or Anthropic's {"type":"error","error":{...},"request_id"}.
  Json body(ErrorShape shape = ErrorShape::openai, std::string_view request_id = {}) const;
  int status_in(ErrorShape shape) const;  // Anthropic's for a full queue is 529.
};

ApiError invalid_json(std::string message);
ApiError invalid_type(std::string param, std::string_view expected, const Json& found);
ApiError invalid_value(std::string param, std::string message);
ApiError unsupported_value(std::string param, std::string message);
ApiError not_found(std::string message, std::string code = "not_found");
ApiError method_not_allowed(std::string_view method, std::string allow);
ApiError not_implemented(std::string_view route);
ApiError loading_model(std::string_view phase, double percent);
ApiError overloaded(std::string message);
ApiError draining();
ApiError internal_error();
// `prompt_tokens` + `max_tokens` do not fit; the wording's first sentence is byte-stable.
// max_tokens 0: none was asked for, and the prompt alone leaves no room.
ApiError context_length_exceeded(int64_t context_tokens, int64_t prompt_tokens, int64_t max_tokens,
                                 std::string_view param);
// What the engine or the template refused.
ApiError from_error(const Error& error, std::string_view param = {});

// A JSON value as messages name it: `a string "5"`, `-1`, `null`, cut to a few characters.
std::string describe(const Json& value);
std::string_view kind_of(const Json& value);  // "a string", "a list", ...

}  // namespace wp
