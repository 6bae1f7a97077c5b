// Any bytes come back from encode and decode, up to NFC of the valid runs, and never hold an added token.
#include <cstdint>

#include "core/assert.h"
#include "testing/seeds.h"
#include "text/normalize.h"
#include "text/tokenizer.h"
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string kept, buffer;
  for (size_t at = 0; at < size;) {
    const size_t end = wp::utf8_valid_until(text, at);
    kept += wp::to_nfc(text.substr(at, end - at), buffer);
    for (at = end; at < size && wp::utf8_step(text, at).kind != wp::Utf8Kind::valid; ++at) kept += text[at];
  }
  const auto ids = tokenizer().encode_plain(text);
  WP_ASSERT(tokenizer().decode(ids) == kept);
  for (const wp::TokenId id : ids) WP_ASSERT(!tokenizer().is_added(id));
  tokenizer().encode_with_special(text);
  // The file reader, on what may be one: it refuses or accepts, and never falls over.
  if (size > 0 && data[0] == '{') {
    const auto parsed = wp::Tokenizer::parse(text);
    if (parsed.ok()) WP_ASSERT(parsed->decode(parsed->encode_plain("a\xFF")) == "a\xFF");
  }
  return 0;
}
