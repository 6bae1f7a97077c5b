#include <limits>

#include "model/model.h"

namespace wp {
namespace {

// `count` records of `record_bytes` each.
Result<Buffer> make_pool(Device& device, int64_t record_bytes, int32_t count, const char* purpose) {
  if (count < 0) return Error{ErrorCode::bad_request, cat(purpose, ": expected a count of 0 or more, found ", count)};
  WP_ASSERT(record_bytes >= 0);
  if (count > 0 && record_bytes > std::numeric_limits<int64_t>::max() / 2 / count)
    return Error{ErrorCode::no_memory, cat(purpose, ": ", count, " records of ", record_bytes, " bytes do not fit")};
  return Buffer::make(device, record_bytes * count, purpose, Memory::device);
}

}  // namespace

Result<Pools> Pools::make(Device& device, const ModelInfo& info, int32_t pages, int32_t anchors, int32_t slots) {
  Pools pools;
  WP_TRY(pools.pages_, make_pool(device, info.page_bytes, pages, "pages"));
  WP_TRY(pools.anchors_, make_pool(device, info.anchor_bytes, anchors, "anchors"));
  WP_TRY(pools.slots_, make_pool(device, info.slot_bytes, slots, "slots"));
  pools.page_bytes_ = info.page_bytes;
  pools.anchor_bytes_ = info.anchor_bytes;
  pools.slot_bytes_ = info.slot_bytes;
  pools.pages_count_ = pages;
  pools.anchors_count_ = anchors;
  pools.slots_count_ = slots;
  pools.receipts_.assign(static_cast<size_t>(anchors), 0);
  return pools;
}

}  // namespace wp
