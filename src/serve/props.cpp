// GET /props, as llama.cpp's clients read it: what holds where a request says nothing, and what is loaded.
#include "serve/generation_run.h"
#include "serve/routes.h"

namespace wp {
namespace {

Json default_settings(const Service& service) {
  const GenerationDefaults& defaults = service.defaults;
  return {{"n_ctx", service.context_tokens},
          {"params",
           {{"temperature", defaults.temperature},
            {"top_k", defaults.top_k},
            {"top_p", defaults.top_p},
            {"min_p", defaults.min_p},
            {"repeat_penalty", defaults.repetition_penalty},
            {"presence_penalty", 0.0},
            {"frequency_penalty", 0.0},
            {"n_predict", -1},
            {"seed", -1},
            {"stop", Json::array()}}}};
}

// By what the template's text speaks of.
Json template_caps(const ChatTemplate& chat_template) {
  const auto speaks_of = [&](std::string_view word) { return chat_template.source().find(word) != std::string::npos; };
  const bool calls = speaks_of("tool_calls");
  return {{"supports_system_role", speaks_of("system")},
          {"supports_tools", speaks_of("tools")},
          {"supports_tool_calls", calls},
          {"supports_parallel_tool_calls", calls},
          {"supports_enable_thinking", speaks_of("enable_thinking")},
          {"supports_reasoning_effort", speaks_of("reasoning_effort")},
          {"supports_preserve_thinking", speaks_of("preserve_thinking")}};
}

}  // namespace

void props(const HttpRequest&, HttpResponse& response, ServerState& state) {
  const auto service = loaded_service(state, response);
  if (!service) return;
  Json body = {{"default_generation_settings", default_settings(*service)},
               {"total_slots", service->engine->limits().sequences},
               {"model_alias", service->model_name},
               {"model_path", service->model_path},
               {"modalities", {{"vision", false}, {"audio", false}}},
               {"build_info", service->build},
               {"n_ctx", service->context_tokens},
               {"n_ctx_train", service->context_trained},
               {"chat_template", nullptr},
               {"chat_template_caps", Json::object()}};
  if (service->chat_template) {
    body["chat_template"] = service->chat_template->source();
    body["chat_template_caps"] = template_caps(*service->chat_template);
  }
  response.send_json(200, body);
}

}  // namespace wp
