// Grammar: a compiled grammar: one deterministic automaton over bytes for each rule, whose states may also call rules.
// All rules' states are numbered together. Made by GrammarBuilder, const, any thread. Says nothing of tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace wp {

class Grammar {
 public:
  static constexpr int32_t kNone = -1;
  struct Call {
    int32_t begin;      // First state of the rule that is called.
    int32_t back;       // Where its caller goes on.
    bool last = false;  // The caller has ended at `back`: nothing need come back.
  };

  int32_t start() const { return start_; }
  int32_t states() const { return static_cast<int32_t>(states_.size()); }
  int32_t next(int32_t state, uint8_t byte) const { return next_class(state, classes_[byte]); }
  int32_t next_class(int32_t state, int32_t byte_class) const { return next_[index(state, byte_class)]; }
  bool ends(int32_t state) const { return states_[static_cast<size_t>(state)].ends; }
  bool reads(int32_t state) const { return states_[static_cast<size_t>(state)].reads; }  // Has a next for some byte.
  std::span<const Call> calls(int32_t state) const {
    const State& at = states_[static_cast<size_t>(state)];
    return std::span(calls_).subspan(static_cast<size_t>(at.calls_begin), static_cast<size_t>(at.calls_count));
  }
  int32_t class_of(uint8_t byte) const { return classes_[byte]; }
  int32_t classes() const { return class_count_; }

 private:
  friend class GrammarCompiler;
  struct State {
    int32_t calls_begin = 0, calls_count = 0;
    bool ends = false, reads = false;
  };
  size_t index(int32_t state, int32_t byte_class) const {
    return static_cast<size_t>(state) * static_cast<size_t>(class_count_) + static_cast<size_t>(byte_class);
  }

  uint8_t classes_[256] = {};  // Of each byte; bytes of one class are alike to every state.
  int32_t class_count_ = 1;
  int32_t start_ = 0;
  std::vector<State> states_;
  std::vector<int32_t> next_;  // [states, classes]
  std::vector<Call> calls_;
};

}  // namespace wp
