// `warmpath inspect CACHE_DIR`: every record of a folder of --cache-disk, whether a server runs on it or not.
#include <cstdio>

#include "app/commands.h"
#include "core/hash.h"
#include "core/json.h"
#include "measure/statistics.h"
#include "store/folder_report.h"

namespace wp::app {
namespace {

constexpr size_t kNamedMax = 4;  // Damaged records in the last line; all of them stand in the list.

struct Total {
  int64_t records = 0, bytes = 0;
};

const char* kind_of(const RecordReport& record) { return record.header.kind == PartKind::page ? "page" : "anchor"; }

int64_t size_of(const RecordReport& record) {
  return static_cast<int64_t>(sizeof(RecordHeader)) + record.header.payload_bytes;
}

std::string class_of(const RecordReport& record) {
  if (record.header.kind == PartKind::page) return "-";
  return std::string(1, letter(static_cast<CaptureClass>(record.header.capture_class)));
}

Total total_of(const FolderReport& report, PartKind kind) {
  Total total;
  for (const RecordReport& record : report.records) {
    if (record.header.kind != kind) continue;
    ++total.records;
    total.bytes += size_of(record);
  }
  return total;
}

Json record_json(const RecordReport& record) {
  const RecordHeader& header = record.header;
  return {{"segment", record.segment},
          {"offset", record.offset},
          {"kind", kind_of(record)},
          {"class", class_of(record)},
          {"position", header.end},
          {"tokens", kPageTokens},
          {"bytes", size_of(record)},
          {"age_s", record.age_s},
          {"model", hex(header.origin.model)},
          {"numerics", hex(header.origin.numerics)},
          {"domain", hex(header.domain)},
          {"key", hex(header.key)},
          {"version", header.version},
          {"state", name(record.state)}};
}

Json report_json(const std::string& folder, const FolderReport& report) {
  Json records = Json::array(), tails = Json::array();
  for (const RecordReport& record : report.records) records.push_back(record_json(record));
  for (const TailReport& tail : report.tails)
    tails.push_back({{"segment", tail.segment},
                     {"offset", tail.offset},
                     {"bytes", tail.bytes},
                     {"state", tail.torn ? "torn" : "damaged"},
                     {"reason", tail.reason}});
  const Total pages = total_of(report, PartKind::page), anchors = total_of(report, PartKind::anchor);
  return {{"path", folder},
          {"segments", report.segments},
          {"bytes", report.bytes},
          {"pages", {{"records", pages.records}, {"bytes", pages.bytes}}},
          {"anchors", {{"records", anchors.records}, {"bytes", anchors.bytes}}},
          {"damaged", report.damaged()},
          {"records", std::move(records)},
          {"tails", std::move(tails)}};
}

void print_report(const std::string& folder, const FolderReport& report) {
  std::printf("%-14s %12s %-6s %-5s %9s %6s %11s %9s %-16s %-16s %7s %s\n", "segment", "offset", "kind", "class",
              "position", "tokens", "bytes", "age", "model", "numerics", "version", "state");
  for (const RecordReport& record : report.records)
    std::printf("%-14s %12lld %-6s %-5s %9lld %6lld %11lld %9s %-16s %-16s %7u %s\n", record.segment.c_str(),
                static_cast<long long>(record.offset), kind_of(record), class_of(record).c_str(),
                static_cast<long long>(record.header.end), static_cast<long long>(kPageTokens),
                static_cast<long long>(size_of(record)),
                measure::duration_text(static_cast<double>(record.age_s)).c_str(),
                hex(record.header.origin.model).c_str(), hex(record.header.origin.numerics).c_str(),
                record.header.version, name(record.state));
  for (const TailReport& tail : report.tails)
    std::printf("%-14s %12lld %-6s %lld bytes, %s\n", tail.segment.c_str(), static_cast<long long>(tail.offset),
                tail.torn ? "torn" : "damaged", static_cast<long long>(tail.bytes), tail.reason.c_str());
  const Total pages = total_of(report, PartKind::page), anchors = total_of(report, PartKind::anchor);
  std::printf("cache      %s\n", folder.c_str());
  std::printf("segments   %lld, %s\n", static_cast<long long>(report.segments),
              measure::bytes_text(static_cast<double>(report.bytes)).c_str());
  std::printf("pages      %lld, %s\n", static_cast<long long>(pages.records),
              measure::bytes_text(static_cast<double>(pages.bytes)).c_str());
  std::printf("anchors    %lld, %s\n", static_cast<long long>(anchors.records),
              measure::bytes_text(static_cast<double>(anchors.bytes)).c_str());
}

// The line that a script sees last.
Error damage(const std::string& folder, const FolderReport& report) {
  std::string places;
  size_t named = 0;
  const auto add = [&](const std::string& place) {
    if (++named <= kNamedMax) places += cat(named == 1 ? "" : ", ", place);
  };
  for (const RecordReport& record : report.records)
    if (record.state == RecordState::damaged)
      add(cat(record.segment, " offset ", record.offset, " (", kind_of(record), " at ", record.header.end, ")"));
  for (const TailReport& tail : report.tails)
    if (!tail.torn) add(cat(tail.segment, " from offset ", tail.offset));
  if (named > kNamedMax) places += cat(" and ", named - kNamedMax, " more");
  return {ErrorCode::gate_failed, cat(folder, ": expected every checksum to be right, found damage at ", places,
                                      "; a server misses what is damaged and computes it")};
}

}  // namespace

Result<int> inspect_cache(const std::string& folder, const Flags& flags) {
  const bool verify = flags.on("verify");
  WP_TRY(const FolderReport report, read_cache_folder(folder, verify));
  if (flags.on("json")) std::printf("%s\n", dump_json(report_json(folder, report)).c_str());
  else print_report(folder, report);
  if (verify && report.damaged() > 0) return damage(folder, report);
  if (verify && !flags.on("json")) std::printf("verified   %zu records\n", report.records.size());
  return 0;
}

}  // namespace wp::app
