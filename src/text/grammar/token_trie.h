// TokenTrie: the bytes of a vocabulary's tokens as a tree, nodes in preorder, so that all tokens which begin alike are
// judged at once and a branch is left by one jump. Built once for a vocabulary, const, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace wp {

class TokenTrie {
 public:
  // Bytes of each id; an empty one is no token that a grammar may use.
  explicit TokenTrie(std::span<const std::string_view> bytes_of_id);

  struct Node {
    int32_t end;           // First node that is not below this one.
    int32_t tokens_begin;  // In tokens(): those whose bytes end here; up to the next node's.
    uint16_t depth;        // 1: first byte.
    uint8_t byte;
  };
  int32_t nodes() const { return static_cast<int32_t>(nodes_.size()) - 1; }
  const Node& node(int32_t index) const { return nodes_[static_cast<size_t>(index)]; }
  std::span<const int32_t> tokens(int32_t index) const {
    const auto begin = static_cast<size_t>(node(index).tokens_begin);
    return std::span(tokens_).subspan(begin, static_cast<size_t>(node(index + 1).tokens_begin) - begin);
  }
  int32_t depth_max() const { return depth_max_; }
  int32_t vocabulary() const { return static_cast<int32_t>(offsets_.size()) - 1; }
  std::string_view bytes(int32_t token) const {
    const auto at = static_cast<size_t>(token);
    return std::string_view(bytes_).substr(offsets_[at], offsets_[at + 1] - offsets_[at]);
  }

 private:
  std::vector<Node> nodes_;  // And one behind the last.
  std::vector<int32_t> tokens_;
  std::string bytes_;
  std::vector<size_t> offsets_;
  int32_t depth_max_ = 0;
};

}  // namespace wp
