#include "text/jinja/python_text.h"

#include <fmt/format.h>
#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <charconv>
#include <cmath>

#include "text/utf8.h"

namespace wp::jinja {
namespace {

// Bytes that are not UTF-8 pass through as they are.
template <class F>
void for_each_character(std::string_view text, F&& f) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    f(step, text.substr(at, step.length));
    at += step.length;
  }
}

std::string change_case(std::string_view text, bool up) {
  bool ascii = true;
  for (const char c : text) ascii &= static_cast<uint8_t>(c) < 0x80;
  std::string out(text);
  if (ascii) {
    for (char& c : out)
      if (up ? (c >= 'a' && c <= 'z') : (c >= 'A' && c <= 'Z')) c ^= 0x20;
    return out;
  }
  auto wide = icu::UnicodeString::fromUTF8({text.data(), static_cast<int32_t>(text.size())});
  out.clear();
  (up ? wide.toUpper(icu::Locale::getRoot()) : wide.toLower(icu::Locale::getRoot())).toUTF8String(out);
  return out;
}

std::string title_character(uint32_t character) {
  std::string out;
  append_utf8(out, static_cast<uint32_t>(u_totitle(static_cast<UChar32>(character))));
  return out;
}

bool is_printable(uint32_t character) {
  if (character == ' ') return true;
  constexpr uint32_t kHidden = U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CS_MASK | U_GC_CO_MASK | U_GC_CN_MASK | U_GC_Z_MASK;
  return (U_GET_GC_MASK(static_cast<UChar32>(character)) & kHidden) == 0;
}

bool is_line_end(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

// The value of `digits` hexadecimal digits at `at`, or -1.
int64_t hex_value(std::string_view text, size_t at, size_t digits) {
  uint32_t value = 0;
  if (at + digits > text.size()) return -1;
  const auto [end, fault] = std::from_chars(text.data() + at, text.data() + at + digits, value, 16);
  return fault == std::errc() && end == text.data() + at + digits ? value : -1;
}

}  // namespace

bool is_python_space(uint32_t character) {
  return is_white_space(character) || (character >= 0x1C && character <= 0x1F);
}

size_t python_space_end(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text, at);
    if (step.kind != Utf8Kind::valid || !is_python_space(step.character)) break;
    at += step.length;
  }
  return at;
}

std::string_view python_strip_left(std::string_view text) { return text.substr(python_space_end(text, 0)); }

std::string_view python_strip_right(std::string_view text) {
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    const Utf8Step step = utf8_step(text, begin);
    if (step.kind != Utf8Kind::valid || begin + step.length != text.size() || !is_python_space(step.character)) break;
    text = text.substr(0, begin);
  }
  return text;
}

