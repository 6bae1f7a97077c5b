// The HTTP target of a replay: streamed chat completions, timed on this side of the socket.
#include <chrono>
#include <optional>
#include <thread>

#include "core/hash.h"
#include "measure/http_client.h"
#include "measure/replay.h"

namespace wp::measure {
namespace {

constexpr int64_t kTokensBeyondExpected = 16;
constexpr int64_t kTokensUnknown = 512;
constexpr std::chrono::milliseconds kPacePoll{50};

int64_t integer_at(const Json& object, const char* name) {
  return object.is_object() && object.contains(name) && object[name].is_number_integer() ? object[name].get<int64_t>()
                                                                                         : 0;
}

// What a streamed answer said, as the text that the model generated would read.
struct Answer {
  std::string reasoning, content;
  Json calls = Json::array();
  std::string finish;
  std::string fault;

  void add(const Json& chunk, TurnResult& result);
  void add_call(const Json& delta);
  bool matches(const std::string& expected_content, const Json& expected_message) const;
};

void Answer::add_call(const Json& delta) {
  const size_t index = static_cast<size_t>(integer_at(delta, "index"));
  if (index > calls.size()) return;
  if (index == calls.size()) calls.push_back({{"name", ""}, {"arguments", ""}});
  if (!delta.contains("function") || !delta["function"].is_object()) return;
  for (const char* field : {"name", "arguments"})
    if (delta["function"].contains(field) && delta["function"][field].is_string())
      calls[index][field] = calls[index][field].get<std::string>() + delta["function"][field].get<std::string>();
}

void Answer::add(const Json& chunk, TurnResult& result) {
  if (!chunk.is_object()) return;
  if (chunk.contains("error")) fault = dump_json(chunk["error"]);
  if (chunk.contains("usage") && chunk["usage"].is_object()) {
    const Json& usage = chunk["usage"];
    result.prompt_tokens = integer_at(usage, "prompt_tokens");
    result.generated_tokens = integer_at(usage, "completion_tokens");
    if (usage.contains("prompt_tokens_details"))
      result.cached_tokens = integer_at(usage["prompt_tokens_details"], "cached_tokens");
  }
  if (chunk.contains("timings") && chunk["timings"].is_object()) {
    const Json& timings = chunk["timings"];
    if (timings.contains("miss_reason") && timings["miss_reason"].is_string())
      result.miss = timings["miss_reason"].get<std::string>();
  }
  if (!chunk.contains("choices") || !chunk["choices"].is_array() || chunk["choices"].empty()) return;
  const Json& choice = chunk["choices"][0];
  if (!choice.is_object()) return;
  if (choice.contains("finish_reason") && choice["finish_reason"].is_string())
    finish = choice["finish_reason"].get<std::string>();
  if (!choice.contains("delta") || !choice["delta"].is_object()) return;
  const Json& delta = choice["delta"];
  if (delta.contains("reasoning_content") && delta["reasoning_content"].is_string())
    reasoning += delta["reasoning_content"].get<std::string>();
  if (delta.contains("content") && delta["content"].is_string()) content += delta["content"].get<std::string>();
  if (delta.contains("tool_calls") && delta["tool_calls"].is_array())
    for (const Json& call : delta["tool_calls"])
      if (call.is_object()) add_call(call);
}

// The recorded message and the answer: the same words, the same calls. Arguments are compared as values.
bool Answer::matches(const std::string& expected_content, const Json& expected_message) const {
  if (finish != "stop" && finish != "tool_calls") return false;
  if (content != expected_content) return false;
  const bool has_calls = expected_message.contains("tool_calls") && expected_message["tool_calls"].is_array();
  const Json none = Json::array();
  const Json& expected = has_calls ? expected_message["tool_calls"] : none;
  if (expected.size() != calls.size()) return false;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!expected[i].is_object() || !expected[i].contains("function")) return false;
    const Json& function = expected[i]["function"];
    if (!function.is_object() || !function.contains("name") || !function.contains("arguments")) return false;
    const auto said = nlohmann::json::parse(calls[i]["arguments"].get<std::string>(), nullptr, false);
    const auto meant = function["arguments"].is_string()
                           ? nlohmann::json::parse(function["arguments"].get<std::string>(), nullptr, false)
                           : nlohmann::json(nlohmann::json::parse(dump_json(function["arguments"]), nullptr, false));
    if (function["name"] != calls[i]["name"] || said.is_discarded() || said != meant) return false;
  }
  return true;
}

