// Summaries of samples: mean, deviation, percentiles. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace wp::measure {

double mean(std::span<const double> samples);
// Sample standard deviation (n - 1); 0 for fewer than two.
double deviation(std::span<const double> samples);
// The value at `percent` of the sorted samples, linear between neighbours (numpy's default); 0 for none.
double percentile(std::span<const double> samples, double percent);
inline double median(std::span<const double> samples) { return percentile(samples, 50); }

// 12.3 ms, 1.25 s, 77.3 GiB: three significant digits, for tables.
std::string duration_text(double seconds);
std::string bytes_text(double bytes);
std::string count_text(int64_t count);  // 1,254,300

}  // namespace wp::measure
