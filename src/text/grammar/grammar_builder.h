// GrammarBuilder: a context-free grammar over bytes as its front ends (JSON schema, regular expression, GBNF) write it
// down: expressions of bytes, characters, sequences, choices, repetitions and calls of rules. compile() turns each rule
// into a deterministic automaton. All of it is bounded: what is too large is an error, and how much work that takes is
// counted, so that the same grammar is refused on every machine. One owner, one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "text/grammar/code_set.h"
#include "text/grammar/grammar.h"

namespace wp {

struct GrammarLimits {
  int64_t nodes_max = 1 << 18;      // Expressions written down.
  int32_t depth_max = 256;          // Of expressions inside each other, and of rules that begin with rules.
  int64_t positions_max = 1 << 18;  // Of all rules' expressions, repetitions written out.
  int64_t work_max = 20'000'000;    // Steps of making the automata; half a second.
  int64_t table_bytes_max = 32 << 20;
};

class GrammarBuilder {
 public:
  using Node = int32_t;
  using Rule = int32_t;

  explicit GrammarBuilder(const GrammarLimits& limits = {}) : limits_(limits) {}

  Node empty() { return sequence({}); }
  Node literal(std::string_view bytes);
  Node characters(CodeSet set);  // One of them. An empty set matches nothing.
  Node any_byte();
  Node sequence(std::vector<Node> parts);
  Node choice(std::vector<Node> parts);
  Node repeat(Node part, int64_t low, int64_t high = kNoEnd);
  Node optional(Node part) { return repeat(part, 0, 1); }
  // Any bytes up to and with the first occurrence of `text`.
  Node until(std::string_view text);
  Node call(Rule rule);

  Rule declare(std::string name);  // The name is for messages.
  void define(Rule rule, Node node);
  Rule add(std::string name, Node node) {
    const Rule rule = declare(std::move(name));
    define(rule, node);
    return rule;
  }

  // Errors: too_long where a limit was met; bad_request for a rule without a definition, one that calls itself before
  // it has read anything, and a grammar that no text fulfils.
  Result<Grammar> compile(Rule root) const;

  bool too_large() const { return too_large_; }  // compile() will fail: a front end may stop.
  static constexpr int64_t kNoEnd = -1;

 private:
  friend class GrammarCompiler;
  enum class Kind : uint8_t { literal, characters, any_byte, sequence, choice, repeat, until, call };
  struct Expression {
    Kind kind = Kind::sequence;
    std::string text;           // literal, until.
    CodeSet set;                // characters
    std::vector<Node> parts;    // sequence, choice, repeat.
    int64_t low = 0, high = 0;  // repeat; call: low is the rule.
    int32_t depth = 1;
  };
  Node put(Expression expression);

  GrammarLimits limits_;
  std::vector<Expression> nodes_;
  struct Named {
    std::string name;
    Node node = -1;
  };
  std::vector<Named> rules_;
  bool too_large_ = false;
};

}  // namespace wp
