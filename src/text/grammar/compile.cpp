// From expressions to automata: each rule's expression becomes a nondeterministic automaton (Thompson), that one a
// deterministic one (subsets); what can never end is cut off; rules that begin with themselves are refused.
#include <algorithm>
#include <map>

#include "text/grammar/grammar_builder.h"

namespace wp {
namespace {

struct ByteEdge {
  uint8_t low, high;
  int32_t to;
};
struct CallEdge {
  int32_t rule, to;
};
struct Position {
  std::vector<int32_t> free;  // Without reading.
  std::vector<ByteEdge> bytes;
  std::vector<CallEdge> calls;
};

// The automaton of one rule, and where its states begin among all.
struct RuleAutomaton {
  std::vector<Position> positions;
  int32_t begin = 0, end = 0;              // Positions.
  std::vector<std::vector<int32_t>> next;  // Of each state, by class; -1: none.
  std::vector<std::vector<CallEdge>> calls;
  std::vector<bool> ends, live;
  int32_t first_state = 0;
  bool nullable = false, productive = false;
};

}  // namespace

class GrammarCompiler {
 public:
  explicit GrammarCompiler(const GrammarBuilder& builder) : builder_(builder), limits_(builder.limits_) {}

  Result<Grammar> compile(GrammarBuilder::Rule root) {
    if (builder_.too_large_)
      return Error{ErrorCode::too_long, cat("grammar: expected at most ", limits_.nodes_max, " expressions, ",
                                            limits_.depth_max, " deep, found more")};
    WP_TRY(lay_out(root));
    find_classes();
    for (RuleAutomaton& rule : rules_) WP_TRY(determine(rule));
    prune();
    if (!rules_[0].productive) return Error{ErrorCode::bad_request, "grammar: expected one that some text fulfils"};
    WP_TRY(check_left_calls());
    return emit();
  }

 private:
  using Kind = GrammarBuilder::Kind;

  Error too_large(std::string_view what, int64_t most) const {
    return {ErrorCode::too_long, cat("grammar: expected at most ", most, " ", what, ", found more")};
  }

  bool work(int64_t amount) { return (work_ += amount) <= limits_.work_max; }

  // Positions of the root and of every rule that is called from it, in order of discovery.
  Result<void> lay_out(GrammarBuilder::Rule root) {
    index_of_.assign(builder_.rules_.size(), -1);
    discover(root);
    for (size_t i = 0; i < order_.size(); ++i) {
      const auto& named = builder_.rules_[static_cast<size_t>(order_[i])];
      if (named.node < 0)
        return Error{ErrorCode::bad_request, cat("grammar: expected a definition of ", named.name, ", found none")};
      rules_.emplace_back();
      RuleAutomaton& rule = rules_.back();
      rule.begin = add(rule);
      rule.end = expand(rule, named.node, rule.begin);
      if (rule.end < 0) return too_large("positions", limits_.positions_max);
    }
    return {};
  }

  int32_t discover(GrammarBuilder::Rule rule) {
    int32_t& index = index_of_[static_cast<size_t>(rule)];
    if (index < 0) {
      index = static_cast<int32_t>(order_.size());
      order_.push_back(rule);
    }
    return index;
  }

  int32_t add(RuleAutomaton& rule) {
    ++positions_;
    rule.positions.emplace_back();
    return static_cast<int32_t>(rule.positions.size()) - 1;
  }

  static Position& at(RuleAutomaton& rule, int32_t position) { return rule.positions[static_cast<size_t>(position)]; }

  // Appends the expression behind `from`; where it ends, or -1 when it is too large.
  int32_t expand(RuleAutomaton& rule, GrammarBuilder::Node node, int32_t from) {
    // Parts that read nothing add no position, and are counted all the same.
    if (positions_ >= limits_.positions_max || ++expanded_ > 4 * limits_.positions_max) return -1;
    const auto& expression = builder_.nodes_[static_cast<size_t>(node)];
    switch (expression.kind) {
      case Kind::literal:
        for (const char c : expression.text) {
          const auto byte = static_cast<uint8_t>(c);
          from = read(rule, from, byte, byte);
        }
        return from;
      case Kind::any_byte: return read(rule, from, 0, 255);
      case Kind::characters: return expand_characters(rule, expression.set, from);
      case Kind::until: return expand_until(rule, expression.text, from);
      case Kind::call: {
        const int32_t to = add(rule);
        at(rule, from).calls.push_back({discover(static_cast<GrammarBuilder::Rule>(expression.low)), to});
        return to;
      }
      case Kind::sequence:
        for (const GrammarBuilder::Node part : expression.parts)
          if ((from = expand(rule, part, from)) < 0) return -1;
        return from;
      case Kind::choice: {
        const int32_t to = add(rule);
        for (const GrammarBuilder::Node part : expression.parts) {
          const int32_t begin = add(rule);
          at(rule, from).free.push_back(begin);
          const int32_t end = expand(rule, part, begin);
          if (end < 0) return -1;
          at(rule, end).free.push_back(to);
        }
        return to;
      }
      case Kind::repeat: return expand_repeat(rule, expression.parts[0], expression.low, expression.high, from);
    }
    return -1;
  }

