// Conversations: soft labels that group requests, and the newest anchor of each. Policy only: what is forgotten here
// costs a worse choice of victims, never a wrong answer. Bounded; the one not seen for the longest is forgotten first.
// Engine thread only.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>

#include "cache/prefix_cache.h"

namespace wp {

using ConversationId = uint64_t;  // Never used twice.
constexpr ConversationId kNoConversation = 0;
constexpr size_t kLabelBytesMax = 256;  // Longer labels are cut.

struct Conversation {
  ConversationId id;
  uint64_t domain;
  std::string label;
  AnchorId tail = kNoAnchor;  // The newest published one.
};

class Conversations {
 public:
  explicit Conversations(int32_t conversations_max) : max_(static_cast<size_t>(conversations_max)) {}

  // Null where unknown; pointers are good until the next see() or clear().
  const Conversation* find(uint64_t domain, std::string_view label) const;
  Conversation* find(ConversationId id);
  const Conversation* find(ConversationId id) const;
  // Known and most recently seen from now on; kNoConversation for an empty label.
  ConversationId see(uint64_t domain, std::string_view label);
  void forget_tail(ConversationId id, AnchorId anchor);  // It has been evicted.
  void clear();
  size_t size() const { return by_recency_.size(); }

  // Every conversation of that label, whatever its domain.
  template <class Visit>
  void for_each_labelled(std::string_view label, Visit visit) {
    label = label.substr(0, kLabelBytesMax);
    for (Conversation& conversation : by_recency_)
      if (conversation.label == label) visit(conversation);
  }

 private:
  struct Key {
    uint64_t domain;
    std::string_view label;  // Lies in the list's entry.
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  using Entry = std::list<Conversation>::iterator;

  size_t max_;
  std::list<Conversation> by_recency_;  // Newest first.
  std::unordered_map<Key, Entry, KeyHash> by_label_;
  std::unordered_map<ConversationId, Entry> by_id_;
  ConversationId newest_id_ = kNoConversation;
};

}  // namespace wp
