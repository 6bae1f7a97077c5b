#include "text/grammar/grammar_builder.h"

#include <algorithm>

namespace wp {

GrammarBuilder::Node GrammarBuilder::put(Expression expression) {
  for (const Node part : expression.parts)
    expression.depth = std::max(expression.depth, nodes_[static_cast<size_t>(part)].depth + 1);
  too_large_ |= static_cast<int64_t>(nodes_.size()) >= limits_.nodes_max || expression.depth > limits_.depth_max;
  if (too_large_ && !nodes_.empty()) return 0;  // Whatever is built from here on is not compiled.
  nodes_.push_back(std::move(expression));
  return static_cast<Node>(nodes_.size()) - 1;
}

GrammarBuilder::Node GrammarBuilder::literal(std::string_view bytes) {
  return put({.kind = Kind::literal, .text = std::string(bytes)});
}

GrammarBuilder::Node GrammarBuilder::characters(CodeSet set) {
  return put({.kind = Kind::characters, .set = std::move(set)});
}

GrammarBuilder::Node GrammarBuilder::any_byte() { return put({.kind = Kind::any_byte}); }

GrammarBuilder::Node GrammarBuilder::sequence(std::vector<Node> parts) {
  if (parts.size() == 1) return parts[0];
  return put({.kind = Kind::sequence, .parts = std::move(parts)});
}

GrammarBuilder::Node GrammarBuilder::choice(std::vector<Node> parts) {
  if (parts.size() == 1) return parts[0];
  return put({.kind = Kind::choice, .parts = std::move(parts)});
}

GrammarBuilder::Node GrammarBuilder::repeat(Node part, int64_t low, int64_t high) {
  return put({.kind = Kind::repeat, .parts = {part}, .low = low, .high = high});
}

GrammarBuilder::Node GrammarBuilder::until(std::string_view text) {
  return put({.kind = Kind::until, .text = std::string(text)});
}

GrammarBuilder::Node GrammarBuilder::call(Rule rule) { return put({.kind = Kind::call, .low = rule}); }

GrammarBuilder::Rule GrammarBuilder::declare(std::string name) {
  rules_.push_back({std::move(name)});
  return static_cast<Rule>(rules_.size()) - 1;
}

void GrammarBuilder::define(Rule rule, Node node) { rules_[static_cast<size_t>(rule)].node = node; }

}  // namespace wp
