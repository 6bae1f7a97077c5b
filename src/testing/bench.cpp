#include "testing/bench.h"

#include <cstdlib>

namespace wp::testing {
namespace {

bool smoke_on = false;

}  // namespace

bool smoke() { return smoke_on; }
void set_smoke(bool on) { smoke_on = on; }

bool read_number(std::string_view argument, std::string_view name, int64_t* to) {
  if (!argument.starts_with(name)) return false;
  *to = std::atoll(argument.data() + name.size());  // Arguments of main() end in a zero.
  return true;
}

}  // namespace wp::testing
