#include "text/grammar/grammar_run.h"

#include <algorithm>

#include "core/rng.h"

namespace wp {
namespace {

// The place of an entry, or the free one where it belongs. `same(number)` compares.
template <class Same>
size_t find_slot(const std::vector<int32_t>& slots, uint64_t hash, const Same& same) {
  const size_t mask = slots.size() - 1;
  for (size_t at = hash & mask;; at = (at + 1) & mask)
    if (slots[at] < 0 || same(slots[at])) return at;
}

template <class HashOf>
void grow(std::vector<int32_t>& slots, const HashOf& hash_of) {
  const std::vector<int32_t> old = std::move(slots);
  slots.assign(old.size() * 2, -1);
  for (const int32_t number : old)
    if (number >= 0) slots[find_slot(slots, hash_of(number), [](int32_t) { return false; })] = number;
}

uint64_t hash_frame(const GrammarRun::Frame& frame) {
  return splitmix64(static_cast<uint64_t>(static_cast<uint32_t>(frame.state)) << 32 |
                    static_cast<uint32_t>(frame.parent));
}

uint64_t hash_members(std::span<const int32_t> members, bool ends) {
  uint64_t hash = ends ? 1 : 2;
  for (const int32_t member : members) hash = splitmix64(hash ^ static_cast<uint32_t>(member));
  return hash;
}

}  // namespace

GrammarRun::GrammarRun(const Grammar& grammar) : grammar_(&grammar), classes_(static_cast<size_t>(grammar.classes())) {
  frame_index_.slots.assign(1024, -1);
  configuration_index_.slots.assign(1024, -1);
}

int32_t GrammarRun::intern_frame(Frame frame) {
  auto& [slots, used] = frame_index_;
  const size_t at =
      find_slot(slots, hash_frame(frame), [&](int32_t i) { return frames_[static_cast<size_t>(i)] == frame; });
  if (slots[at] >= 0) return slots[at];
  const auto number = static_cast<int32_t>(frames_.size());
  frames_.push_back(frame);
  depths_.push_back(frame.parent == kBottom ? 1 : depths_[static_cast<size_t>(frame.parent)] + 1);
  slots[at] = number;
  if (++used * 2 > slots.size()) grow(slots, [&](int32_t i) { return hash_frame(frames_[static_cast<size_t>(i)]); });
  return number;
}

int32_t GrammarRun::begin_at(int32_t state, int32_t parent) {
  open_.assign(1, {state, parent});
  return close();
}

int32_t GrammarRun::find_step(int32_t configuration, size_t byte_class) {
  if (configurations_.size() > kAmpleFactor * kConfigurationsMax) return kDead;  // Inside one walk of a vocabulary.
  open_.clear();
  for (const int32_t member : frames(configuration)) {
    const Frame at = frame(member);
    const int32_t to = grammar_->next_class(at.state, static_cast<int32_t>(byte_class));
    if (to != Grammar::kNone) open_.push_back({to, at.parent});
  }
  const int32_t found = close();
  next_[static_cast<size_t>(configuration) * classes_ + byte_class] = found;
  return found;
}

// Follows ends and calls from the frames in `open_`, until each frame left reads a byte. Left recursion was refused by
// the compiler, so that this ends.
int32_t GrammarRun::close() {
  bool ends = false;
  closed_.clear();
  for (size_t i = 0; i < open_.size() && open_.size() < 8 * kWaysMax; ++i) {
    const Frame at = open_[i];
    const auto add = [&](Frame frame) {
      if (std::find(open_.begin(), open_.end(), frame) == open_.end()) open_.push_back(frame);
    };
    if (grammar_->ends(at.state)) {
      if (at.parent == kBottom) ends = true;
      else add(frame(at.parent));
    }
    const bool deep = at.parent != kBottom && depths_[static_cast<size_t>(at.parent)] >= kStackMax;
    for (const Grammar::Call& call : deep ? std::span<const Grammar::Call>() : grammar_->calls(at.state))
      add({call.begin, call.last ? at.parent : intern_frame({call.back, at.parent})});
    if (grammar_->reads(at.state) && closed_.size() < kWaysMax) closed_.push_back(intern_frame(at));
  }
  if (closed_.empty() && !ends) return kDead;
  std::sort(closed_.begin(), closed_.end());
  closed_.erase(std::unique(closed_.begin(), closed_.end()), closed_.end());
  return intern_configuration(ends);
}

int32_t GrammarRun::intern_configuration(bool ends) {
  auto& [slots, used] = configuration_index_;
  const auto same = [&](int32_t i) {
    const auto members = frames(i);
    return this->ends(i) == ends && std::equal(members.begin(), members.end(), closed_.begin(), closed_.end());
  };
  const size_t at = find_slot(slots, hash_members(closed_, ends), same);
  if (slots[at] >= 0) return slots[at];
  const auto number = static_cast<int32_t>(configurations_.size());
  configurations_.push_back({static_cast<int32_t>(members_.size()), static_cast<int32_t>(closed_.size()), ends});
  members_.insert(members_.end(), closed_.begin(), closed_.end());
  next_.resize(next_.size() + classes_, kUnknown);
  slots[at] = number;
  if (++used * 2 > slots.size()) grow(slots, [&](int32_t i) { return hash_members(frames(i), this->ends(i)); });
  return number;
}

bool GrammarRun::full() const {
  return frames_.size() > kFramesMax || configurations_.size() > kConfigurationsMax || members_.size() > kMembersMax;
}

int32_t GrammarRun::copy_frame(const std::vector<Frame>& old, int32_t index, std::vector<int32_t>& moved) {
  // From the bottom up: a parent is always older than its child.
  std::vector<int32_t> chain;
  for (int32_t at = index; at != kBottom && moved[static_cast<size_t>(at)] < 0;
       at = old[static_cast<size_t>(at)].parent)
    chain.push_back(at);
  for (size_t i = chain.size(); i-- > 0;) {
    const Frame& frame = old[static_cast<size_t>(chain[i])];
    const int32_t parent = frame.parent == kBottom ? kBottom : moved[static_cast<size_t>(frame.parent)];
    moved[static_cast<size_t>(chain[i])] = intern_frame({frame.state, parent});
  }
  return moved[static_cast<size_t>(index)];
}

int32_t GrammarRun::forget(int32_t configuration) {
  const std::vector<Frame> old = std::move(frames_);
  const std::span<const int32_t> kept = frames(configuration);
  const std::vector<int32_t> members(kept.begin(), kept.end());
  const bool ended = ends(configuration);
  frames_.clear();
  depths_.clear();
  configurations_.clear();
  members_.clear();
  next_.clear();
  frame_index_.slots.assign(1024, -1);
  configuration_index_.slots.assign(1024, -1);
  frame_index_.used = configuration_index_.used = 0;
  std::vector<int32_t> moved(old.size(), -1);
  closed_.clear();
  for (const int32_t member : members) closed_.push_back(copy_frame(old, member, moved));
  std::sort(closed_.begin(), closed_.end());
  return intern_configuration(ended);
}

}  // namespace wp
