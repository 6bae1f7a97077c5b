#include "serve/response_store.h"

#include <algorithm>

namespace wp {
namespace {

constexpr int64_t kEntryBytes = 512;                             // Of maps and lists, for one response or one turn.
constexpr int64_t kSecondsMax = int64_t{100} * 365 * 24 * 3600;  // Of nanoseconds in 64 bits, a third.
constexpr int64_t kItemBytes = 192;                              // For one item's name.

int64_t bytes_of(const std::string& text) { return static_cast<int64_t>(text.size()); }

}  // namespace

ResponseTurn::ResponseTurn(std::string input, std::string output, Ptr previous, Bytes live_bytes)
    : input_(std::move(input)),
      output_(std::move(output)),
      previous_(std::move(previous)),
      size_bytes_(kEntryBytes + bytes_of(input_) + bytes_of(output_)),
      live_bytes_(std::move(live_bytes)) {
  *live_bytes_ += size_bytes_;
}

ResponseTurn::~ResponseTurn() {
  *live_bytes_ -= size_bytes_;
  // One after the other: else each turn's end would end the one before it inside its own.
  thread_local std::vector<Ptr>* ending = nullptr;
  if (ending) {
    ending->push_back(std::move(previous_));
    return;
  }
  std::vector<Ptr> turns;
  ending = &turns;
  turns.push_back(std::move(previous_));
  while (!turns.empty()) {
    const Ptr one = std::move(turns.back());
    turns.pop_back();
  }
  ending = nullptr;
}

std::vector<ResponseTurn::Ptr> ResponseTurn::path(const Ptr& self) const {
  std::vector<Ptr> turns;
  for (Ptr at = self; at; at = at->previous_) turns.push_back(at);
  std::reverse(turns.begin(), turns.end());
  return turns;
}

ResponseStore::ResponseStore(const ResponseStoreLimits& limits, Clock& clock)
    : limits_(limits), clock_(&clock), bytes_(std::make_shared<std::atomic<int64_t>>(0)) {
  limits_.seconds_max = std::min(limits_.seconds_max, kSecondsMax);
}

bool ResponseStore::put(std::string_view domain, Entry entry) {
  if (limits_.bytes_max <= 0) return false;
  const std::lock_guard lock(mutex_);
  drop_expired();
  Stored made;
  made.domain = domain;
  made.body = std::move(entry.body);
  made.item_ids = std::move(entry.item_ids);
  made.size_bytes = kEntryBytes + bytes_of(made.body);
  for (const std::string& item : made.item_ids) made.size_bytes += kItemBytes + 2 * bytes_of(item);
  made.turn = ResponseTurn::Ptr(
      new ResponseTurn(std::move(entry.input), std::move(entry.output), std::move(entry.previous), bytes_));
  made.end_ns = clock_->now_ns() + limits_.seconds_max * 1'000'000'000;
  made.used = used_.insert(used_.end(), entry.id);
  made.made = made_.insert(made_.end(), entry.id);
  *bytes_ += made.size_bytes;
  for (const std::string& item : made.item_ids) by_item_[item] = entry.id;
  stored_.insert_or_assign(entry.id, std::move(made));
  // The turns that one behind them holds go with it: what is newest goes last.
  while (*bytes_ > limits_.bytes_max && !used_.empty()) drop(stored_.find(used_.front()));
  return stored_.count(entry.id) == 1;
}

std::optional<ResponseStore::Found> ResponseStore::find(std::string_view domain, std::string_view id) {
  const std::lock_guard lock(mutex_);
  drop_expired();
  return use(domain, std::string(id));
}

std::optional<ResponseStore::Found> ResponseStore::find_by_item(std::string_view domain, std::string_view item_id) {
  const std::lock_guard lock(mutex_);
  drop_expired();
  const auto found = by_item_.find(std::string(item_id));
  if (found == by_item_.end()) return std::nullopt;
  return use(domain, found->second);
}

bool ResponseStore::erase(std::string_view domain, std::string_view id) {
  const std::lock_guard lock(mutex_);
  drop_expired();
  const auto found = stored_.find(std::string(id));
  if (found == stored_.end() || found->second.domain != domain) return false;
  drop(found);
  return true;
}

size_t ResponseStore::count() const {
  const std::lock_guard lock(mutex_);
  return stored_.size();
}

std::optional<ResponseStore::Found> ResponseStore::use(std::string_view domain, const std::string& id) {
  const auto found = stored_.find(id);
  if (found == stored_.end() || found->second.domain != domain) return std::nullopt;
  used_.splice(used_.end(), used_, found->second.used);
  return Found{found->second.body, found->second.turn};
}

void ResponseStore::drop(Map::iterator at) {
  Stored& stored = at->second;
  *bytes_ -= stored.size_bytes;
  for (const std::string& item : stored.item_ids) by_item_.erase(item);
  used_.erase(stored.used);
  made_.erase(stored.made);
  stored_.erase(at);
}

void ResponseStore::drop_expired() {
  const int64_t now_ns = clock_->now_ns();
  while (!made_.empty()) {
    const auto oldest = stored_.find(made_.front());
    if (oldest->second.end_ns > now_ns) return;
    drop(oldest);
  }
}

}  // namespace wp
