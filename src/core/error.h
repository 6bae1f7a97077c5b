// Error and Result: how faults of the outside world (files, requests, memory, devices) travel. Nothing of ours
// throws; what a library throws becomes a Result where it is called. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "core/assert.h"
#include "core/cat.h"

namespace wp {

// What kind of fault it is; app/ maps it to an exit code (cli.md 3), serve/ to a status (api.md 7).
enum class ErrorCode {
  bad_request,    // A client's or user's input is wrong.
  too_long,       // A prompt that does not fit the context.
  bad_file,       // A file that is damaged, hostile or of an unknown kind.
  not_found,      // A file, model or route that is not there.
  io,             // The operating system refused or failed.
  no_memory,      // An allocation failed or does not fit the plan.
  overloaded,     // A queue or list is at its limit.
  unavailable,    // Loading, draining or stopped.
  cancelled,      // The caller went away.
  timeout,        // A time limit passed.
  unsupported,    // Understood, not offered.
  device,         // A device call failed.
  gate_failed,    // A measured value is outside its tolerance.
  address_in_use  // A port or socket could not be bound.
};

struct [[nodiscard]] Error {
  ErrorCode code;
  std::string message;  // What was expected, what was found, what to do. One line, no full stop.

  Error within(std::string_view context) && { return {code, cat(context, ": ", message)}; }
  Error within(std::string_view context) const& { return {code, cat(context, ": ", message)}; }
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & {
    WP_ASSERT(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    WP_ASSERT(ok());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    WP_ASSERT(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const& {
    WP_ASSERT(!ok());
    return *std::get_if<1>(&state_);
  }
  Error&& error() && {
    WP_ASSERT(!ok());
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const& {
    WP_ASSERT(!ok_);
    return error_;
  }
  Error&& error() && {
    WP_ASSERT(!ok_);
    return std::move(error_);
  }

 private:
  Error error_{};
  bool ok_ = true;
};

}  // namespace wp

#define WP_TRY_CAT2(a, b) a##b
#define WP_TRY_CAT(a, b) WP_TRY_CAT2(a, b)
#define WP_TRY_PICK(one, two, name, ...) name
#define WP_TRY_1(expression)                                          \
  do {                                                                \
    auto wp_try_result = (expression);                                \
    if (!wp_try_result.ok()) return std::move(wp_try_result).error(); \
  } while (false)
#define WP_TRY_2_(temporary, declaration, expression)       \
  auto temporary = (expression);                            \
  if (!temporary.ok()) return std::move(temporary).error(); \
  declaration = std::move(temporary).value()
#define WP_TRY_2(declaration, expression) WP_TRY_2_(WP_TRY_CAT(wp_try_, __LINE__), declaration, expression)

// WP_TRY(call());                passes an error up.
// WP_TRY(auto x, call());        and binds the value otherwise. An expression with commas outside brackets needs ().
#define WP_TRY(...) WP_TRY_PICK(__VA_ARGS__, WP_TRY_2, WP_TRY_1, )(__VA_ARGS__)
