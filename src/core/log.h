// Log lines: `event key=value ...`, one line each, to stderr or a file, as text or as JSON objects with the same keys.
// Configured once by app/ before threads start; write() from any thread. Never logs prompt text by itself.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cat.h"

namespace wp {

enum class LogLevel { debug, info, warning, error };

struct LogField {
  template <class T>
  LogField(std::string_view k, const T& v)
      : key(k), value(cat(v)), quoted(std::is_convertible_v<const T&, std::string_view>) {}
  std::string key;
  std::string value;
  bool quoted;  // A string: quoted in JSON always, in text only if it holds spaces or quotes.
};

struct LogOptions {
  LogLevel level = LogLevel::info;
  bool json = false;
  std::string file;        // Empty: stderr.
  std::string jsonl_file;  // A second sink in JSON form; empty: none.
};

void configure_log(const LogOptions& options);
void log_line(LogLevel level, std::string_view event, std::initializer_list<LogField> fields);
void log_line(LogLevel level, std::string_view event, const std::vector<LogField>& fields);
inline void log_info(std::string_view event, std::initializer_list<LogField> fields = {}) {
  log_line(LogLevel::info, event, fields);
}
inline void log_warning(std::string_view event, std::initializer_list<LogField> fields = {}) {
  log_line(LogLevel::warning, event, fields);
}
inline void log_debug(std::string_view event, std::initializer_list<LogField> fields = {}) {
  log_line(LogLevel::debug, event, fields);
}

}  // namespace wp
