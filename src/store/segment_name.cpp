#include "store/segment_name.h"

#include <charconv>

namespace wp {

std::optional<uint64_t> segment_number(std::string_view file_name) {
  if (file_name.size() <= kSegmentSuffix.size() || !file_name.ends_with(kSegmentSuffix)) return std::nullopt;
  const std::string_view stem = file_name.substr(0, file_name.size() - kSegmentSuffix.size());
  uint64_t number = 0;
  const auto [end, fault] = std::from_chars(stem.data(), stem.data() + stem.size(), number);
  if (stem.size() > 18 || fault != std::errc() || end != stem.data() + stem.size()) return std::nullopt;
  return number;
}

}  // namespace wp
