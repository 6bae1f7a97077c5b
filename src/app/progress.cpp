#include "app/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "core/clock.h"
#include "measure/statistics.h"

namespace wp::app {
namespace {

constexpr int64_t kRedrawNs = 100'000'000;
constexpr int64_t kLineNs = 5'000'000'000;
constexpr int kBarWidth = 28;

}  // namespace

ProgressBar::ProgressBar(std::string event)
    : event_(std::move(event)), terminal_(isatty(STDERR_FILENO)), begin_ns_(system_clock().now_ns()) {
  if (!terminal_) shown_ns_ = begin_ns_;  // The first plain line comes after five seconds: short work stays silent.
}

ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::show(double share, const std::string& detail, const std::string& line) {
  const int64_t now_ns = system_clock().now_ns();
  if (now_ns - shown_ns_ < (terminal_ ? kRedrawNs : kLineNs)) return;
  shown_ns_ = now_ns;
  if (!terminal_) {
    std::fprintf(stderr, "%s %s\n", event_.c_str(), line.c_str());
    return;
  }
  share = std::clamp(share, 0.0, 1.0);
  const int full = static_cast<int>(share * kBarWidth);
  const double seconds = static_cast<double>(now_ns - begin_ns_) * 1e-9;
  std::string left;
  if (share > 0.02 && share < 1 && seconds > 1)
    left = fmt::format("  {} left", measure::duration_text(seconds / share * (1 - share)));
  const std::string text =
      fmt::format("{} [{}{}] {:3.0f}%  {}{}", event_, std::string(static_cast<size_t>(full), '#'),
                  std::string(static_cast<size_t>(kBarWidth - full), '.'), 100 * share, detail, left);
  std::fprintf(stderr, "\r\x1b[K%.110s", text.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressBar::clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

ProgressSink ProgressBar::load_sink() {
  return [this](const LoadProgress& at) {
    const double seconds = std::max(1e-3, static_cast<double>(system_clock().now_ns() - begin_ns_) * 1e-9);
    const std::string rate = measure::bytes_text(static_cast<double>(at.bytes_done) / seconds) + "/s";
    const double share =
        at.bytes_total > 0 ? static_cast<double>(at.bytes_done) / static_cast<double>(at.bytes_total) : 0;
    show(share,
         fmt::format("{} {} of {}  {}", at.phase, measure::bytes_text(static_cast<double>(at.bytes_done)),
                     measure::bytes_text(static_cast<double>(at.bytes_total)), rate),
         fmt::format("phase={} file={}/{} bytes={} rate={}", at.phase, at.files_done, at.files_total, at.bytes_done,
                     static_cast<int64_t>(static_cast<double>(at.bytes_done) / seconds)));
  };
}

}  // namespace wp::app
