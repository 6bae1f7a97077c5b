// A whole small file (a tokenizer, a template) into memory. Any thread.
#pragma once

#include <string>

#include "core/error.h"

namespace wp {

Result<std::string> read_text_file(const std::string& path, int64_t size_bytes_max);

}  // namespace wp
