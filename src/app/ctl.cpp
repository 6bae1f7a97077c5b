// `warmpath ctl`: questions and orders to a running server, over its own routes.
#include <cstdio>

#include "app/commands.h"
#include "app/model_loading.h"
#include "core/json.h"
#include "measure/http_client.h"

namespace wp::app {
namespace {

// One line for each value: "device.anchors.free  12".
void print_values(const Json& value, const std::string& path) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [name, member] : value.items()) print_values(member, path.empty() ? name : cat(path, ".", name));
    return;
  }
  if (value.is_array() && !value.empty()) {
    for (size_t i = 0; i < value.size(); ++i) print_values(value[i], path.empty() ? cat(i) : cat(path, ".", i));
    return;
  }
  const std::string text = value.is_null() ? "off" : value.is_string() ? value.get<std::string>() : dump_json(value);
  std::printf("%-28s %s\n", path.c_str(), text.c_str());
}

Result<Json> ask_cache(measure::HttpClient& client, const std::string& action) {
  if (action == "stats") return client.get("/cache");
  if (action == "flush" || action == "save") return client.post("/cache/" + action, Json::object());
  return Error{ErrorCode::bad_request,
               cat("ctl cache: expected stats, flush or save, found ", action,
                   action == "restore" ? "; a folder of --cache-disk is read as requests come" : "")};
}

Result<int> ctl(const Flags& flags) {
  const std::string url = flags.positional("URL").value_or(""), what = flags.positional("WHAT").value_or("");
  if (!is_url(url)) return Error{ErrorCode::bad_request, cat("ctl: expected a server's http://HOST:PORT, found ", url)};
  if (what != "cache" && what != "status" && what != "slots")
    return Error{ErrorCode::bad_request, cat("ctl: expected status, slots or cache, found ", what)};
  const std::string action = flags.positional("ACTION").value_or("");
  if (what != "cache" && !action.empty())
    return Error{ErrorCode::bad_request, cat("ctl ", what, ": expected nothing after it, found ", action)};
  WP_TRY(auto client, measure::HttpClient::make(url, flags.text("api-key")));
  WP_TRY(Json answer, what == "cache" ? ask_cache(client, action) : client.get("/" + what));
  if (!flags.on("json") && answer.is_object()) answer.erase("recent");  // Hundreds of lines.
  if (flags.on("json")) std::printf("%s\n", dump_json(answer).c_str());
  else print_values(answer, "");
  return 0;
}

}  // namespace

Command ctl_command() {
  return {
      .name = "ctl",
      .positionals = {{.name = "URL", .help = "http://HOST:PORT of the server"},
                      {.name = "WHAT", .help = "status; slots; cache"},
                      {.name = "ACTION",
                       .required = false,
                       .help =
                           "of cache: stats; flush: empty the device's pools, not the tiers behind; save: wait until "
                           "what is published is on disk"}},
      .summary = "ask a running server what it does and holds; empty its cache, have it saved",
      .examples =
          "  warmpath ctl http://127.0.0.1:8080 status\n"
          "  warmpath ctl http://127.0.0.1:8080 cache stats --json\n",
      .flags = {{.name = "api-key",
                 .fallback = "",
                 .placeholder = "K",
                 .help = "Key of the server",
                 .group = "General",
                 .secret = true},
                json_flag()},
      .run = ctl};
}

}  // namespace wp::app
