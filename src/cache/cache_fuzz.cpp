// Any history of operations against the reference model, by contents and by invariants. The input's bytes are the first
// decisions; what follows is drawn from their hash, so that a short input too is a long history.
#include <cstdio>
#include <cstdlib>

#include "core/hash.h"
#include "testing/cache_machine.h"

namespace {

using namespace wp::testing;

constexpr int kInputsForAllMarks = 1000;

// Branches that no input of this run reached; asked at the end of a run that was long enough to reach them all.
struct Coverage {
  Marks marks{CacheMachine::mark_names()};
  int inputs = 0;
};

Coverage& coverage() {
  static Coverage coverage;
  return coverage;
}

void require_all_marks() {
  if (coverage().inputs < kInputsForAllMarks || coverage().marks.all_reached()) return;
  std::fprintf(stderr, "never reached: %s\n", coverage().marks.missing().c_str());
  std::_Exit(1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (coverage().inputs++ == 0) std::atexit(require_all_marks);
  CacheMachine machine(Chooser(wp::hash_bytes(data, size), {data, size}));
  for (size_t step = 0; step < 150 + size && machine.failure().empty(); ++step) machine.step();
  machine.finish();
  if (!machine.failure().empty()) {
    std::fprintf(stderr, "%s\n", machine.failure().c_str());
    std::abort();
  }
  for (const std::string& name : CacheMachine::mark_names())
    if (machine.marks().reached(name)) coverage().marks.reach(name);
  return 0;
}