  int32_t read(RuleAutomaton& rule, int32_t from, uint8_t low, uint8_t high) {
    const int32_t to = add(rule);
    at(rule, from).bytes.push_back({low, high, to});
    return to;
  }

  int32_t expand_characters(RuleAutomaton& rule, const CodeSet& set, int32_t from) {
    const int32_t to = add(rule);
    for (const ByteSequence& sequence : utf8_sequences(set)) {
      int32_t before = from;
      for (int i = 0; i + 1 < sequence.count; ++i)
        before = read(rule, before, sequence.ranges[i].first, sequence.ranges[i].second);
      const auto last = sequence.ranges[sequence.count - 1];
      at(rule, before).bytes.push_back({last.first, last.second, to});
    }
    return to;
  }

  // Position k: the last k bytes are the first k of `text`, and no more.
  int32_t expand_until(RuleAutomaton& rule, const std::string& text, int32_t from) {
    std::vector<int32_t> matched = {add(rule)};
    at(rule, from).free.push_back(matched[0]);
    for (size_t k = 0; k < text.size(); ++k) matched.push_back(add(rule));
    for (size_t k = 0; k < text.size(); ++k) {
      for (int byte = 0; byte < 256; ++byte) {
        const std::string seen = text.substr(0, k) + static_cast<char>(byte);
        size_t length = std::min(seen.size(), text.size());
        while (seen.compare(seen.size() - length, length, text, 0, length) != 0) --length;
        const auto at_byte = static_cast<uint8_t>(byte);
        at(rule, matched[k]).bytes.push_back({at_byte, at_byte, matched[length]});
      }
    }
    return matched.back();
  }

  int32_t expand_repeat(RuleAutomaton& rule, GrammarBuilder::Node part, int64_t low, int64_t high, int32_t from) {
    for (int64_t i = 0; i < low; ++i)
      if ((from = expand(rule, part, from)) < 0) return -1;
    const int32_t to = add(rule);
    if (high == GrammarBuilder::kNoEnd) {
      const int32_t loop = add(rule);
      at(rule, from).free.push_back(loop);
      at(rule, loop).free.push_back(to);
      const int32_t end = expand(rule, part, loop);
      if (end < 0) return -1;
      at(rule, end).free.push_back(loop);
      return to;
    }
    for (int64_t i = low; i < high; ++i) {
      at(rule, from).free.push_back(to);
      const int32_t begin = add(rule);  // So that no part's own loop leads back to the way out.
      at(rule, from).free.push_back(begin);
      if ((from = expand(rule, part, begin)) < 0) return -1;
    }
    at(rule, from).free.push_back(to);
    return to;
  }

  // Bytes between two neighbouring borders of edges are alike.
  void find_classes() {
    bool border[257] = {};
    for (const RuleAutomaton& rule : rules_)
      for (const Position& position : rule.positions)
        for (const ByteEdge& edge : position.bytes) border[edge.low] = border[edge.high + 1] = true;
    int byte_class = 0;
    for (int byte = 0; byte < 256; ++byte) {
      if (byte > 0 && border[byte]) ++byte_class;
      grammar_.classes_[byte] = static_cast<uint8_t>(byte_class);
    }
    grammar_.class_count_ = byte_class + 1;
  }

  // What is reached from `set` without reading, ascending. False when out of work.
  bool close(const RuleAutomaton& rule, std::vector<int32_t>& set) {
    seen_.resize(std::max(seen_.size(), rule.positions.size()), 0);
    ++stamp_;
    std::vector<int32_t> open = std::move(set);
    set.clear();
    for (const int32_t position : open) seen_[static_cast<size_t>(position)] = stamp_;
    while (!open.empty()) {
      const int32_t position = open.back();
      open.pop_back();
      set.push_back(position);
      const auto& free = rule.positions[static_cast<size_t>(position)].free;
      if (!work(1 + static_cast<int64_t>(free.size()))) return false;
      for (const int32_t to : free) {
        if (seen_[static_cast<size_t>(to)] == stamp_) continue;
        seen_[static_cast<size_t>(to)] = stamp_;
        open.push_back(to);
      }
    }
    std::sort(set.begin(), set.end());
    // Positions that only pass on tell states apart for nothing.
    std::erase_if(set, [&](int32_t position) {
      const Position& one = rule.positions[static_cast<size_t>(position)];
      return one.bytes.empty() && one.calls.empty() && position != rule.end;
    });
    return true;
  }

