// Any bytes through the output parser, whole, in pieces and byte by byte: the same must come out, and arguments of
// complete calls must be JSON objects.
#include <cstddef>
#include <cstdint>

#include "core/assert.h"
#include "serve/output_parser.h"

namespace {

using namespace wp;

struct Joined {
  std::string reasoning, content;
  std::vector<std::string> calls;  // Name and arguments of complete ones.
  bool operator==(const Joined&) const = default;
};

Joined join(std::string_view text, size_t piece_bytes, const OutputRules& rules, bool complete) {
  static const Json tools = Json::parse(R"([{"type":"function","function":{"name":"f","parameters":{"properties":{
    "n":{"type":"integer"},"s":{"type":"string"}}}}}])");
  const ToolSchemas schemas(tools);
  OutputParser parser(rules, schemas);
  std::vector<OutputPiece> out;
  for (size_t at = 0; at < text.size(); at += piece_bytes) parser.push(text.substr(at, piece_bytes), &out);
  parser.finish(complete, &out);
  Joined joined;
  std::vector<std::string> open;
  for (const OutputPiece& piece : out) {
    switch (piece.kind) {
      case OutputPiece::Kind::reasoning: joined.reasoning += piece.text; break;
      case OutputPiece::Kind::content: joined.content += piece.text; break;
      case OutputPiece::Kind::call_begin: open.push_back(piece.text + "\n"); break;
      case OutputPiece::Kind::call_arguments: open.at(static_cast<size_t>(piece.call)) += piece.text; break;
      case OutputPiece::Kind::call_end: joined.calls.push_back(open.at(static_cast<size_t>(piece.call))); break;
    }
  }
  return joined;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > 4096) return 0;
  OutputRules rules;
  rules.start = static_cast<OutputRules::Start>(data[0] % 3);
  rules.tools = data[0] & 8;
  rules.call_in_thinking = data[0] & 16;
  const bool complete = data[0] & 32;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Joined whole = join(text, text.size(), rules, complete);
  WP_ASSERT(join(text, 1, rules, complete) == whole);
  WP_ASSERT(join(text, 1 + data[1] % 17, rules, complete) == whole);
  if (find_invalid_utf8(text) >= 0) return 0;
  for (const std::string& call : whole.calls) {
    const auto arguments = parse_json(std::string_view(call).substr(call.find('\n') + 1));
    WP_ASSERT(arguments.ok() && arguments->is_object());
  }
  return 0;
}
