// Any bytes as a record's header, and any header with some of its bytes changed: refused with one line, or what is
// parsed can be. A header that was made is parsed back; the same with one bit turned never is.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/hash.h"
#include "store/record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wp;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto any = parse_header(bytes);
  if (any.ok()) {
    WP_ASSERT(any->end > 0 && any->end % kPageTokens == 0 && any->payload_bytes >= 0);
  } else {
    WP_ASSERT(any.error().code == ErrorCode::bad_file && any.error().message.find('\n') == std::string::npos);
  }

  const uint64_t choice = hash_bytes(data, size);
  std::array<TokenId, kPageTokens> tokens{};
  std::memcpy(tokens.data(), data, std::min(size, sizeof tokens));
  const auto kind = choice % 2 ? PartKind::page : PartKind::anchor;
  const auto end = static_cast<int64_t>(choice % 4096 + 1) * kPageTokens;
  const RecordHeader made = make_header(kind, {choice, ~choice}, choice >> 3, choice >> 5, end, tokens,
                                        static_cast<CaptureClass>(choice % 6), bytes);
  std::array<std::byte, sizeof made> written;
  std::memcpy(written.data(), &made, sizeof made);
  const auto read = parse_header(written);
  WP_ASSERT(read.ok() && read->key == made.key && read->end == end && read->payload_hash == choice);
  const size_t bit = (choice >> 7) % (sizeof made * 8);
  written[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  WP_ASSERT(!parse_header(written).ok());
  return 0;
}
