// Any template, over a conversation, is refused, fails or renders within its limits: it never crashes, hangs or leaks.
#include <cstdint>

#include "core/assert.h"
#include "core/json.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const wp::Json kVariables = wp::parse_json(R"({
    "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "h\u00e9"}]},
                 {"role": "assistant", "content": null,
                  "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5]}}}]},
                 {"role": "tool", "content": "r"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "add_generation_prompt": true, "n": 7, "x": 0.5, "none": null, "list": [3, 1, 2], "text": "a \u20ac\n"})")
                                         .value();
  const wp::TemplateLimits limits{.steps_max = 20'000, .output_bytes_max = 1 << 18, .depth_max = 32};
  const auto parsed = wp::ChatTemplate::parse({reinterpret_cast<const char*>(data), size}, limits);
  if (!parsed.ok()) {
    WP_ASSERT(!parsed.error().message.empty());
    return 0;
  }
  const auto rendered = parsed->render(kVariables);
  if (rendered.ok()) WP_ASSERT(static_cast<int64_t>(rendered->size()) <= limits.output_bytes_max);
  return 0;
}
