// FieldReader: takes the members of one JSON object one by one, each with its type and range, and keeps the first
// refusal. null equals absent. What nobody asked for is listed in the end. One owner, for one request.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api_error.h"

namespace wp {

class FieldReader {
 public:
  // `prefix` names the object in messages: "stream_options." for a nested one.
  explicit FieldReader(const Json& object, std::string prefix = {}) : object_(&object), prefix_(std::move(prefix)) {}

  // The member, or null when it is absent or null. Marks it as known.
  const Json* find(std::string_view name);

  // Each returns nothing when the member is absent or null, and after a refusal.
  std::optional<bool> boolean(std::string_view name);
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high);
  std::optional<double> number(std::string_view name, double low, double high);
  std::optional<std::string> string(std::string_view name, size_t bytes_max = 1 << 16);
  const Json* object(std::string_view name);
  const Json* list(std::string_view name);

  // Fields of a later version: only null or one of the harmless values are let through.
  void refuse(std::string_view name, std::string_view instead, std::initializer_list<Json> harmless = {});

  void fail(ApiError error) {
    if (!error_) error_ = std::move(error);
  }
  bool ok() const { return !error_; }
  const std::optional<ApiError>& error() const { return error_; }
  std::vector<std::string> unknown() const;  // Members that nobody asked for.
  std::string path(std::string_view name) const { return cat(prefix_, name); }

 private:
  const Json* object_;
  std::string prefix_;
  std::vector<std::string> known_;
  std::optional<ApiError> error_;
};

}  // namespace wp
