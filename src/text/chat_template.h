// ChatTemplate: an interpreter for the Jinja that Hugging Face chat templates use. No host objects, no attribute walk,
// no include or import; steps, output and depth are limited. Const once parsed; render from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/json.h"

namespace wp {

struct TemplateLimits {
  int64_t steps_max = 500'000;
  int64_t output_bytes_max = 64 << 20;
  int depth_max = 64;
};

class ChatTemplate {
 public:
  // Compiles; a syntax error names line and what was expected.
  static Result<ChatTemplate> parse(std::string_view source, const TemplateLimits& limits = {});
  // The template of a checkpoint: DIR/chat_template.jinja, else `chat_template` of DIR/tokenizer_config.json.
  static Result<ChatTemplate> load(const std::string& directory);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `variables`: an object whose members become the template's variables (messages, tools, add_generation_prompt,
  // enable_thinking, ...). A member that is absent is undefined in the template; null is none. What the template
  // raises (raise_exception) is a bad_request error with its text; so are exceeded limits.
  Result<std::string> render(const Json& variables) const;

  const std::string& source() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace wp
