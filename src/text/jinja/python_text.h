// Text operations as Python's str has them: what counts as white space, how values print, how case changes. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace wp::jinja {

bool is_python_space(uint32_t character);  // str.isspace of one character.
size_t python_space_end(std::string_view text, size_t at);
std::string_view python_strip_left(std::string_view text);
std::string_view python_strip_right(std::string_view text);
// Without the characters of `characters` at the ends asked for.
std::string_view strip_characters(std::string_view text, std::string_view characters, bool left, bool right);

// The characters of a text, each a view of it.
std::vector<std::string_view> characters_of(std::string_view text);
std::vector<std::string_view> split_lines(std::string_view text);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);         // str.title: after every character that is not a letter.
std::string title_filter(std::string_view text);  // Jinja's filter: after spaces, hyphens and opening brackets.
std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t count);
std::string escape_html(std::string_view text);

std::string repr(std::string_view text);  // 'it''s' as Python writes it.
std::string repr(double value);           // 1.0, 1e-05, inf
void append_json_string(std::string& out, std::string_view text, bool ascii_only);
// The body of a string literal.
Result<std::string> resolve_escapes(std::string_view body);

}  // namespace wp::jinja
