#include "measure/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace wp::measure {

double mean(std::span<const double> samples) {
  if (samples.empty()) return 0;
  double sum = 0;
  for (double sample : samples) sum += sample;
  return sum / static_cast<double>(samples.size());
}

double deviation(std::span<const double> samples) {
  if (samples.size() < 2) return 0;
  const double center = mean(samples);
  double sum = 0;
  for (double sample : samples) sum += (sample - center) * (sample - center);
  return std::sqrt(sum / static_cast<double>(samples.size() - 1));
}

double percentile(std::span<const double> samples, double percent) {
  if (samples.empty()) return 0;
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const double at = percent / 100 * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(at);
  if (below + 1 >= sorted.size()) return sorted.back();
  const double share = at - static_cast<double>(below);
  return share == 0 ? sorted[below] : sorted[below] + share * (sorted[below + 1] - sorted[below]);
}

std::string duration_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 100) return fmt::format("{:.3g} s", seconds);
  return fmt::format("{:.0f} s", seconds);
}

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) bytes /= 1024, ++unit;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string count_text(int64_t count) {
  std::string digits = std::to_string(count < 0 ? -count : count);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return count < 0 ? "-" + digits : digits;
}

}  // namespace wp::measure