class HttpTarget : public ReplayTarget {
 public:
  HttpTarget(std::string url, bool use_cache, Clock& clock)
      : url_(std::move(url)), use_cache_(use_cache), clock_(clock) {}

  TurnResult answer(const TurnPrompt& prompt, TurnTokens*) override {
    TurnResult result{.conversation = prompt.label, .turn = prompt.turn, .warm = prompt.turn > 0};
    if (!prompt.conversation) {
      result.fault = "synthetic prompts are token ids: expected a MODEL, found an address";
      return result;
    }
    auto client = HttpClient::make(url_);
    if (!client.ok()) {
      result.fault = client.error().message;
      return result;
    }
    const Json body = make_body(prompt);
    Answer answer;
    const int64_t begin_ns = clock_.now_ns();
    int64_t first_ns = 0;
    const auto done = client->stream("/v1/chat/completions", body, [&](std::string_view data) {
      if (data == "[DONE]") return;
      const auto chunk = parse_json(data);
      if (!chunk.ok()) answer.fault = cat("an event that is not JSON: ", chunk.error().message);
      if (!chunk.ok()) return;
      const size_t before = answer.reasoning.size() + answer.content.size() + answer.calls.size();
      answer.add(*chunk, result);
      const bool grew = answer.reasoning.size() + answer.content.size() + answer.calls.size() > before;
      if ((grew || !answer.finish.empty()) && first_ns == 0) first_ns = clock_.now_ns();
    });
    if (!done.ok()) answer.fault = done.error().message;
    result.fault = answer.fault;
    if (first_ns == 0 && result.fault.empty()) result.fault = "the stream ended without an answer";
    finish(prompt, answer, result);
    result.ttft_s = static_cast<double>(first_ns - begin_ns) * 1e-9;
    result.decode_s = static_cast<double>(clock_.now_ns() - first_ns) * 1e-9;
    return result;
  }

  void settle() override {
    const int64_t end_ns = clock_.now_ns() + kPaceMaxNs;
    do std::this_thread::sleep_for(kPacePoll);  // First, since the server renders the turn after it has answered.
    while (waiting() && clock_.now_ns() < end_ns);
  }

 private:
  // A server without the gauge has nothing to wait for.
  bool waiting() const {
    auto client = HttpClient::make(url_);
    if (!client.ok()) return false;
    const auto metrics = client->get_text("/metrics");
    constexpr std::string_view kGauge = "\nwarmpath_cache_consolidations_waiting ";
    const size_t at = metrics.ok() ? metrics->find(kGauge) : std::string::npos;
    return at != std::string::npos && metrics->compare(at + kGauge.size(), 2, "0\n") != 0;
  }

  Json make_body(const TurnPrompt& prompt) const {
    Json body = prompt.conversation->request_body(*prompt.expected);
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    body["temperature"] = 0;
    body["prompt_cache_key"] = prompt.label;
    // A token has at least one byte, so the text's length bounds its tokens.
    const int64_t bytes = static_cast<int64_t>(prompt.expected->text.size());
    body["max_tokens"] = prompt.tokens_max > 0 ? prompt.tokens_max
                         : bytes > 0           ? bytes + kTokensBeyondExpected
                                               : kTokensUnknown;
    if (!use_cache_) body["cache_prompt"] = false;
    return body;
  }

  static void finish(const TurnPrompt& prompt, const Answer& answer, TurnResult& result) {
    result.restored = result.cached_tokens > 0;
    result.text_hash =
        hash_text(cat(answer.reasoning, '\0', answer.content, '\0', dump_json(answer.calls), answer.finish));
    if (prompt.expected->text.empty()) return;
    result.has_expected = true;
    const Json& message = prompt.conversation->messages[static_cast<size_t>(prompt.expected->message_index)];
    result.exact = result.fault.empty() && answer.matches(prompt.expected->content, message);
  }

  std::string url_;
  bool use_cache_;
  Clock& clock_;
};

}  // namespace

std::unique_ptr<ReplayTarget> make_http_target(const std::string& url, bool use_cache, Clock& clock) {
  return std::make_unique<HttpTarget>(url, use_cache, clock);
}

}  // namespace wp::measure
