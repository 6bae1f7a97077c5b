// Any history of operations against the reference model, by contents and by invariants. The input's bytes are the first
// decisions; what follows is drawn from their hash, so that a short input too is a long history.
#include <cstdio>
#include <cstdlib>

#include "core/hash.h"
#include "testing/cache_machine.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wp::testing;
  CacheMachine machine(Chooser(wp::hash_bytes(data, size), {data, size}));
  for (size_t step = 0; step < 40 + size && machine.failure().empty(); ++step) machine.step();
  machine.finish();
  if (!machine.failure().empty()) {
    std::fprintf(stderr, "%s\n", machine.failure().c_str());
    std::abort();
  }
  return 0;
}
