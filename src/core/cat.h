// cat(a, b, ...) joins values into one string, for messages. A type of ours takes part by having a
// `std::string to_string(const T&)` beside it. Any thread.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>

namespace wp {
namespace cat_detail {

template <class T>
void append(std::string& out, const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    out += std::string_view(value);
  } else if constexpr (std::is_arithmetic_v<T>) {
    fmt::format_to(std::back_inserter(out), "{}", value);
  } else {
    out += to_string(value);
  }
}

}  // namespace cat_detail

template <class... Args>
std::string cat(const Args&... args) {
  std::string out;
  (cat_detail::append(out, args), ...);
  return out;
}

}  // namespace wp
