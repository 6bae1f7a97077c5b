// JSON in memory and its bounded reader. Reading is simdjson's, the value type nlohmann's with key order kept (chat
// templates print what they were given). Any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/error.h"

namespace wp {

using Json = nlohmann::ordered_json;

struct JsonLimits {
  int64_t size_bytes_max = 64 << 20;
  int depth_max = 128;
  bool duplicate_keys_allowed = true;  // Else a second member of one name is an error; if allowed, the last one wins.
};

// Whole documents only. The error names the byte where UTF-8 ends ("body is not UTF-8 at byte 12"), the depth or the
// size that was exceeded, or says what was expected.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});
// Compact form. Invalid UTF-8 in strings is replaced by U+FFFD, never thrown on.
std::string dump_json(const Json& value);
// Offset of the first byte that is not UTF-8, or -1.
int64_t find_invalid_utf8(std::string_view text);

}  // namespace wp
