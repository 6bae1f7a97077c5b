#include "serve/http_target.h"

namespace wp {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

}  // namespace

bool split_target(std::string_view target, std::string* path, std::string* query) {
  if (target == "*") {
    *path = "*";
    query->clear();
    return true;
  }
  if (const size_t scheme = target.find("://"); scheme != std::string_view::npos && target.find('/') == scheme + 1) {
    const size_t begin = target.find('/', scheme + 3);
    target = begin == std::string_view::npos ? "/" : target.substr(begin);
  }
  if (target.empty() || target[0] != '/') return false;
  target = target.substr(0, target.find('#'));
  const size_t mark = target.find('?');
  *query = mark == std::string_view::npos ? "" : std::string(target.substr(mark + 1));
  path->clear();
  const std::string_view raw = target.substr(0, mark);
  for (size_t i = 0; i < raw.size(); ++i) {
    char c = raw[i];
    if (c == '%') {
      if (i + 2 >= raw.size()) return false;
      const int high = hex_digit(raw[i + 1]), low = hex_digit(raw[i + 2]);
      if (high < 0 || low < 0) return false;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (c == '\0') return false;
    *path += c;
  }
  return true;
}

std::string host_of(std::string_view host_header) {
  if (!host_header.empty() && host_header[0] == '[') {
    const size_t end = host_header.find(']');
    return end == std::string_view::npos ? "" : lower(host_header.substr(1, end - 1));
  }
  return lower(host_header.substr(0, host_header.find(':')));
}

std::string host_of_origin(std::string_view origin) {
  const size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos) return "";
  return host_of(origin.substr(scheme + 3));
}

bool is_loopback_name(std::string_view host) {
  if (host == "localhost" || host == "::1") return true;
  if (host.size() > 10 && host.substr(host.size() - 10) == ".localhost") return true;
  // 127.0.0.0/8 in dotted form; no other spelling of it is let through.
  if (host.substr(0, 4) != "127.") return false;
  int dots = 0, digits = 0, value = 0;
  for (const char c : host) {
    if (c == '.') {
      if (digits == 0) return false;
      ++dots;
      digits = value = 0;
    } else if (c >= '0' && c <= '9' && digits < 3) {
      value = value * 10 + (c - '0');
      ++digits;
      if (value > 255) return false;
    } else {
      return false;
    }
  }
  return dots == 3 && digits > 0;
}

}  // namespace wp
