#include "text/chat_template.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "testing/seeds.h"
#include "text/read_file.h"
#include "text/tokenizer.h"

namespace wp {
namespace {

std::string source(const std::string& path) { return testing::source_directory() + "/" + path; }

Result<std::string> render(std::string_view text, const Json& variables = Json::object(),
                           const TemplateLimits& limits = {}) {
  auto parsed = ChatTemplate::parse(text, limits);
  if (!parsed.ok()) return std::move(parsed).error();
  return parsed->render(variables);
}

std::string fault(std::string_view text, const Json& variables = Json::object()) {
  const auto rendered = render(text, variables);
  return rendered.ok() ? "rendered: " + *rendered : rendered.error().message;
}

const ChatTemplate& bundled() {
  static const ChatTemplate loaded = ChatTemplate::load(source("models/flash-next-mini")).value();
  return loaded;
}

TEST(ChatTemplate, RendersWhatJinjaDoes) {
  std::ifstream file(source("testdata/text/template_golden.jsonl"));
  std::string line;
  Json data;
  int rendered_count = 0, failed_count = 0;
  while (std::getline(file, line)) {
    const Json golden = parse_json(line).value();
    if (golden.contains("data")) {
      data = golden["data"];
      continue;
    }
    std::string text = golden["template"];
    if (text == "@bundled") text = bundled().source();
    else if (text.starts_with("@"))
      text = read_text_file(source("testdata/text/" + text.substr(1) + ".jinja"), 1 << 20).value();
    const auto found = render(text, golden.contains("variables") ? golden["variables"] : data);
    if (golden.contains("output")) {
      ++rendered_count;
      EXPECT_TRUE(found.ok()) << line << "\n" << (found.ok() ? "" : found.error().message);
      if (found.ok()) {
        EXPECT_EQ(*found, golden["output"].get<std::string>()) << line;
      }
    } else {
      ++failed_count;
      EXPECT_FALSE(found.ok()) << line << "\n" << (found.ok() ? *found : "");
      if (!found.ok() && golden.contains("raised")) {
        EXPECT_EQ(found.error().message, golden["raised"]) << line;
        EXPECT_EQ(found.error().code, ErrorCode::bad_request);
      }
    }
  }
  EXPECT_GT(rendered_count, 350);
  EXPECT_GT(failed_count, 50);
}

TEST(ChatTemplate, NamesWhatItDoesNotImplement) {
  EXPECT_EQ(fault("a\n{% include 'x' %}"),
            "chat template line 2: the tag include is not implemented or not allowed here");
  for (const char* tag :
       {"import 'x' as y", "from 'x' import y", "extends 'x'", "block b", "call f()", "do x", "autoescape true"})
    EXPECT_NE(fault(cat("{% ", tag, " %}")).find("not implemented"), std::string::npos) << tag;
  EXPECT_EQ(fault("{{ x | groupby('a') }}"), "chat template line 1: the filter groupby is not implemented");
  EXPECT_EQ(fault("{{ x is escaped }}"), "chat template line 1: the test escaped is not implemented");
  EXPECT_EQ(fault("{% for x in y recursive %}{% endfor %}"),
            "chat template line 1: a recursive loop is not implemented");
  EXPECT_EQ(fault("{{ f(*a) }}"), "chat template line 1: arguments by * or ** are not implemented");
  EXPECT_EQ(fault("{% if a %}\n\nb"), "chat template line 3: expected {% endif %}, found the end");
  EXPECT_EQ(fault("{{ x +\n\n }}"), "chat template line 3: expected an expression, found }}");
}

TEST(ChatTemplate, F3NoWayToAHost) {
  EXPECT_EQ(fault("{{ ''.__class__ }}"),
            "chat template line 1: access to attribute '__class__' of 'str' is not allowed");
  EXPECT_EQ(fault("{{ d['__init__'] }}", {{"d", {{"a", 1}}}}),
            "chat template line 1: access to attribute '__init__' of 'dict' is not allowed");
  EXPECT_NE(fault("{% include '/etc/passwd' %}").find("not implemented or not allowed"), std::string::npos);
  EXPECT_EQ(fault("{{ d.update({}) }}", {{"d", Json::object()}}),
            "chat template line 1: access to attribute 'update' of 'dict' is not allowed");
}

TEST(ChatTemplate, ErrorsAreOfTheRequestAndNameTheLine) {
  const auto rendered = render("a\n{{ x.y.z }}", {{"x", Json::object()}});
  ASSERT_FALSE(rendered.ok());
  EXPECT_EQ(rendered.error().code, ErrorCode::bad_request);
  EXPECT_EQ(rendered.error().message, "chat template line 2: 'dict' has no attribute 'y'");
  EXPECT_EQ(fault("{% macro m() %}\n{{ raise_exception('No system.') }}{% endmacro %}{{ m() }}"), "No system.");
  EXPECT_EQ(render("{{ x }}", Json::array()).error().code, ErrorCode::bad_request);
}

TEST(ChatTemplate, F4WorkIsLimited) {
  const char* const runaways[] = {
      "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
      "{{ 'x' * 1000000000 }}",
      "{{ 'x' * 1000000000000000000 }}",
      "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
      "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
      "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}"
      "{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
      "{% set l = [] %}{% set x = l.append(l) %}{{ l }}",
      "{% set l = [] %}{% set x = l.append(l) %}{{ l | tojson }}",
      "{% set l = [] %}{% set m = [] %}{% set x = l.append(m) %}{% set x = m.append(l) %}{{ l == m }}",
      "{{ range(100001) }}",
      "{{ ('a' * 1000000).replace('', 'b' * 1000000) }}",
      "{{ ([['a' * 100000] * 100000] | map('join') | list) }}",
      "{% set s = 'a' * 60000000 %}{% set l = [s ~ 1, s ~ 2, s ~ 3, s ~ 4] %}",
      "{{ 'x' | indent(1000000000) }}",
      "{{ [1] | tojson(indent=1000000000) }}",
      "{% for a in range(99999) %}{% set x = range(99999) %}{% endfor %}",
  };
  for (const char* runaway : runaways) {
    const auto begin = std::chrono::steady_clock::now();
    const auto rendered = render(runaway);
    ASSERT_FALSE(rendered.ok()) << runaway;
    EXPECT_NE(rendered.error().message.find("at most"), std::string::npos) << rendered.error().message;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << runaway;
  }
  EXPECT_EQ(fault("{{ 2 ** 100000 }}"),
            "chat template line 1: **: expected an integer below 2^100, found a larger one");
  EXPECT_EQ(render("{{ 'ab' * 6 }}", Json::object(), {.output_bytes_max = 10}).ok(), false);
  EXPECT_EQ(render("{{ 'ab' * 5 }}", Json::object(), {.output_bytes_max = 10}).value(), "ababababab");
  EXPECT_FALSE(render("abc{{ 'ab' * 5 }}", Json::object(), {.output_bytes_max = 10}).ok());
}

TEST(ChatTemplate, NestingIsLimitedWhenParsed) {
  const auto repeat = [](std::string_view text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += text;
    return out;
  };
  EXPECT_EQ(render("{{ " + repeat("(", 40) + "1" + repeat(")", 40) + " }}").ok(), false);
  EXPECT_EQ(render("{{ " + repeat("(", 20) + "1" + repeat(")", 20) + " }}").value(), "1");
  for (const std::string& deep :
       {"{{ " + repeat("(", 100000) + repeat(")", 100000) + " }}",
        "{{ " + repeat("[", 100000) + repeat("]", 100000) + " }}", "{{ " + repeat("not ", 100000) + "1 }}",
        "{{ " + repeat("- ", 100000) + "1 }}", "{{ " + repeat("1 if 1 else ", 100000) + "1 }}",
        repeat("{% if 1 %}", 100000), "{{ a" + repeat(".a", 100000) + " }}", "{{ a" + repeat("|abs", 100000) + " }}",
        "{{ a" + repeat("()", 100000) + " }}", "{% for " + repeat("(", 100000) + repeat(")", 100000) + " %}",
        "{{ " + repeat("{1:", 100000) + repeat("}", 100000) + " }}"}) {
    const auto parsed = ChatTemplate::parse(deep);
    ASSERT_FALSE(parsed.ok());
    EXPECT_NE(parsed.error().message.find("at most"), std::string::npos) << parsed.error().message;
  }
  // A long chain of one precedence is not deep.
  EXPECT_EQ(render("{{ " + repeat("1 + ", 5000) + "1 }}").value(), "5001");
  EXPECT_EQ(render("{{ " + repeat("'a' ~ ", 5000) + "'b' }}").value().size(), 5001u);
  EXPECT_EQ(render("{% if 0 %}" + repeat("{% elif 0 %}", 5000) + "{% else %}x{% endif %}").value(), "x");
}

TEST(ChatTemplate, DeepJsonIsAnError) {
  Json deep = 1;
  for (int i = 0; i < 300; ++i) deep = Json::array({deep});
  EXPECT_FALSE(render("{{ x }}", {{"x", deep}}).ok());
}

TEST(ChatTemplate, AppendWorksThroughNamespaces) {
  EXPECT_EQ(
      render("{% set ns = namespace(l=[]) %}{% for i in range(3) %}{% set _ = ns.l.append(i) %}{% endfor %}{{ ns.l }}")
          .value(),
      "[0, 1, 2]");
}

TEST(ChatTemplate, ScopesThatMacrosKeepLive) {
  EXPECT_EQ(render("{% set ns = namespace() %}{% for x in [1, 2] %}{% macro m() %}{{ x }}{{ loop.index }}{% endmacro %}"
                   "{% set ns.m = m %}{% set ns.l = loop %}{% endfor %}{{ ns.m() }}{{ ns.l.length }}")
                .value(),
            "230");
  EXPECT_EQ(
      render("{% set ns = namespace() %}{% for x in [] %}{% else %}{% set y = 5 %}{% macro m() %}{{ y }}{% endmacro %}"
             "{% set ns.m = m %}{% endfor %}{{ ns.m() }}")
          .value(),
      "5");
}

TEST(ChatTemplate, KnowsTheTime) {
  const std::string year = render("{{ strftime_now('%Y') }}").value();
  EXPECT_EQ(year.size(), 4u);
  EXPECT_EQ(render("{{ 'yes' if strftime_now is defined }}").value(), "yes");
  EXPECT_EQ(render("{{ strftime_now('') }}").value(), "");
}

TEST(ChatTemplate, LoadsFromACheckpoint) {
  namespace fs = std::filesystem;
  const fs::path directory = fs::temp_directory_path() / cat("warmpath-template-test-", ::getpid());
  fs::create_directories(directory);
  EXPECT_EQ(ChatTemplate::load(directory.string()).error().code, ErrorCode::not_found);
  std::ofstream(directory / "tokenizer_config.json") << R"({"chat_template": "from config"})";
  EXPECT_EQ(ChatTemplate::load(directory.string())->render(Json::object()).value(), "from config");
  std::ofstream(directory / "chat_template.jinja") << "from file\n";
  EXPECT_EQ(ChatTemplate::load(directory.string())->render(Json::object()).value(), "from file");
  EXPECT_EQ(ChatTemplate::load(directory.string())->source(), "from file\n");
  fs::remove_all(directory);
}

// The recorded conversations: `prompt_tokens` there counts the whole conversation, rendered.
Json parsed_arguments(Json messages) {
  for (Json& message : messages)
    if (message.contains("tool_calls"))
      for (Json& call : message["tool_calls"])
        call["function"]["arguments"] = parse_json(call["function"]["arguments"].get<std::string>()).value();
  return messages;
}

void check_conversation(const Json& recorded, const Tokenizer& tokenizer) {
  const Json messages = parsed_arguments(recorded["messages"]);
  Json variables = recorded["chat_template_kwargs"];
  variables["tools"] = recorded["tools"];
  const auto rendered = [&](size_t count, bool prompt) {
    variables["messages"] = Json(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(count));
    variables["add_generation_prompt"] = prompt;
    auto text = bundled().render(variables);
    EXPECT_TRUE(text.ok());
    return text.ok() ? *text : "";
  };
  const std::string whole = rendered(messages.size(), false);
  const auto ids = tokenizer.encode_with_special(whole);
  EXPECT_EQ(static_cast<int64_t>(ids.size()), recorded["prompt_tokens"].get<int64_t>()) << recorded["id"];
  for (const Json& expected : recorded["expected"]) {
    const std::string prefix = rendered(expected["index"].get<size_t>(), true) + expected["text"].get<std::string>();
    ASSERT_EQ(whole.substr(0, prefix.size()), prefix) << recorded["id"];
    const auto prefix_ids = tokenizer.encode_with_special(prefix);
    ASSERT_TRUE(std::equal(prefix_ids.begin(), prefix_ids.end(), ids.begin())) << recorded["id"];
  }
}

TEST(ChatTemplate, RendersTheRecordedConversations) {
  const Tokenizer tokenizer = Tokenizer::load(source("models/flash-next-mini")).value();
  int count = 0;
  for (const char* path : {"replay/agentic-200.jsonl", "needles/needles-1k.jsonl", "needles/needles-4k.jsonl",
                           "needles/needles-8k.jsonl", "needles/needles-12k.jsonl"}) {
    std::ifstream file(source(cat("models/flash-next-mini/", path)));
    for (std::string line; std::getline(file, line); ++count) check_conversation(parse_json(line).value(), tokenizer);
  }
  EXPECT_EQ(count, 84);
}

TEST(ChatTemplate, RendersFromManyThreads) {
  const Json variables = {{"messages", {{{"role", "user"}, {"content", "hello"}}}}, {"add_generation_prompt", true}};
  const std::string expected = bundled().render(variables).value();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 100; ++round) EXPECT_EQ(bundled().render(variables).value(), expected);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace wp
