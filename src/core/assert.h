// Assertions: our own faults end the process at once, in release builds too. Faults of the outside world are
// Results (core/error.h), never assertions. Any thread.
#pragma once

namespace wp {

[[noreturn]] void assertion_failed(const char* expression, const char* file, int line) noexcept;

}  // namespace wp

#define WP_ASSERT(expression) \
  (static_cast<bool>(expression) ? void(0) : ::wp::assertion_failed(#expression, __FILE__, __LINE__))

// For kernels and inner loops: checked in debug builds only.
#ifdef NDEBUG
#define WP_DASSERT(expression) void(sizeof(static_cast<bool>(expression)))
#else
#define WP_DASSERT(expression) WP_ASSERT(expression)
#endif
