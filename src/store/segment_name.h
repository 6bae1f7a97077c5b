// segment_number: which files of a cache folder are segments, and in which order. A pure function. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace wp {

constexpr std::string_view kSegmentSuffix = ".segment";

// 17 of "17.segment"; nothing for any other name.
std::optional<uint64_t> segment_number(std::string_view file_name);

}  // namespace wp
