#include "testing/bench.h"

namespace wp::testing {
namespace {

bool smoke_on = false;

}  // namespace

bool smoke() { return smoke_on; }
void set_smoke(bool on) { smoke_on = on; }

}  // namespace wp::testing
