#include "core/assert.h"

#include <cstdio>
#include <cstdlib>

namespace wp {

void assertion_failed(const char* expression, const char* file, int line) noexcept {
  std::fprintf(stderr, "warmpath: internal error: %s:%d: assertion failed: %s\n", file, line, expression);
  std::fflush(stderr);
  std::abort();
}

}  // namespace wp
