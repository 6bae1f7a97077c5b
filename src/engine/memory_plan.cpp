#include "engine/memory_plan.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "engine/limits.h"

namespace wp {
namespace {

std::string in_mebibytes(int64_t bytes) { return cat((bytes + (int64_t{1} << 20) - 1) >> 20, " MiB"); }

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return file ? text.str() : "";
}

// The number at the start of a file; -1 where there is none ("max", no file).
int64_t read_number(const std::string& path) {
  std::istringstream text(read_text(path));
  int64_t value = -1;
  return text >> value ? value : -1;
}

// "KEY   123 kB" or "KEY 123" in a file of such lines; -1 where it is not there.
int64_t read_field(const std::string& path, const std::string& key) {
  std::istringstream text(read_text(path));
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string found;
    int64_t value = 0;
    if (words >> found >> value && found == key) return value;
  }
  return -1;
}

void lower(int64_t& least, int64_t found) {
  if (found >= 0) least = least < 0 ? found : std::min(least, found);
}

// Room below one group's limit. Pages of inactive files count as room: the kernel drops them first.
void lower_by_group(int64_t& least, int64_t limit, int64_t used, int64_t inactive_file) {
  constexpr int64_t kNoLimit = int64_t{1} << 60;  // Version 1 writes a huge number for "none".
  if (limit < 0 || limit >= kNoLimit || used < 0) return;
  lower(least, std::max<int64_t>(0, limit - std::max<int64_t>(0, used - std::max<int64_t>(0, inactive_file))));
}

// The path of this process in a hierarchy, from /proc/self/cgroup: "0::/a/b" or "7:memory:/a/b".
std::string group_path(const std::string& root, const std::string& controller) {
  std::istringstream text(read_text(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(text, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    if (line.substr(first + 1, second - first - 1) == controller) return line.substr(second + 1);
  }
  return "";
}

}  // namespace

MemoryPlan memory_plan(const ModelInfo& info, const EngineLimits& limits) {
  return {.pages_bytes = info.page_bytes * limits.pages,
          .anchors_bytes = info.anchor_bytes * limits.anchors,
          .slots_bytes = info.slot_bytes * limits.sequences,
          .logits_bytes = logit_rows_max(limits) * info.vocabulary * size_bytes(DType::f32),
          .ram_bytes = limits.cache ? limits.ram_bytes : 0};
}

int64_t pages_within(const ModelInfo& info, const EngineLimits& limits, int64_t budget_bytes) {
  EngineLimits rest = limits;
  rest.pages = 0;
  const int64_t left = budget_bytes - memory_plan(info, rest).total_bytes();
  if (left <= 0) return 0;
  constexpr int64_t kPagesMax = std::numeric_limits<int32_t>::max();
  return info.page_bytes > 0 ? std::min(kPagesMax, left / info.page_bytes) : kPagesMax;
}

int64_t available_memory_bytes_below(const std::string& root) {
  int64_t least = read_field(root + "/proc/meminfo", "MemAvailable:");
  if (least >= 0) least <<= 10;
  // Every ancestor's limit holds too. In a container the own group is mounted as the root of the hierarchy.
  const auto each_level = [](std::string path, const auto& visit) {
    while (!path.empty() && path != "/") {
      visit(path);
      path.resize(path.rfind('/'));
    }
    visit(std::string());
  };
  each_level(group_path(root, ""), [&](const std::string& path) {
    const std::string at = root + "/sys/fs/cgroup" + path;
    lower_by_group(least, read_number(at + "/memory.max"), read_number(at + "/memory.current"),
                   read_field(at + "/memory.stat", "inactive_file"));
  });
  each_level(group_path(root, "memory"), [&](const std::string& path) {
    const std::string at = root + "/sys/fs/cgroup/memory" + path;
    lower_by_group(least, read_number(at + "/memory.limit_in_bytes"), read_number(at + "/memory.usage_in_bytes"),
                   read_field(at + "/memory.stat", "total_inactive_file"));
  });
  return least;
}

int64_t available_memory_bytes() { return available_memory_bytes_below(""); }

int64_t available_memory_bytes(Device& device) {
  return reads_host_memory(device.kind()) ? available_memory_bytes() : device.probe_memory();
}

Result<void> check_fits(const MemoryPlan& plan, int64_t available_bytes) {
  if (available_bytes < 0) return {};
  const int64_t have = available_bytes - available_bytes * 3 / 100, need = plan.total_bytes();
  if (need <= have) return {};
  const bool pages_lead = plan.pages_bytes >= plan.anchors_bytes;
  return Error{ErrorCode::no_memory,
               cat("memory: need ", in_mebibytes(need), " (pages ", in_mebibytes(plan.pages_bytes), ", anchors ",
                   in_mebibytes(plan.anchors_bytes), ", slots ", in_mebibytes(plan.slots_bytes), ", logits ",
                   in_mebibytes(plan.logits_bytes), "), have ", in_mebibytes(have), "; lower ",
                   pages_lead ? "--context-tokens" : "--anchors", " first, then --sequences")};
}

Result<void> check_ram_fits(const MemoryPlan& plan, bool pools_are_the_hosts, int64_t available_bytes) {
  if (available_bytes < 0 || plan.ram_bytes == 0) return {};
  const int64_t have = available_bytes - available_bytes * 3 / 100 - (pools_are_the_hosts ? plan.total_bytes() : 0);
  if (plan.ram_bytes <= have) return {};
  return Error{ErrorCode::no_memory,
               cat("memory: need ", in_mebibytes(plan.ram_bytes), " of the host's for --cache-ram, have ",
                   in_mebibytes(std::max<int64_t>(0, have)), "; lower --cache-ram")};
}

}  // namespace wp
