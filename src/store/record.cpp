#include "store/record.h"

#include <algorithm>
#include <cstring>

#include "core/hash.h"

namespace wp {
namespace {

constexpr uint64_t kMagic = 0x3165727450735057;  // "WPsPtre1"
constexpr int64_t kPayloadBytesMax = int64_t{1} << 36;

uint64_t hash_of(const RecordHeader& header) { return hash_bytes(&header, offsetof(RecordHeader, header_hash)); }

}  // namespace

uint64_t node_key(uint64_t parent, uint64_t domain, std::span<const TokenId> page_tokens) {
  const uint64_t seed = hash_bytes(&domain, sizeof domain, parent);
  return hash_bytes(page_tokens.data(), page_tokens.size_bytes(), seed);
}

std::vector<uint64_t> path_keys(uint64_t root, uint64_t domain, std::span<const TokenId> tokens) {
  std::vector<uint64_t> keys{root};
  for (size_t begin = 0; begin + kPageTokens <= tokens.size(); begin += kPageTokens)
    keys.push_back(node_key(keys.back(), domain, tokens.subspan(begin, kPageTokens)));
  return keys;
}

RecordHeader describe_part(PartKind kind, const Origin& origin, uint64_t domain, uint64_t parent, int64_t end,
                           std::span<const TokenId> page_tokens, CaptureClass capture_class, int64_t payload_bytes) {
  WP_ASSERT(page_tokens.size() == kPageTokens);
  RecordHeader header{.magic = kMagic,
                      .version = kRecordVersion,
                      .kind = kind,
                      .origin = origin,
                      .domain = domain,
                      .key = node_key(parent, domain, page_tokens),
                      .parent = parent,
                      .end = end,
                      .capture_class = static_cast<uint32_t>(capture_class),
                      .unused = 0,
                      .payload_bytes = payload_bytes,
                      .payload_hash = 0,
                      .tokens = {},
                      .header_hash = 0};
  std::copy(page_tokens.begin(), page_tokens.end(), header.tokens.begin());
  return header;
}

void seal(RecordHeader& header, std::span<const std::byte> payload) {
  WP_ASSERT(header.payload_bytes == static_cast<int64_t>(payload.size()));
  seal(header, hash_bytes(payload.data(), payload.size()));
}

void seal(RecordHeader& header, uint64_t payload_hash) {
  header.payload_hash = payload_hash;
  header.header_hash = hash_of(header);
}

RecordHeader make_header(PartKind kind, const Origin& origin, uint64_t domain, uint64_t parent, int64_t end,
                         std::span<const TokenId> page_tokens, CaptureClass capture_class,
                         std::span<const std::byte> payload) {
  RecordHeader header = describe_part(kind, origin, domain, parent, end, page_tokens, capture_class,
                                      static_cast<int64_t>(payload.size()));
  seal(header, payload);
  return header;
}

Result<RecordHeader> parse_header(std::span<const std::byte> bytes) {
  const auto bad = [](auto&&... what) { return Error{ErrorCode::bad_file, cat("record: ", what...)}; };
  RecordHeader header;
  if (bytes.size() < sizeof header) return bad("expected ", sizeof header, " bytes of header, found ", bytes.size());
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagic) return bad("expected its magic, found other bytes");
  if (header.version != kRecordVersion) return bad("expected version ", kRecordVersion, ", found ", header.version);
  if (header.header_hash != hash_of(header)) return bad("expected the header's checksum, found a damaged header");
  if (header.kind != PartKind::page && header.kind != PartKind::anchor)
    return bad("expected a page or an anchor, found kind ", static_cast<uint32_t>(header.kind));
  if (header.end <= 0 || header.end % kPageTokens != 0)
    return bad("expected a position on the grid, found ", header.end);
  if (header.payload_bytes < 0 || header.payload_bytes > kPayloadBytesMax)
    return bad("expected up to ", kPayloadBytesMax, " bytes, found ", header.payload_bytes);
  if (header.capture_class > static_cast<uint32_t>(CaptureClass::ladder))
    return bad("expected a capture class, found ", header.capture_class);
  if (header.key != node_key(header.parent, header.domain, header.tokens)) return bad("expected the key of its tokens");
  return header;
}

}  // namespace wp
