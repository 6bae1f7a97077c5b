// HttpRig: the real server, engine, tokenizer and template of the bundled model, with a scripted model in the middle.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "core/log.h"
#include "script_model.h"
#include "serve/server.h"
#include "testing/seeds.h"
#include "wire_client.h"

namespace wp::testing {

struct Bundled {
  Tokenizer tokenizer;
  ChatTemplate chat_template;
};
// Read once for all tests.
inline const Bundled& bundled() {
  static const Bundled* read = [] {
    const std::string path = source_directory() + "/models/flash-next-mini";
    auto tokenizer = Tokenizer::load(path);
    auto chat_template = ChatTemplate::load(path);
    WP_ASSERT(tokenizer.ok() && chat_template.ok());
    return new Bundled{std::move(*tokenizer), std::move(*chat_template)};
  }();
  return *read;
}

struct RigOptions {
  ServerOptions server;
  EngineLimits engine{.context_tokens = 4096, .sequences = 4, .pages = 512, .queue_max = 8, .pass_tokens = 256};
  bool load = true;
};

class HttpRig : public ::testing::Test {
 protected:
  void start(RigOptions options = {}) {
    configure_log({.level = LogLevel::error});
    options_ = options;
    options_.server.port = 0;
    auto bound = Server::bind(options_.server);
    ASSERT_TRUE(bound.ok()) << bound.error().message;
    server_ = std::move(bound).value();
    server_->run();
    if (options.load) load();
  }

  void load() {
    const Bundled& files = bundled();
    device_ = std::move(Device::make(DeviceKind::ref, 1)).value();
    model_ =
        std::make_unique<ScriptModel>(files.tokenizer.vocabulary_count(), options_.engine.context_tokens, end_token());
    auto engine = Engine::make(*model_, *device_, options_.engine, system_clock());
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_ = std::move(engine).value();
    auto prompter = ChatPrompter::make(files.chat_template, files.tokenizer);
    ASSERT_TRUE(prompter.ok()) << prompter.error().message;
    prompter_ = std::make_unique<ChatPrompter>(std::move(prompter).value());
    auto service = std::make_shared<Service>();
    service->engine = engine_.get();
    service->tokenizer = &files.tokenizer;
    service->chat_template = &files.chat_template;
    service->prompter = prompter_.get();
    service->clock = &system_clock();
    service->model_name = "mini";
    service->build = "warmpath test";
    service->context_tokens = options_.engine.context_tokens;
    service->defaults = {.temperature = 0, .eos_tokens = {end_token(), *files.tokenizer.find("<|endoftext|>")}};
    service->strict_api = strict_api_;
    service->strict_model = strict_model_;
    service->domain_per_key = domain_per_key_;
    server_->ready(service);
  }

  void TearDown() override {
    if (server_) server_->stop();
    server_.reset();
    engine_.reset();
  }

  static TokenId end_token() { return *bundled().tokenizer.find("<|im_end|>"); }
  // The model says this, in its own markup, and ends.
  void say(std::string_view text) { model_->say(bundled().tokenizer.encode_with_special(text)); }
  WireClient client() { return WireClient(server_->port()); }
  static Json chat(std::string_view text) {
    return {{"model", "mini"}, {"messages", {{{"role", "user"}, {"content", text}}}}};
  }
  // The condition comes true within the time.
  template <class Condition>
  static bool soon(const Condition& condition, int ms = 5000) {
    for (int waited = 0; waited < ms; ++waited) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return condition();
  }

  RigOptions options_;
  bool strict_api_ = false, strict_model_ = false, domain_per_key_ = false;
  std::unique_ptr<Device> device_;
  std::unique_ptr<ScriptModel> model_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ChatPrompter> prompter_;
  std::unique_ptr<Server> server_;
};

}  // namespace wp::testing