  using Subsets = std::map<std::vector<int32_t>, int32_t>;

  // The state of a set of positions; -1: none is left, -2: a limit.
  int32_t state_of(const RuleAutomaton& rule, std::vector<int32_t> set, Subsets& subsets,
                   std::vector<const std::vector<int32_t>*>& open) {
    std::sort(set.begin(), set.end());
    set.erase(std::unique(set.begin(), set.end()), set.end());
    if (!close(rule, set)) return -2;
    if (set.empty()) return -1;
    const auto [found, fresh] = subsets.try_emplace(std::move(set), static_cast<int32_t>(subsets.size()));
    if (fresh) {
      open.push_back(&found->first);
      table_bytes_ += static_cast<int64_t>(grammar_.class_count_) * 4 + 64;
      if (table_bytes_ > limits_.table_bytes_max) return -2;
    }
    return found->second;
  }

  Result<void> determine(RuleAutomaton& rule) {
    Subsets subsets;
    std::vector<const std::vector<int32_t>*> open;  // By number of state.
    const auto classes = static_cast<size_t>(grammar_.class_count_);
    if (state_of(rule, {rule.begin}, subsets, open) == -2) return too_large("steps of work", limits_.work_max);
    std::vector<std::vector<int32_t>> targets(classes);
    for (size_t state = 0; state < open.size(); ++state) {
      const std::vector<int32_t>& set = *open[state];
      for (auto& target : targets) target.clear();
      std::map<int32_t, std::vector<int32_t>> backs;
      for (const int32_t position : set) {
        const Position& one = rule.positions[static_cast<size_t>(position)];
        for (const ByteEdge& edge : one.bytes)
          for (int c = grammar_.classes_[edge.low]; c <= grammar_.classes_[edge.high]; ++c)
            targets[static_cast<size_t>(c)].push_back(edge.to);
        for (const CallEdge& edge : one.calls) backs[edge.rule].push_back(edge.to);
      }
      rule.ends.push_back(std::binary_search(set.begin(), set.end(), rule.end));
      rule.next.emplace_back(classes, -1);
      rule.calls.emplace_back();
      for (size_t c = 0; c < classes; ++c) {
        if (targets[c].empty()) continue;
        const bool as_before = c > 0 && targets[c] == targets[c - 1];
        const int32_t to = as_before ? rule.next[state][c - 1] : state_of(rule, targets[c], subsets, open);
        if (to == -2) return too_large("steps of work", limits_.work_max);
        rule.next[state][c] = to;
      }
      for (auto& [called, back] : backs) {
        const int32_t to = state_of(rule, std::move(back), subsets, open);
        if (to == -2) return too_large("steps of work", limits_.work_max);
        if (to >= 0) rule.calls[state].push_back({called, to});
      }
      if (!work(static_cast<int64_t>(classes))) return too_large("steps of work", limits_.work_max);
    }
    rule.positions = {};
    return {};
  }

  static bool becomes_live(const std::vector<RuleAutomaton>& rules, const RuleAutomaton& rule, size_t state) {
    if (rule.ends[state]) return true;
    for (const int32_t to : rule.next[state])
      if (to >= 0 && rule.live[static_cast<size_t>(to)]) return true;
    for (const CallEdge& call : rule.calls[state])
      if (rules[static_cast<size_t>(call.rule)].productive && rule.live[static_cast<size_t>(call.to)]) return true;
    return false;
  }

  // Marks states from which the rule can end, and cuts the ways to all others.
  void prune() {
    for (RuleAutomaton& rule : rules_) rule.live.assign(rule.next.size(), false);
    for (bool changed = true; changed;) {
      changed = false;
      for (RuleAutomaton& rule : rules_) {
        for (size_t state = rule.next.size(); state-- > 0;) {
          if (rule.live[state] || !becomes_live(rules_, rule, state)) continue;
          rule.live[state] = true;
          changed = true;
        }
        rule.productive = rule.live[0];
      }
    }
    for (RuleAutomaton& rule : rules_) {
      for (size_t state = 0; state < rule.next.size(); ++state) {
        for (int32_t& to : rule.next[state])
          if (to >= 0 && !rule.live[static_cast<size_t>(to)]) to = -1;
        std::erase_if(rule.calls[state], [&](const CallEdge& call) {
          return !rules_[static_cast<size_t>(call.rule)].productive || !rule.live[static_cast<size_t>(call.to)];
        });
      }
    }
  }

