// HttpSocket: blocking writes with a time limit, and a look at whether the peer has left, on a connected non-blocking
// socket that somebody else owns and closes. One thread at a time; nobody else reads or writes the socket meanwhile.
#pragma once

#include <cstdint>
#include <string_view>

namespace wp {

class HttpSocket {
 public:
  explicit HttpSocket(int descriptor) : descriptor_(descriptor) {}

  // All of `bytes`; false when the peer is gone, or took nothing for `timeout_ms`.
  bool write(std::string_view bytes, int64_t timeout_ms);
  // Whether the peer closed or reset the connection, as far as the system knows now. A client that only closed its
  // sending half counts as gone: HTTP clients do not do so while they wait for an answer.
  bool peer_gone() const;

 private:
  int descriptor_;
};

}  // namespace wp
