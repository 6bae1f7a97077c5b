// The target of a request line, the Host header and an Origin, taken apart. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace wp {

// "/v1/models?x=1", "*" or "http://host/path" into a decoded path and the query as sent. False: not a path, a bad
// escape, or NUL.
bool split_target(std::string_view target, std::string* path, std::string* query);
// The host of "name:port" or "[::1]:port", in lower case, without brackets.
std::string host_of(std::string_view host_header);
// The host of "http://name:port"; "" when it has none ("null").
std::string host_of_origin(std::string_view origin);
bool is_loopback_name(std::string_view host);

}  // namespace wp
