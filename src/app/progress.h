// ProgressBar: how far a long piece of work is: one line that redraws itself on a terminal, a plain line every five
// seconds otherwise. Writes to stderr. One thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "weights/checkpoint.h"

namespace wp::app {

class ProgressBar {
 public:
  // `event`: first word of the plain lines ("load", "replay").
  explicit ProgressBar(std::string event);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `detail`: what stands behind the bar; `line`: key=value pairs of the plain form.
  void show(double share, const std::string& detail, const std::string& line);
  void clear();  // Takes the bar off the terminal.

  // A sink for load_model: phase, file of files, bytes, rate, remaining.
  ProgressSink load_sink();

 private:
  std::string event_;
  bool terminal_;
  bool drawn_ = false;
  int64_t begin_ns_, shown_ns_ = 0;
};

}  // namespace wp::app
