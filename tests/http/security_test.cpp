// Security over the wire (spec/api.md 12 F): what a client sends is text or a refusal, never code, an address to fetch
// or a way around the key. F9 is in wire_test.cpp, F13 in chat_test.cpp.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rig.h"
#include "serve/routes.h"

namespace wp::testing {
namespace {

class Security : public HttpRig {};

// Listens on loopback and notices whoever comes.
class Trap {
 public:
  Trap() : descriptor_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(::bind(descriptor_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(descriptor_, 16), 0);
    EXPECT_EQ(::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
  }
  ~Trap() { ::close(descriptor_); }
  uint16_t port() const { return port_; }
  bool somebody_came() const {
    pollfd entry{descriptor_, POLLIN, 0};
    return ::poll(&entry, 1, 0) > 0;
  }

 private:
  int descriptor_;
  uint16_t port_ = 0;
};

TEST_F(Security, F4ARequestBringsNoTemplate) {
  start();
  WireClient c = client();
  for (const char* text : {"{{ ''.__class__ }}", "{% include '/etc/passwd' %}", "{{ 'x' * 1000000000 }}"}) {
    Json body = chat("hi");
    body["chat_template"] = text;
    EXPECT_EQ(c.post("/v1/chat/completions", body).error_param(), "chat_template") << text;
    EXPECT_EQ(c.post("/apply-template", body).status, 400) << text;
    body.erase("chat_template");
    body["chat_template_kwargs"] = {{"chat_template", text}};
    const WireAnswer nested = c.post("/v1/chat/completions", body);
    EXPECT_EQ(nested.status, 400) << text;
    EXPECT_EQ(nested.error_code(), "unsupported_value") << text;
    EXPECT_EQ(c.post("/apply-template", body).status, 400) << text;
    // As a message it is text.
    const WireAnswer applied = c.post("/apply-template", chat(text));
    EXPECT_EQ(applied.status, 200);
    EXPECT_NE(applied.json()["prompt"].get<std::string>().find(text), std::string::npos) << applied.body;
  }
}

TEST_F(Security, F5AnArgumentIsTextWhateverItSays) {
  start();
  Json body = chat("write it");
  body["enable_thinking"] = false;
  body["tools"] = Json::parse(R"([{"type":"function","function":{"name":"write_file","parameters":{"type":"object",
      "properties":{"path":{"type":"string"},"content":{"type":"string"}}}}}])");
  for (const std::string text : {"__import__('os').system('touch /tmp/no')", "{\"__proto__\": {\"a\": 1}}",
                                 "!!python/object/apply:os.system [id]", "${jndi:ldap://127.0.0.1/a}",
                                 "$(id) `id` ; rm -rf x", "'); process.exit(1); ('"}) {
    say(cat("<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\n", text,
            "\n</parameter>\n</function>\n</tool_call>"));
    const Json answer = client().post("/v1/chat/completions", body).json();
    ASSERT_EQ(answer["choices"][0]["finish_reason"], "tool_calls") << text << dump_json(answer);
    const Json& call = answer["choices"][0]["message"]["tool_calls"][0]["function"];
    ASSERT_TRUE(call["arguments"].is_string());
    EXPECT_EQ(Json::parse(call["arguments"].get<std::string>()), Json({{"path", "a"}, {"content", text}}));
  }
}

TEST_F(Security, F6NothingIsFetched) {
  start();
  const Trap trap;
  const std::string port = cat(":", trap.port(), "/");
  WireClient c = client();
  for (const std::string& address :
       {cat("http://127.0.0.1", port), cat("http://127.1", port), cat("http://[::ffff:127.0.0.1]", port),
        cat("http://2130706433", port), cat("http://localhost", port, "redirect"), cat("http://0x7f000001", port),
        std::string("file:///etc/passwd"), std::string("data:image/png;base64,AAAA")}) {
    for (const char* type : {"image_url", "input_image", "video_url", "audio_url"}) {
      Json part = {{"type", type}, {type, {{"url", address}}}};
      const Json body = {{"messages", {{{"role", "user"}, {"content", Json::array({part})}}}}};
      const WireAnswer refused = c.post("/v1/chat/completions", body);
      EXPECT_EQ(refused.status, 400) << type << " " << address;
      EXPECT_EQ(refused.error_param(), "messages[0].content[0].type") << refused.body;
    }
  }
  EXPECT_FALSE(trap.somebody_came());
  const WireClient visitor(trap.port());
  EXPECT_TRUE(soon([&] { return trap.somebody_came(); })) << "the trap notices nobody";
}

// Every row of the table, so that a new route is guarded too.
TEST_F(Security, F10EveryRouteAsksForTheKey) {
  RigOptions options;
  options.server.api_keys = {"secret"};
  start(options);
  WireClient c = client();
  int guarded = 0, open = 0;
  for (const RouteName& route : route_names()) {
    const std::string path = cat(route.path, route.prefix ? "0" : "");
    SCOPED_TRACE(cat(route.method, " ", path));
    const bool is_open = path == "/livez" || path == "/readyz" || path == "/health" || path == "/";
    const WireAnswer answer = c.call(route.method, path, route.method == "POST" ? "{}" : "");
    EXPECT_EQ(answer.status, is_open ? 200 : 401) << answer.body;
    ++(is_open ? open : guarded);
    EXPECT_EQ(answer.headers.count("www-authenticate"), is_open ? 0u : 1u);
    // Another method tells nothing of the route either.
    EXPECT_EQ(c.call("DELETE", path, "").status, is_open ? 405 : 401);
  }
  EXPECT_EQ(open, 4);
  EXPECT_GT(guarded, 15);
  // Health says no more than it must to who has no key.
  EXPECT_EQ(c.get("/health").json(), Json({{"status", "ok"}}));
  const Json known = c.call("GET", "/health", "", "authorization: Bearer secret\r\n").json();
  EXPECT_EQ(known["status"], "ok");
  EXPECT_TRUE(known.contains("running"));
}

TEST_F(Security, F10HealthWithoutTheKeyTellsNothingOfALoad) {
  RigOptions options;
  options.server.api_keys = {"secret"};
  options.load = false;
  start(options);
  server_->set_loading("weights", 40);
  const WireAnswer stranger = client().get("/health");
  EXPECT_EQ(stranger.status, 503);
  EXPECT_EQ(stranger.error_code(), "loading_model");
  EXPECT_EQ(stranger.json()["status"], "loading");
  EXPECT_EQ(stranger.body.find("weights"), std::string::npos) << stranger.body;
  const Json known = client().call("GET", "/health", "", "authorization: Bearer secret\r\n").json();
  EXPECT_EQ(known["phase"], "weights");
}

}  // namespace
}  // namespace wp::testing
