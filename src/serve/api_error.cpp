#include "serve/api_error.h"

namespace wp {

namespace {

// A full queue passes by itself and soon; the other reasons for a 503 are the server's own state.
bool is_overload(const ApiError& error) { return error.status == 503 && error.code == "overloaded"; }

const char* anthropic_type(const ApiError& error) {
  if (is_overload(error)) return "overloaded_error";
  switch (error.status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 408:
    case 504: return "timeout_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    default: return error.status >= 500 ? "api_error" : "invalid_request_error";
  }
}

// The wording of a prompt that does not fit is the dialect's own: clients look for it, and compact.
std::string anthropic_message(const ApiError& error) {
  if (error.code != "context_length_exceeded" || !error.more.is_object()) return error.message;
  const int64_t prompt_max = error.more.value("n_ctx", int64_t{0}) - 1;  // One is for the answer.
  return cat("prompt is too long: ", error.more.value("n_prompt_tokens", int64_t{0}), " tokens > ", prompt_max,
             " maximum");
}

}  // namespace

int ApiError::status_in(ErrorShape shape) const {
  return shape == ErrorShape::anthropic && is_overload(*this) ? 529 : status;
}

Json ApiError::body(ErrorShape shape, std::string_view request_id) const {
  if (shape == ErrorShape::anthropic)
    return {{"type", "error"},
            {"error", {{"type", anthropic_type(*this)}, {"message", anthropic_message(*this)}}},
            {"request_id", request_id.empty() ? Json(nullptr) : Json(request_id)}};
  Json error = {{"message", message},
                {"type", type},
                {"param", param.empty() ? Json(nullptr) : Json(param)},
                {"code", code.empty() ? Json(nullptr) : Json(code)}};
  if (more.is_object())
    for (const auto& [key, value] : more.items()) error[key] = value;
  return {{"error", std::move(error)}};
}

namespace {

ApiError bad_request(std::string code, std::string param, std::string message) {
  return {.status = 400,
          .type = "invalid_request_error",
          .code = std::move(code),
          .param = std::move(param),
          .message = std::move(message)};
}

ApiError unavailable(std::string code, std::string message, int64_t retry_after_s) {
  return {.status = 503,
          .type = "unavailable_error",
          .code = std::move(code),
          .message = std::move(message),
          .retry_after_s = retry_after_s};
}

}  // namespace

ApiError invalid_json(std::string message) { return bad_request("invalid_json", "", std::move(message)); }

ApiError invalid_type(std::string param, std::string_view expected, const Json& found) {
  std::string message = cat(param, ": expected ", expected, ", found ", describe(found));
  return bad_request("invalid_type", std::move(param), std::move(message));
}

ApiError invalid_value(std::string param, std::string message) {
  return bad_request("invalid_value", std::move(param), std::move(message));
}

ApiError unsupported_value(std::string param, std::string message) {
  return bad_request("unsupported_value", std::move(param), std::move(message));
}

ApiError not_found(std::string message, std::string code) {
  return {.status = 404, .type = "not_found_error", .code = std::move(code), .message = std::move(message)};
}

ApiError method_not_allowed(std::string_view method, std::string allow) {
  std::string message = cat("method: expected ", allow, ", found ", method);
  return {.status = 405,
          .type = "invalid_request_error",
          .code = "method_not_allowed",
          .message = std::move(message),
          .allow = std::move(allow)};
}

ApiError not_implemented(std::string_view route) {
  return {.status = 501,
          .type = "not_implemented_error",
          .code = "not_implemented",
          .message = cat(route, ": this server does not offer the route")};
}

ApiError loading_model(std::string_view phase, double percent) {
  return unavailable("loading_model",
                     cat("the model is loading (", phase, ", ", static_cast<int64_t>(percent), " %), retry later"), 2);
}

ApiError overloaded(std::string message) { return unavailable("overloaded", std::move(message), 1); }

ApiError draining() { return unavailable("draining", "the server is shutting down and takes no new requests", 5); }

ApiError internal_error() {
  return {.status = 500, .type = "server_error", .code = "internal_error", .message = "internal error"};
}

ApiError context_length_exceeded(int64_t context_tokens, int64_t prompt_tokens, int64_t max_tokens,
                                 std::string_view param) {
  std::string message = cat("This model's maximum context length is ", context_tokens, " tokens. However, ");
  if (max_tokens > 0)
    message += cat("you requested ", prompt_tokens + max_tokens, " tokens (", prompt_tokens, " in the prompt, ",
                   max_tokens, " in the completion). Shorten the prompt or lower max_tokens.");
  else
    message +=
        cat("your prompt has ", prompt_tokens, " tokens, which leaves none for a completion. Shorten the prompt.");
  ApiError error = bad_request("context_length_exceeded", std::string(param), std::move(message));
  error.more = {{"n_prompt_tokens", prompt_tokens}, {"n_ctx", context_tokens}};
  return error;
}

ApiError from_error(const Error& error, std::string_view param) {
  switch (error.code) {
    case ErrorCode::bad_request: return invalid_value(std::string(param), error.message);
    case ErrorCode::too_long: return bad_request("context_length_exceeded", std::string(param), error.message);
    case ErrorCode::unsupported: return unsupported_value(std::string(param), error.message);
    case ErrorCode::overloaded: return overloaded(error.message);
    case ErrorCode::unavailable: return draining();
    case ErrorCode::not_found: return not_found(error.message);
    case ErrorCode::timeout:
      return {.status = 504, .type = "timeout_error", .code = "request_timeout", .message = error.message};
    case ErrorCode::device: {
      ApiError made = internal_error();
      made.code = "device_error";
      made.message = "a device call failed";
      return made;
    }
    default: return internal_error();
  }
}

std::string_view kind_of(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return "a boolean";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a string";
  if (value.is_array()) return "a list";
  return "an object";
}

std::string describe(const Json& value) {
  if (value.is_number() || value.is_boolean()) return cat(kind_of(value), " ", dump_json(value));
  if (!value.is_string()) return std::string(kind_of(value));
  std::string text = value.get_ref<const std::string&>();
  if (text.size() > 24) {
    size_t end = 24;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end) + "...";
  }
  return cat("a string ", dump_json(Json(text)));
}

}  // namespace wp