std::string_view strip_characters(std::string_view text, std::string_view characters, bool left, bool right) {
  const auto among = [&](std::string_view character) { return characters.find(character) != std::string_view::npos; };
  while (left && !text.empty()) {
    const int length = utf8_step(text, 0).length;
    if (!among(text.substr(0, length))) break;
    text = text.substr(length);
  }
  while (right && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!among(text.substr(begin))) break;
    text = text.substr(0, begin);
  }
  return text;
}

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> out;
  for_each_character(text, [&](const Utf8Step&, std::string_view character) { out.push_back(character); });
  return out;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> out;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    size_t next = at + step.length;
    if (step.kind == Utf8Kind::valid && is_line_end(step.character)) {
      if (text[at] == '\r' && next < text.size() && text[next] == '\n') ++next;
      out.push_back(text.substr(begin, at - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) out.push_back(text.substr(begin));
  return out;
}

std::string upper(std::string_view text) { return change_case(text, true); }
std::string lower(std::string_view text) { return change_case(text, false); }

std::string capitalize(std::string_view text) {
  if (text.empty()) return "";
  const Utf8Step first = utf8_step(text, 0);
  if (first.kind != Utf8Kind::valid)
    return std::string(text.substr(0, first.length)) + lower(text.substr(first.length));
  return title_character(first.character) + lower(text.substr(first.length));
}

std::string title(std::string_view text) {
  std::string out;
  bool inside = false;
  for_each_character(text, [&](const Utf8Step& step, std::string_view character) {
    const auto c = static_cast<UChar32>(step.character);
    const bool cased = step.kind == Utf8Kind::valid && u_hasBinaryProperty(c, UCHAR_CASED);
    if (!cased) out += character;
    else out += inside ? lower(character) : title_character(step.character);
    inside = cased;
  });
  return out;
}

std::string title_filter(std::string_view text) {
  std::string out;
  bool inside = false;
  for_each_character(text, [&](const Utf8Step& step, std::string_view character) {
    const bool divides = (step.kind == Utf8Kind::valid && is_python_space(step.character)) ||
                         std::string_view("-({[<").find(character) != std::string_view::npos;
    if (divides) out += character;
    else out += inside ? lower(character) : upper(character);
    inside = !divides;
  });
  return out;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t count) {
  std::string out;
  if (from.empty()) {  // Between all characters, as Python does.
    for_each_character(text, [&](const Utf8Step&, std::string_view character) {
      if (count != 0) {
        out += to;
        --count;
      }
      out += character;
    });
    if (count != 0) out += to;
    return out;
  }
  size_t at = 0;
  for (; count != 0; --count) {
    const size_t found = text.find(from, at);
    if (found == std::string_view::npos) break;
    out += text.substr(at, found - at);
    out += to;
    at = found + from.size();
  }
  return out += text.substr(at);
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for_each_character(text, [&](const Utf8Step& step, std::string_view character) {
    const char c = character[0];
    if (c == quote || c == '\\') (out += '\\') += c;
    else if (c == '\n') out += "\\n";
    else if (c == '\r') out += "\\r";
    else if (c == '\t') out += "\\t";
    else if (step.kind != Utf8Kind::valid || is_printable(step.character)) out += character;
    else if (step.character < 0x100) out += fmt::format("\\x{:02x}", step.character);
    else if (step.character < 0x10000) out += fmt::format("\\u{:04x}", step.character);
    else out += fmt::format("\\U{:08x}", step.character);
  });
  return out += quote;
}

std::string repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view shortest(buffer, end - buffer);
  const size_t e = shortest.find('e');
  int exponent = 0;
  const char* exponent_begin = shortest.data() + e + (shortest[e + 1] == '+' ? 2 : 1);
  std::from_chars(exponent_begin, shortest.data() + shortest.size(), exponent);
  const std::string sign = shortest[0] == '-' ? "-" : "";
  std::string digits;
  for (const char c : shortest.substr(0, e))
    if (c >= '0' && c <= '9') digits += c;
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    std::string out = sign + digits[0];
    if (count > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(-exponent - 1, '0') + digits;
  if (count <= exponent + 1) return sign + digits + std::string(exponent + 1 - count, '0') + ".0";
  return sign + digits.substr(0, exponent + 1) + "." + digits.substr(exponent + 1);
}

void append_json_string(std::string& out, std::string_view text, bool ascii_only) {
  out += '"';
  for_each_character(text, [&](const Utf8Step& step, std::string_view character) {
    const char c = character[0];
    const auto value = step.character;
    if (step.kind != Utf8Kind::valid) out += kReplacementCharacter;
    else if (c == '"' || c == '\\') (out += '\\') += c;
    else if (c == '\n') out += "\\n";
    else if (c == '\r') out += "\\r";
    else if (c == '\t') out += "\\t";
    else if (c == '\b') out += "\\b";
    else if (c == '\f') out += "\\f";
    else if (value < 0x20) out += fmt::format("\\u{:04x}", value);
    else if (!ascii_only || value < 0x7F) out += character;
    else if (value == 0x7F) out += character;
    else if (value < 0x10000) out += fmt::format("\\u{:04x}", value);
    else out += fmt::format("\\u{:04x}\\u{:04x}", 0xD7C0 + (value >> 10), 0xDC00 + (value & 0x3FF));
  });
  out += '"';
}

Result<std::string> resolve_escapes(std::string_view body) {
  static constexpr std::string_view kNames = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
  std::string out;
  for (size_t at = 0; at < body.size();) {
    if (body[at] != '\\' || at + 1 == body.size()) {
      out += body[at++];
      continue;
    }
    const char c = body[at + 1];
    const size_t simple = kNames.find(c);
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (simple != std::string_view::npos) {
      out += kValues[simple];
      at += 2;
    } else if (c == '\n') {
      at += 2;
    } else if (digits > 0) {
      int64_t value = hex_value(body, at + 2, digits);
      at += 2 + digits;
      if (value >= 0xD800 && value < 0xDC00 && body.substr(at, 2) == "\\u") {
        const int64_t low = hex_value(body, at + 2, 4);
        if (low >= 0xDC00 && low < 0xE000) {
          value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
          at += 6;
        }
      }
      if (value < 0 || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
        return Error{ErrorCode::bad_file, cat("expected a character after \\", std::string(1, c), ", found none")};
      append_utf8(out, static_cast<uint32_t>(value));
    } else if (c >= '0' && c <= '7') {
      uint32_t value = 0;
      size_t end = at + 1;
      while (end < body.size() && end < at + 4 && body[end] >= '0' && body[end] <= '7')
        value = value * 8 + (body[end++] - '0');
      append_utf8(out, value);
      at = end;
    } else if (c == 'N') {
      return Error{ErrorCode::bad_file, "\\N{...} in a string is not implemented"};
    } else {
      out += body[at++];  // An unknown escape stays as it is written.
    }
  }
  return out;
}

}  // namespace wp::jinja
