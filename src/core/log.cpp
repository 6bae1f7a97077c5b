#include "core/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>

#include "core/clock.h"
#include "core/json.h"

namespace wp {
namespace {

struct Sinks {
  std::shared_ptr<spdlog::logger> main;
  std::shared_ptr<spdlog::logger> jsonl;
  LogOptions options;
};

std::shared_ptr<spdlog::logger> make_logger(const std::string& file) {
  std::shared_ptr<spdlog::sinks::sink> sink;
  if (file.empty()) sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  else sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file, false);
  auto logger = std::make_shared<spdlog::logger>("warmpath", sink);
  logger->set_pattern("%v");
  logger->set_level(spdlog::level::trace);
  logger->flush_on(spdlog::level::trace);
  return logger;
}

Sinks& sinks() {
  static Sinks instance{make_logger(""), nullptr, {}};
  return instance;
}

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return "debug";
    case LogLevel::info: return "info";
    case LogLevel::warning: return "warning";
    case LogLevel::error: return "error";
  }
  return "?";
}

bool needs_quotes(std::string_view text) {
  if (text.empty()) return true;
  for (char c : text)
    if (c == ' ' || c == '"' || c == '\n' || c == '=' || static_cast<unsigned char>(c) < 0x20) return true;
  return false;
}

std::string as_text(LogLevel level, std::string_view event, const LogField* fields, size_t count) {
  std::string line;
  if (level == LogLevel::warning || level == LogLevel::error) line = cat(level_name(level), " ");
  line += event;
  for (size_t i = 0; i < count; ++i) {
    line += ' ';
    line += fields[i].key;
    line += '=';
    if (fields[i].quoted && needs_quotes(fields[i].value)) line += dump_json(Json(fields[i].value));
    else line += fields[i].value;
  }
  return line;
}

std::string as_json(LogLevel level, std::string_view event, const LogField* fields, size_t count) {
  Json line;
  line["ts"] = unix_time_s();
  line["level"] = level_name(level);
  line["event"] = std::string(event);
  for (size_t i = 0; i < count; ++i) {
    if (!fields[i].quoted) {
      auto number = Json::parse(fields[i].value, nullptr, false);
      if (!number.is_discarded()) {
        line[fields[i].key] = std::move(number);
        continue;
      }
    }
    line[fields[i].key] = fields[i].value;
  }
  return dump_json(line);
}

void write(LogLevel level, std::string_view event, const LogField* fields, size_t count) {
  Sinks& s = sinks();
  if (level < s.options.level) return;
  s.main->info("{}", s.options.json ? as_json(level, event, fields, count) : as_text(level, event, fields, count));
  if (s.jsonl) s.jsonl->info("{}", as_json(level, event, fields, count));
}

}  // namespace

void configure_log(const LogOptions& options) {
  Sinks& s = sinks();
  s.options = options;
  s.main = make_logger(options.file);
  s.jsonl = options.jsonl_file.empty() ? nullptr : make_logger(options.jsonl_file);
}

void log_line(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  write(level, event, fields.begin(), fields.size());
}

void log_line(LogLevel level, std::string_view event, const std::vector<LogField>& fields) {
  write(level, event, fields.data(), fields.size());
}

}  // namespace wp
