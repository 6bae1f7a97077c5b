#include "wire_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "core/cat.h"

namespace wp::testing {

Json WireAnswer::json() const {
  auto parsed = parse_json(body);
  EXPECT_TRUE(parsed.ok()) << body;
  return parsed.ok() ? *parsed : Json();
}

std::string WireAnswer::error_code() const {
  const Json body_json = json();
  if (!body_json.is_object() || !body_json.contains("error")) return "";
  EXPECT_TRUE(body_json["error"]["message"].is_string());
  return body_json["error"]["code"].is_string() ? body_json["error"]["code"].get<std::string>() : "";
}

std::string WireAnswer::error_param() const {
  const Json body_json = json();
  if (!body_json.is_object() || !body_json.contains("error") || !body_json["error"]["param"].is_string()) return "";
  return body_json["error"]["param"].get<std::string>();
}

WireEvents events_of(const std::string& body) {
  WireEvents events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    std::string line = body.substr(at, end == std::string::npos ? std::string::npos : end - at);
    EXPECT_NE(end, std::string::npos) << "an event without its blank line: " << line;
    at = end == std::string::npos ? body.size() : end + 2;
    std::string name;
    if (line.rfind("event: ", 0) == 0) {
      name = line.substr(7, line.find('\n') - 7);
      line.erase(0, std::min(line.size(), name.size() + 8));
    }
    if (line == "data: [DONE]") {
      events.done = true;
    } else if (line.rfind("data: ", 0) == 0) {
      EXPECT_FALSE(events.done) << "data after [DONE]";
      auto parsed = parse_json(std::string_view(line).substr(6));
      EXPECT_TRUE(parsed.ok()) << line;
      if (!parsed.ok()) continue;
      events.data.push_back(*parsed);
      if (!name.empty()) {
        EXPECT_EQ(parsed->value("type", ""), name);
      }
    } else {
      EXPECT_EQ(line, ": ping");
      ++events.comments;
    }
  }
  return events;
}

WireClient::WireClient(uint16_t port, int receive_bytes) {
  descriptor_ = ::socket(AF_INET, SOCK_STREAM, 0);
  if (receive_bytes > 0) ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  EXPECT_EQ(::connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0) << errno;
}

WireClient::~WireClient() { close(); }

void WireClient::close(bool reset) {
  if (descriptor_ < 0) return;
  if (reset) {
    const linger now{1, 0};
    ::setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }
  ::close(descriptor_);
  descriptor_ = -1;
}

void WireClient::close_sending() { ::shutdown(descriptor_, SHUT_WR); }

void WireClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // The server refused early; what it said is read later.
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

bool WireClient::fill(int timeout_ms) {
  pollfd entry{descriptor_, POLLIN, 0};
  if (::poll(&entry, 1, timeout_ms) <= 0) return false;
  char bytes[16384];
  const ssize_t got = ::recv(descriptor_, bytes, sizeof(bytes), 0);
  if (got <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(got));
  return true;
}

std::string WireClient::read_some(int timeout_ms) {
  if (buffer_.empty() && !fill(timeout_ms)) return "";
  return std::exchange(buffer_, "");
}

bool WireClient::at_end(int timeout_ms) {
  if (!buffer_.empty()) return false;
  pollfd entry{descriptor_, POLLIN, 0};
  if (::poll(&entry, 1, timeout_ms) <= 0) return false;
  char byte;
  return ::recv(descriptor_, &byte, 1, MSG_PEEK) <= 0;
}

WireAnswer WireClient::read(bool head_only, int timeout_ms) {
  WireAnswer answer;
  size_t end;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos)
    if (!fill(timeout_ms)) return answer;
  answer.head = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  answer.status = std::atoi(answer.head.c_str() + 9);
  for (size_t at = answer.head.find("\r\n") + 2; at < answer.head.size();) {
    const size_t stop = answer.head.find("\r\n", at);
    const std::string line = answer.head.substr(at, stop - at);
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) answer.headers[line.substr(0, colon)] = line.substr(colon + 2);
    at = stop + 2;
  }
  if (answer.status == 100) return answer;
  if (answer.headers.count("transfer-encoding")) {
    while (true) {
      size_t line;
      while ((line = buffer_.find("\r\n")) == std::string::npos)
        if (!fill(timeout_ms)) return answer;
      const size_t size = std::strtoul(buffer_.c_str(), nullptr, 16);
      while (buffer_.size() < line + 2 + size + 2)
        if (!fill(timeout_ms)) return answer;
      answer.body += buffer_.substr(line + 2, size);
      EXPECT_EQ(buffer_.substr(line + 2 + size, 2), "\r\n");
      buffer_.erase(0, line + 2 + size + 2);
      if (size == 0) break;
    }
  } else if (answer.headers.count("content-length") && !head_only) {
    const size_t size = std::strtoul(answer.headers["content-length"].c_str(), nullptr, 10);
    while (buffer_.size() < size)
      if (!fill(timeout_ms)) return answer;
    answer.body = buffer_.substr(0, size);
    buffer_.erase(0, size);
  } else if (!head_only && !answer.headers.count("content-length") && answer.status != 204) {  // HTTP/1.0 stream.
    while (fill(timeout_ms)) {
    }
    answer.body = std::exchange(buffer_, "");
  }
  answer.whole = true;
  return answer;
}

std::string WireClient::request(std::string_view method, std::string_view path, std::string_view body,
                                std::string_view more_headers) {
  return cat(method, " ", path, " HTTP/1.1\r\nhost: localhost\r\n", more_headers, "content-length: ", body.size(),
             "\r\n\r\n", body);
}

WireAnswer WireClient::call(std::string_view method, std::string_view path, std::string_view body,
                            std::string_view more_headers) {
  send(request(method, path, body, more_headers));
  return read(method == "HEAD");
}

}  // namespace wp::testing
