// ResponseStore: what POST /v1/responses answered, for as long as it may be asked for again or continued: bounded by
// bytes and by time, the least recently used goes first. A response is found under the key that made it and no other.
// Everything is kept as text, so that its size is known. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/clock.h"

namespace wp {

// One turn of a conversation: what it was given and what it said, behind the turns before it. Turns are shared: a
// conversation that forks keeps its beginning once, and a turn lives as long as one behind it may be continued.
class ResponseTurn {
 public:
  using Ptr = std::shared_ptr<const ResponseTurn>;

  ~ResponseTurn();
  ResponseTurn(const ResponseTurn&) = delete;
  ResponseTurn& operator=(const ResponseTurn&) = delete;

  const std::string& input() const { return input_; }    // JSON lists of items.
  const std::string& output() const { return output_; }  // Of this turn alone.
  std::vector<Ptr> path(const Ptr& self) const;          // From the first turn to this one.

 private:
  friend class ResponseStore;
  using Bytes = std::shared_ptr<std::atomic<int64_t>>;
  ResponseTurn(std::string input, std::string output, Ptr previous, Bytes live_bytes);

  std::string input_, output_;
  Ptr previous_;
  int64_t size_bytes_;
  Bytes live_bytes_;
};

struct ResponseStoreLimits {
  int64_t bytes_max = 64 << 20;     // 0: nothing is stored.
  int64_t seconds_max = 24 * 3600;  // From when it was made.
};

class ResponseStore {
 public:
  struct Entry {
    std::string id;
    std::string body;  // The response object, as it was answered.
    std::string input, output;
    std::vector<std::string> item_ids;  // Of the output.
    ResponseTurn::Ptr previous;         // Null: it begins a conversation.
  };
  struct Found {
    std::string body;
    ResponseTurn::Ptr turn;
  };

  // The clock outlives the store.
  ResponseStore(const ResponseStoreLimits& limits, Clock& clock);

  // False: it does not fit, with the turns before it.
  bool put(std::string_view domain, Entry entry);
  // Makes it the most recently used.
  std::optional<Found> find(std::string_view domain, std::string_view id);
  std::optional<Found> find_by_item(std::string_view domain, std::string_view item_id);
  // False: there is none. Turns behind it stay as they are.
  bool erase(std::string_view domain, std::string_view id);

  const ResponseStoreLimits& limits() const { return limits_; }
  int64_t size_bytes() const { return *bytes_; }
  size_t count() const;

 private:
  struct Stored {
    std::string domain, body;
    std::vector<std::string> item_ids;
    ResponseTurn::Ptr turn;
    int64_t size_bytes = 0;  // Without the turn's.
    int64_t end_ns = 0;
    std::list<std::string>::iterator used, made;  // Its places in the two orders.
  };
  using Map = std::unordered_map<std::string, Stored>;

  void drop(Map::iterator at);
  void drop_expired();
  std::optional<Found> use(std::string_view domain, const std::string& id);

  ResponseStoreLimits limits_;
  Clock* clock_;
  std::shared_ptr<std::atomic<int64_t>> bytes_;  // Of all that lives; outlives the store in the turns.
  mutable std::mutex mutex_;
  Map stored_;
  std::unordered_map<std::string, std::string> by_item_;  // Item to response.
  std::list<std::string> used_, made_;                    // Ids, the oldest first.
};

}  // namespace wp
