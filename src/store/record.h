// Record: one page or one anchor as it lies in a segment file. Header, token ids of the node, bytes, each under a
// checksum of its own, so that an index is read from headers alone. Little-endian, as every machine we run on. Pure
// functions over bytes; believes nothing it reads. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "cache/prefix_cache.h"
#include "core/error.h"

namespace wp {

enum class PartKind : uint32_t { page = 1, anchor = 2 };

// What wrote a record. Nothing of another origin is ever restored.
struct Origin {
  uint64_t model = 0;     // Weights, format, layout, tokenizer.
  uint64_t numerics = 0;  // Of the canonical kernels.
  bool operator==(const Origin&) const = default;
};

constexpr uint32_t kRecordVersion = 1;

struct RecordHeader {
  uint64_t magic;
  uint32_t version;
  PartKind kind;
  Origin origin;
  uint64_t domain;
  uint64_t key;     // node_key() of this node.
  uint64_t parent;  // Of the node above; the folder's root at the top.
  int64_t end;      // Tokens up to and with this node.
  uint32_t capture_class;
  uint32_t unused;
  int64_t payload_bytes;
  uint64_t payload_hash;
  std::array<TokenId, kPageTokens> tokens;
  uint64_t header_hash;  // Of all above.
};
static_assert(sizeof(RecordHeader) == 88 + 64 * 4 + 8 && std::is_trivially_copyable_v<RecordHeader>);

// The key of a node: all tokens from position 0 in this cache domain. Finds a candidate; tokens decide.
uint64_t node_key(uint64_t parent, uint64_t domain, std::span<const TokenId> page_tokens);
// Of a path of whole pages: element i of the node that ends at i pages, the first is `root`.
std::vector<uint64_t> path_keys(uint64_t root, uint64_t domain, std::span<const TokenId> tokens);

// A header over `payload_bytes` bytes, key included, without its checksums; and those, over the bytes themselves.
RecordHeader describe_part(PartKind kind, const Origin& origin, uint64_t domain, uint64_t parent, int64_t end,
                           std::span<const TokenId> page_tokens, CaptureClass capture_class, int64_t payload_bytes);
void seal(RecordHeader& header, std::span<const std::byte> payload);
void seal(RecordHeader& header, uint64_t payload_hash);
// Both.
RecordHeader make_header(PartKind kind, const Origin& origin, uint64_t domain, uint64_t parent, int64_t end,
                         std::span<const TokenId> page_tokens, CaptureClass capture_class,
                         std::span<const std::byte> payload);

// The header at the front of `bytes`. bad_file: too short, not a record, of an unknown version, damaged, or describing
// what cannot be.
Result<RecordHeader> parse_header(std::span<const std::byte> bytes);

}  // namespace wp
