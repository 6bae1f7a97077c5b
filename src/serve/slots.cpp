// GET /slots and POST /slots/{id}?action=save|restore|erase, in llama.cpp's shapes. A slot stands for the conversation
// that last ran in it: its tokens, and what the pools hold of them.
#include <charconv>

#include "engine/path_transfer.h"
#include "serve/field_reader.h"
#include "serve/generation_run.h"
#include "serve/routes.h"

namespace wp {
namespace {

std::string_view query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view one = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), one.size() + 1));
    if (one.size() > name.size() && one.substr(0, name.size()) == name && one[name.size()] == '=')
      return one.substr(name.size() + 1);
  }
  return {};
}

Json slot_json(const Service& service, size_t id, const SlotStats& slot) {
  const int64_t left = slot.running ? slot.max_tokens - slot.generated_tokens : 0;
  return {{"id", id},
          {"id_task", slot.order > 0 ? static_cast<int64_t>(slot.order) : -1},
          {"n_ctx", service.context_tokens},
          {"speculative", false},
          {"is_processing", slot.running},
          {"state", !slot.running     ? "idle"
                    : slot.prefilling ? "prefill"
                                      : "decode"},
          {"n_prompt_tokens", slot.prompt_tokens},
          {"n_prompt_tokens_cache", slot.cached_tokens},
          {"miss_reason", slot.order == 0 || slot.miss == MissReason::none ? Json(nullptr) : Json(name(slot.miss))},
          {"params",
           {{"n_predict", slot.max_tokens},
            {"temperature", slot.temperature},
            {"top_k", slot.top_k},
            {"top_p", slot.top_p},
            {"min_p", slot.min_p},
            {"seed", slot.seed}}},
          {"next_token", {{"has_next_token", slot.running}, {"n_remain", left}, {"n_decoded", slot.generated_tokens}}}};
}

// Of this request's key and salt, where keys share nothing: nobody saves or erases what is another's.
std::optional<uint64_t> domain_of(const Service& service, const HttpRequest& http, uint64_t salted) {
  if (!service.domain_per_key) return std::nullopt;
  return cache_domain(service, http, salted);
}

ApiError refusal(const Error& error) {
  switch (error.code) {
    case ErrorCode::bad_file:
      return {.status = 409,
              .type = "invalid_request_error",
              .code = "cache_mismatch",
              .param = "filename",
              .message = error.message};
    case ErrorCode::io: {
      ApiError made = internal_error();
      made.message = error.message;
      return made;
    }
    default: return from_error(error, error.code == ErrorCode::bad_request ? "filename" : "id_slot");
  }
}

struct SlotRequest {
  int32_t slot = -1;
  std::string action, file_name;
  uint64_t salted = 0;
};

std::optional<ApiError> parse_slot_request(const HttpRequest& http, const Service& service, SlotRequest* out) {
  const std::string id = http.path.substr(std::string_view("/slots/").size());
  const auto [end, fault] = std::from_chars(id.data(), id.data() + id.size(), out->slot);
  const int64_t slots = service.engine->limits().sequences;
  if (fault != std::errc() || end != id.data() + id.size() || out->slot < 0 || out->slot >= slots)
    return invalid_value("id_slot", cat("id_slot: expected 0..", slots - 1, ", found ", id.substr(0, 32)));
  out->action = query_value(http.query, "action");
  if (out->action != "save" && out->action != "restore" && out->action != "erase")
    return invalid_value("action", cat("action: expected save, restore or erase, found ",
                                       out->action.empty() ? "none" : out->action.substr(0, 32)));
  Json body = Json::object();
  if (!http.body.empty()) {
    auto parsed = parse_json(http.body);
    if (!parsed.ok()) return invalid_json(cat("body: ", parsed.error().message));
    if (!parsed->is_object()) return invalid_type("body", "an object", *parsed);
    body = std::move(*parsed);
  }
  FieldReader reader(body);
  out->file_name = reader.string("filename").value_or("");
  out->salted = read_salt(reader);
  if (!reader.ok()) return reader.error();
  if (out->action == "erase") return std::nullopt;
  if (!service.slot_files)
    return ApiError{.status = 501,
                    .type = "not_implemented_error",
                    .code = "no_slot_folder",
                    .message = "slots: expected a server with --slot-save-path DIR, found one without"};
  if (const auto good = check_file_name(out->file_name); !good.ok())
    return invalid_value("filename", good.error().message);
  return std::nullopt;
}

}  // namespace

void slots(const HttpRequest& http, HttpResponse& response, ServerState& state) {
  const auto service = loaded_service(state, response);
  if (!service) return;
  const EngineStats stats = service->engine->stats();
  Json list = Json::array();
  bool free = false;
  for (size_t id = 0; id < stats.slots.size(); ++id) {
    list.push_back(slot_json(*service, id, stats.slots[id]));
    free |= !stats.slots[id].running;
  }
  if (!free && query_value(http.query, "fail_on_no_slot") == "1")
    return response.fail(overloaded(cat("slots: expected a free one, found all ", stats.slots.size(), " busy and ",
                                        stats.waiting, " requests waiting")));
  response.send_json(200, list);
}

void slot_action(const HttpRequest& http, HttpResponse& response, ServerState& state) {
  RequestLog log(state, http, response, "slot-action");
  const std::shared_ptr<const Service> service = require_service(state, response);
  if (!service) return;
  SlotRequest request;
  if (auto error = parse_slot_request(http, *service, &request)) return response.fail(*error);
  const auto domain = domain_of(*service, http, request.salted);
  const int64_t begin_ns = state.clock.now_ns();
  if (request.action == "erase") {
    const auto erased = service->engine->transfer({PathTransferOrder::Kind::erase, request.slot, domain, {}})->finish();
    if (!erased.ok() && erased.error().code != ErrorCode::bad_request) return response.fail(refusal(erased.error()));
    return response.send_json(200, {{"id_slot", request.slot}, {"n_erased", erased.ok() ? *erased : 0}});
  }
  const bool save = request.action == "save";
  const auto moved = save ? service->slot_files->save(request.slot, request.file_name, domain)
                          : service->slot_files->restore(request.slot, request.file_name, domain);
  if (!moved.ok()) return response.fail(refusal(moved.error()));
  const double ms = static_cast<double>(state.clock.now_ns() - begin_ns) * 1e-6;
  response.send_json(200, {{"id_slot", request.slot},
                           {"filename", request.file_name},
                           {save ? "n_saved" : "n_restored", moved->tokens},
                           {save ? "n_written" : "n_read", moved->bytes},
                           {"timings", {{save ? "save_ms" : "restore_ms", ms}}}});
}

}  // namespace wp
