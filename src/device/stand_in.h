// StandIn: a kernel that a test puts in the place of an operation's own, to see that a comparison catches it. Attached
// to a Stream by tests alone; a stream without one pays a comparison for each launch.
#pragma once

#include <string_view>

namespace wp {

struct StandIn {
  std::string_view op;  // As the operation's table is named.
  void (*kernel)();     // In truth void (*)(Stream&, const Args&) of that table.
};

}  // namespace wp
