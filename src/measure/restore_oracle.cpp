#include <algorithm>

#include "measure/equality.h"

namespace wp::measure {
namespace {

constexpr int64_t kGrid = 64, kPromptMin = 256, kLadder = 8192;
constexpr size_t kCapturesMax = 3;

int64_t agreeing(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  const auto end = static_cast<ptrdiff_t>(std::min(a.size(), b.size()));
  return std::mismatch(a.begin(), a.begin() + end, b.begin()).first - a.begin();
}

}  // namespace

int64_t tail_of(int64_t prompt) { return (prompt - 1) / kGrid * kGrid; }

RestoreOracle::Point RestoreOracle::predict(const std::vector<TokenId>& prompt, int64_t system) const {
  Point point;
  const auto n = static_cast<int64_t>(prompt.size());
  int64_t match = 0;
  for (const auto& path : known_) {
    const auto end = static_cast<int64_t>(path.size());
    const int64_t agree = agreeing(path, prompt);
    match = std::max(match, agree / kGrid * kGrid);
    if (agree == end && end < n) point.resumes = std::max(point.resumes, end);
  }
  for (const auto& path : kept_) {
    const auto end = static_cast<int64_t>(path.size());
    if (end <= point.resumes || end >= n || agreeing(path, prompt) != end) continue;
    point.resumes = end;
    point.from_tier = true;
    match = std::max(match, end);  // The device has that path from now on.
  }
  if (n < kPromptMin) return point;

  // A branch: known tokens go on behind the match in another way, and no state is there.
  int64_t nearest = -1;
  for (const auto& path : known_) {
    const int64_t agree = agreeing(path, prompt);
    if (agree > 0 && agree >= match && static_cast<int64_t>(path.size()) > match) nearest = std::max(nearest, agree);
  }
  const bool branches = nearest >= 0 && nearest < n;

  const auto add = [&](int64_t position) {
    const bool known = std::find(point.captures.begin(), point.captures.end(), position) != point.captures.end();
    if (position > point.resumes && position < n && !known && point.captures.size() < kCapturesMax)
      point.captures.push_back(position);
  };
  add(tail_of(n));
  add(system);
  if (branches) add(match);
  int64_t deepest = 0;
  for (int64_t at = kLadder; at < n; at *= 2) deepest = at;
  for (; deepest >= kLadder; deepest /= 2) add(deepest);
  std::sort(point.captures.begin(), point.captures.end());
  return point;
}

void RestoreOracle::computed(const std::vector<TokenId>& prompt, const Point& point, int64_t position) {
  if (point.from_tier && point.resumes <= position) known_.emplace_back(prompt.begin(), prompt.begin() + point.resumes);
  for (const int64_t at : point.captures)
    if (at <= position) known_.emplace_back(prompt.begin(), prompt.begin() + at);
}

void RestoreOracle::evict(bool tier) {
  if (tier) kept_.insert(kept_.end(), known_.begin(), known_.end());
  else kept_.clear();
  known_.clear();
}

}  // namespace wp::measure
