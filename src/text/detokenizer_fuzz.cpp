// A stream of tokens gives what the whole text gives at once, whole characters at a time. The input's lines: stop
// strings up to an empty line, then the bytes that the tokens spell.
#include <cstdint>

#include "core/assert.h"
#include "testing/seeds.h"
#include "text/detokenizer.h"
#include "text/utf8.h"

namespace {

const wp::Tokenizer& tokenizer() {
  static const wp::Tokenizer loaded = [] {
    auto result = wp::Tokenizer::load(wp::testing::source_directory() + "/models/flash-next-mini");
    WP_ASSERT(result.ok());
    return std::move(result).value();
  }();
  return loaded;
}

std::string replaced(std::string_view bytes) {
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    const wp::Utf8Step step = wp::utf8_step(bytes, at);
    if (step.kind == wp::Utf8Kind::valid) out += bytes.substr(at, step.length);
    else out += wp::kReplacementCharacter;
    at += step.length;
  }
  return out;
}

// Up to the stop that is complete first, the longest of those that end there.
std::string cut_at_stop(const std::string& text, const std::vector<std::string>& stops) {
  size_t first_end = std::string::npos, length = 0;
  for (const std::string& stop : stops) {
    if (stop.empty() || wp::utf8_valid_until(stop, 0) != stop.size()) continue;
    const size_t found = text.find(stop);
    if (found == std::string::npos || found + stop.size() > first_end) continue;
    if (found + stop.size() < first_end) length = 0;
    first_end = found + stop.size();
    length = std::max(length, stop.size());
  }
  return first_end == std::string::npos ? text : text.substr(0, first_end - length);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> stops;
  for (size_t end = rest.find('\n'); end != std::string_view::npos && stops.size() < 8; end = rest.find('\n')) {
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    if (line.empty()) break;
    stops.emplace_back(line);
  }
  const auto tokens = tokenizer().encode_plain(rest);
  wp::Detokenizer detokenizer(tokenizer(), stops);
  std::string text;
  for (const wp::TokenId token : tokens) {
    const std::string piece = detokenizer.push(token);
    WP_ASSERT(wp::utf8_valid_until(piece, 0) == piece.size());
    text += piece;
  }
  text += detokenizer.finish();
  WP_ASSERT(text == cut_at_stop(replaced(tokenizer().decode(tokens)), stops));
  return 0;
}
