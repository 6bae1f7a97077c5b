#include "text/chat_template.h"

#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/read_file.h"
#include "text/utf8.h"

namespace wp {
namespace {

constexpr int64_t kTemplateBytesMax = 1 << 20;
constexpr int64_t kConfigBytesMax = 64 << 20;

}  // namespace

struct ChatTemplate::Impl {
  std::string source;
  TemplateLimits limits;
  jinja::Program program;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, const TemplateLimits& limits) {
  if (static_cast<int64_t>(source.size()) > kTemplateBytesMax)
    return Error{ErrorCode::bad_file,
                 cat("chat template: expected at most ", kTemplateBytesMax, " bytes, found ", source.size())};
  if (const size_t end = utf8_valid_until(source, 0); end != source.size())
    return Error{ErrorCode::bad_file, cat("chat template: expected UTF-8, found another byte at ", end)};
  WP_TRY(jinja::Program program, jinja::parse_program(source, limits.depth_max));
  return ChatTemplate(std::make_unique<Impl>(Impl{std::string(source), limits, std::move(program)}));
}

Result<ChatTemplate> ChatTemplate::load(const std::string& directory) {
  const std::string path = directory + "/chat_template.jinja";
  auto file = read_text_file(path, kTemplateBytesMax);
  if (file.ok()) return parse(*file);
  if (file.error().code != ErrorCode::not_found) return std::move(file).error();
  const std::string config_path = directory + "/tokenizer_config.json";
  WP_TRY(const std::string config_text, read_text_file(config_path, kConfigBytesMax));
  auto config = parse_json(config_text);
  if (!config.ok()) return Error{ErrorCode::bad_file, config.error().message}.within(config_path);
  if (!config->is_object() || !config->contains("chat_template") || !(*config)["chat_template"].is_string())
    return Error{ErrorCode::not_found, cat(directory,
                                           ": expected chat_template.jinja or a chat_template in "
                                           "tokenizer_config.json, found neither")};
  return parse((*config)["chat_template"].get_ref<const std::string&>());
}

Result<std::string> ChatTemplate::render(const Json& variables) const {
  return jinja::Interpreter(impl_->program, impl_->limits).run(variables);
}

const std::string& ChatTemplate::source() const { return impl_->source; }

}  // namespace wp
