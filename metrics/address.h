// SPDX-License-Identifier: Apache-2.0
// Parses addresses that a server may listen on.
#pragma once

#include <sys/socket.h>
#include <yard/status.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace yard::metrics_detail {

struct Address {
  std::string host;  // numeric; IPv6 without brackets
  uint16_t port = 0;
  bool v6 = false, loopback = false;

  // Returns "127.0.0.1:9464" or "[::1]:9464".
  std::string text() const;
};

// Accepts ADDRESS:PORT with a numeric address or localhost.
Result<Address> parse_address(std::string_view text);

// Fills in the address for bind() and returns its size.
socklen_t socket_address(const Address& address, sockaddr_storage& to);

}  // namespace yard::metrics_detail
