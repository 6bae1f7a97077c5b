// Anthropic's messages over the wire (spec/api.md 9): shapes, order of events, streamed equal to not streamed, tools,
// thinking, accounting and errors.
#include "rig.h"

namespace wp::testing {
namespace {

class Messages : public HttpRig {
 protected:
  // An error in Anthropic's shape, and nothing but.
  static void expect_error(const WireAnswer& answer, int status, const char* type) {
    SCOPED_TRACE(answer.head + answer.body);
    EXPECT_EQ(answer.status, status);
    const Json body = answer.json();
    ASSERT_TRUE(body.is_object() && body.contains("error"));
    EXPECT_EQ(body["type"], "error");
    EXPECT_EQ(body["error"]["type"], type);
    EXPECT_FALSE(body["error"]["message"].get<std::string>().empty());
    EXPECT_EQ(body["error"].size(), 2u);
    EXPECT_EQ(body["request_id"], answer.headers.at("request-id"));
  }
};

TEST_F(Messages, WhatTheTransportRefusesIsInAnthropicsShape) {
  RigOptions options;
  options.server.api_keys = {"red"};
  options.server.http.body_bytes_max = 1000;
  start(options);
  const auto call = [&](const char* method, const char* path, std::string_view body, const char* headers) {
    return client().call(method, path, body, headers);
  };
  const char* const json = "content-type: application/json\r\n";
  const char* const keyed = "content-type: application/json\r\nx-api-key: red\r\n";
  expect_error(call("POST", "/v1/messages", "{}", json), 401, "authentication_error");
  expect_error(call("POST", "/v1/messages", "{}", "content-type: application/json\r\nx-api-key: blue\r\n"), 401,
               "authentication_error");
  expect_error(call("POST", "/v1/messages", std::string(2000, ' '), keyed), 413, "request_too_large");
  expect_error(call("POST", "/v1/messages", "{}", "x-api-key: red\r\norigin: http://evil.example\r\n"), 403,
               "permission_error");
  // By the header that Anthropic's clients send, on routes that others share.
  const char* const version = "authorization: Bearer red\r\nanthropic-version: 2023-06-01\r\n";
  expect_error(call("GET", "/v1/models/other", "", version), 404, "not_found_error");
  expect_error(call("GET", "/nothing", "", version), 404, "not_found_error");
  // Another path that only begins alike, and no such header: OpenAI's.
  EXPECT_EQ(call("GET", "/v1/messages2", "", "x-api-key: red\r\n").error_code(), "not_found");
}

}  // namespace
}  // namespace wp::testing
