#include "cache/conversations.h"

#include "core/hash.h"

namespace wp {

size_t Conversations::KeyHash::operator()(const Key& key) const { return hash_text(key.label, key.domain); }

const Conversation* Conversations::find(uint64_t domain, std::string_view label) const {
  if (label.empty()) return nullptr;
  const auto found = by_label_.find(Key{domain, label.substr(0, kLabelBytesMax)});
  return found == by_label_.end() ? nullptr : &*found->second;
}

Conversation* Conversations::find(ConversationId id) {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &*found->second;
}

const Conversation* Conversations::find(ConversationId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &*found->second;
}

ConversationId Conversations::see(uint64_t domain, std::string_view label) {
  if (label.empty() || max_ == 0) return kNoConversation;
  label = label.substr(0, kLabelBytesMax);
  if (const auto found = by_label_.find(Key{domain, label}); found != by_label_.end()) {
    by_recency_.splice(by_recency_.begin(), by_recency_, found->second);
    return found->second->id;
  }
  if (by_recency_.size() == max_) {
    const Entry oldest = std::prev(by_recency_.end());
    by_label_.erase(Key{oldest->domain, oldest->label});
    by_id_.erase(oldest->id);
    by_recency_.pop_back();
  }
  by_recency_.push_front({.id = ++newest_id_, .domain = domain, .label = std::string(label)});
  const Entry entry = by_recency_.begin();
  by_label_.emplace(Key{domain, entry->label}, entry);
  by_id_.emplace(entry->id, entry);
  return entry->id;
}

void Conversations::forget_tail(ConversationId id, AnchorId anchor) {
  if (Conversation* conversation = find(id); conversation && conversation->tail == anchor)
    conversation->tail = kNoAnchor;
}

void Conversations::clear() {
  by_label_.clear();
  by_id_.clear();
  by_recency_.clear();
}

}  // namespace wp
