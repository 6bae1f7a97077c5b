#include "text/grammar/token_trie.h"

#include <algorithm>
#include <numeric>

namespace wp {
namespace {

constexpr size_t kTokenBytesMax = 1024;  // Longer tokens are never used under a grammar.

}  // namespace

TokenTrie::TokenTrie(std::span<const std::string_view> bytes_of_id) {
  offsets_.push_back(0);
  for (const std::string_view bytes : bytes_of_id) {
    if (bytes.size() <= kTokenBytesMax) bytes_ += bytes;
    offsets_.push_back(bytes_.size());
  }
  std::vector<int32_t> order(bytes_of_id.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int32_t token) { return bytes(token).empty(); });
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return bytes(a) < bytes(b); });
  std::vector<int32_t> path;  // Nodes of the token before.
  std::string_view before;
  const auto leave = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back())
      nodes_[static_cast<size_t>(path.back())].end = static_cast<int32_t>(nodes_.size());
  };
  for (const int32_t token : order) {
    const std::string_view text = bytes(token);
    const size_t shorter = std::min(text.size(), before.size());
    const auto same = static_cast<size_t>(
        std::mismatch(text.begin(), text.begin() + static_cast<ptrdiff_t>(shorter), before.begin()).first -
        text.begin());
    leave(same);
    for (size_t i = same; i < text.size(); ++i) {
      path.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({.end = 0,
                        .tokens_begin = static_cast<int32_t>(tokens_.size()),
                        .depth = static_cast<uint16_t>(i + 1),
                        .byte = static_cast<uint8_t>(text[i])});
    }
    tokens_.push_back(token);
    before = text;
    depth_max_ = std::max(depth_max_, static_cast<int32_t>(text.size()));
  }
  leave(0);
  nodes_.push_back({.end = static_cast<int32_t>(nodes_.size()) + 1,
                    .tokens_begin = static_cast<int32_t>(tokens_.size()),
                    .depth = 0,
                    .byte = 0});
}

}  // namespace wp
