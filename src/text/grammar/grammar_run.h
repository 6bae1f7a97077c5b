// GrammarRun: where a text stands in a grammar, byte by byte. A configuration is the set of all ways to read what came
// so far, each a stack of states; stacks share their lower parts and configurations are kept once, so that a step that
// was taken before is one look-up. Bounded: forget() when full() says so. One owner, one thread.
//
// Promise: step() leads to a configuration only if some text behind it fulfils the grammar. Where the bound on
// ambiguity or on depth is met, ways are dropped and never added: what is accepted stays within the grammar.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "text/grammar/grammar.h"

namespace wp {

class GrammarRun {
 public:
  static constexpr int32_t kDead = -1;
  static constexpr int32_t kBottom = -1;  // Below the lowest frame: what called the grammar.
  struct Frame {
    int32_t state, parent;  // parent: the frame that goes on when this one's rule has ended.
    bool operator==(const Frame&) const = default;
  };

  explicit GrammarRun(const Grammar& grammar);

  // The configuration of one state whose rule was called by `parent`, or of the start.
  int32_t begin_at(int32_t state, int32_t parent);
  int32_t start() { return begin_at(grammar_->start(), kBottom); }
  int32_t step(int32_t configuration, uint8_t byte) {
    const auto byte_class = static_cast<size_t>(grammar_->class_of(byte));
    const int32_t known = next_[static_cast<size_t>(configuration) * classes_ + byte_class];
    return known != kUnknown ? known : find_step(configuration, byte_class);
  }
  bool ends(int32_t configuration) const { return configurations_[static_cast<size_t>(configuration)].ends; }
  std::span<const int32_t> frames(int32_t configuration) const {
    const Configuration& one = configurations_[static_cast<size_t>(configuration)];
    return std::span(members_).subspan(static_cast<size_t>(one.begin), static_cast<size_t>(one.count));
  }
  const Frame& frame(int32_t index) const { return frames_[static_cast<size_t>(index)]; }
  // The configuration after the frame's rule has ended: kDead below the lowest.
  int32_t after(int32_t parent) {
    return parent == kBottom ? kDead : begin_at(frame(parent).state, frame(parent).parent);
  }

  bool full() const;  // Time for forget().
  // Drops everything but this configuration, whose new number is returned.
  int32_t forget(int32_t configuration);

 private:
  static constexpr int32_t kUnknown = -2;
  static constexpr size_t kFramesMax = 1 << 16, kConfigurationsMax = 1 << 14, kMembersMax = 1 << 18;
  static constexpr size_t kAmpleFactor = 4;  // Between two chances to forget().
  static constexpr int32_t kStackMax = 1024;
  static constexpr size_t kWaysMax = 256;  // Of one configuration.
  struct Configuration {
    int32_t begin, count;
    bool ends;
  };
  struct Index {  // Open addressing over numbers; grows.
    std::vector<int32_t> slots;
    size_t used = 0;
  };

  int32_t find_step(int32_t configuration, size_t byte_class);
  int32_t intern_frame(Frame frame);
  int32_t close();  // Of `open_`.
  int32_t intern_configuration(bool ends);
  int32_t copy_frame(const std::vector<Frame>& old, int32_t index, std::vector<int32_t>& moved);

  const Grammar* grammar_;
  size_t classes_;
  std::vector<Frame> frames_;
  std::vector<int32_t> depths_;  // Of each frame's stack.
  Index frame_index_, configuration_index_;
  std::vector<Configuration> configurations_;
  std::vector<int32_t> members_, next_;
  std::vector<Frame> open_;
  std::vector<int32_t> closed_;
};

}  // namespace wp
