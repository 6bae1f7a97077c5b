// Where the time of a pass goes: each operation of each part of the model, its time on the device, its work and what
// share of the machine's ceilings that is; and, on any machine, what a pass would launch and copy. One thread.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "device/device.h"
#include "model/model.h"

namespace wp::measure {

struct Ceilings {
  double flops = 0;  // Per second; 0: not known.
  double bytes = 0;  // Per second, read plus written.
};

// Bytes per second that a copy inside the device's memory moves, read and written.
Result<double> measure_device_copy(Device& device);

struct ProfileOptions {
  int64_t prompt = 2048;  // Tokens of the prefill; decode follows them.
  int64_t steps = 8;      // Decode steps, recorded and then again as they run in earnest.
  int64_t pass_tokens = 512;
};

struct ProfileRow {
  std::string place, op;
  int64_t calls = 0;
  double seconds = 0, flops = 0, bytes = 0;
};

// Means over what was recorded: a whole prefill, or one decode step.
struct ProfilePhase {
  std::string name;  // "prefill 2048", "decode @ 2048"
  double rows = 0;
  double operations_seconds = 0;       // Sum over the rows.
  double span_seconds = 0;             // From the first launch's begin to the last one's end, recorded.
  double plain_seconds = 0;            // The same by the clock, not recorded (decode: as a graph where there is one).
  std::vector<ProfileRow> operations;  // Longest first.
};

Result<std::vector<ProfilePhase>> run_profile(const Model& model, Device& device, const ProfileOptions& options);
std::string profile_table(const std::vector<ProfilePhase>& phases, const Ceilings& ceilings);
Json profile_json(const std::vector<ProfilePhase>& phases, const Ceilings& ceilings);

// Lines "PHASE PLACE OP COUNT", in the order of first launches, of a prefill pass of `rows` rows and of a decode step
// of one, on a GPU that is not there. `model` was loaded on ref.
Result<std::string> launch_list(const Model& model, int64_t rows);

}  // namespace wp::measure
