// Builds a Program from a template's text. What is not implemented is an error that names it and its line. Any thread.
#pragma once

#include <string_view>

#include "text/jinja/ast.h"

namespace wp::jinja {

Result<Program> parse_program(std::string_view source, int depth_max);

}  // namespace wp::jinja