  // States of a rule that are reached before a byte was read.
  std::vector<int32_t> unread_states(const RuleAutomaton& rule) const {
    std::vector<int32_t> states = {0};
    for (size_t i = 0; i < states.size(); ++i)
      for (const CallEdge& call : rule.calls[static_cast<size_t>(states[i])])
        if (rules_[static_cast<size_t>(call.rule)].nullable &&
            std::find(states.begin(), states.end(), call.to) == states.end())
          states.push_back(call.to);
    return states;
  }

  Result<void> check_left_calls() {
    for (bool changed = true; changed;) {
      changed = false;
      for (RuleAutomaton& rule : rules_) {
        if (rule.nullable) continue;
        for (const int32_t state : unread_states(rule))
          rule.nullable = rule.nullable || rule.ends[static_cast<size_t>(state)];
        changed |= rule.nullable;
      }
    }
    std::vector<int32_t> depth(rules_.size(), 0);  // 0: not seen, -1: being seen.
    for (size_t rule = 0; rule < rules_.size(); ++rule) WP_TRY(check_left_calls_of(rule, depth, 1));
    return {};
  }

  Result<void> check_left_calls_of(size_t rule, std::vector<int32_t>& depth, int32_t above) {
    if (depth[rule] > 0) {
      if (above + depth[rule] > limits_.depth_max)
        return too_large("rules that begin with each other", limits_.depth_max);
      return {};
    }
    const std::string& name = builder_.rules_[static_cast<size_t>(order_[rule])].name;
    if (depth[rule] < 0)
      return Error{ErrorCode::bad_request, cat("grammar: ", name,
                                               ": expected to read something before it begins again, "
                                               "found left recursion")};
    if (above > limits_.depth_max) return too_large("rules that begin with each other", limits_.depth_max);
    depth[rule] = -1;
    int32_t below = 0;
    for (const int32_t state : unread_states(rules_[rule])) {
      for (const CallEdge& call : rules_[rule].calls[static_cast<size_t>(state)]) {
        WP_TRY(check_left_calls_of(static_cast<size_t>(call.rule), depth, above + 1));
        below = std::max(below, depth[static_cast<size_t>(call.rule)]);
      }
    }
    depth[rule] = below + 1;
    return {};
  }

  Grammar emit() {
    int32_t states = 0;
    for (RuleAutomaton& rule : rules_) {
      rule.first_state = states;
      states += static_cast<int32_t>(rule.next.size());
    }
    grammar_.states_.reserve(static_cast<size_t>(states));
    grammar_.next_.reserve(static_cast<size_t>(states) * static_cast<size_t>(grammar_.class_count_));
    for (const RuleAutomaton& rule : rules_) {
      for (size_t state = 0; state < rule.next.size(); ++state) {
        Grammar::State made{.calls_begin = static_cast<int32_t>(grammar_.calls_.size()), .ends = rule.ends[state]};
        for (const int32_t to : rule.next[state]) {
          made.reads |= to >= 0;
          grammar_.next_.push_back(to < 0 ? Grammar::kNone : rule.first_state + to);
        }
        for (const CallEdge& call : rule.calls[state]) {
          const auto back = static_cast<size_t>(call.to);
          const bool reads =
              std::any_of(rule.next[back].begin(), rule.next[back].end(), [](int32_t to) { return to >= 0; });
          grammar_.calls_.push_back({rules_[static_cast<size_t>(call.rule)].first_state, rule.first_state + call.to,
                                     rule.ends[back] && !reads && rule.calls[back].empty()});
        }
        made.calls_count = static_cast<int32_t>(grammar_.calls_.size()) - made.calls_begin;
        grammar_.states_.push_back(made);
      }
    }
    grammar_.start_ = rules_[0].first_state;
    return std::move(grammar_);
  }

  const GrammarBuilder& builder_;
  const GrammarLimits& limits_;
  std::vector<int32_t> index_of_;            // Of each builder's rule among `rules_`; -1: not called.
  std::vector<GrammarBuilder::Rule> order_;  // The other way.
  std::vector<RuleAutomaton> rules_;
  std::vector<uint64_t> seen_;
  uint64_t stamp_ = 0;
  int64_t positions_ = 0, expanded_ = 0, work_ = 0, table_bytes_ = 0;
  Grammar grammar_;
};

Result<Grammar> GrammarBuilder::compile(Rule root) const { return GrammarCompiler(*this).compile(root); }

}  // namespace wp
