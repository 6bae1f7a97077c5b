// Cuts a template into tokens, with the white-space rules that transformers sets: trim_blocks, lstrip_blocks, one
// newline at the end dropped. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace wp::jinja {

enum class TokenKind {
  text,          // Outside of tags.
  output_begin,  // {{
  output_end,
  block_begin,  // {%
  block_end,
  name,
  string,
  integer,
  real,
  symbol,
  end  // Of the template.
};

struct Token {
  TokenKind kind;
  std::string text;  // Of a string: its value, escapes resolved.
  int line;
};

Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace wp::jinja
