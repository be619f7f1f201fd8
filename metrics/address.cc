// SPDX-License-Identifier: Apache-2.0
#include "address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <charconv>

namespace yard::metrics_detail {
namespace {

constexpr size_t kLongestAddress = 64;

Status invalid(std::string_view text, const char* expected) {
  std::string shown;
  for (const char c : text.substr(0, kLongestAddress)) shown += c >= ' ' && c <= '~' ? c : '?';
  return Status(Code::kInvalidArgument,
                fmt::format("invalid address: expected {}, got '{}'", expected, shown));
}

}  // namespace

std::string Address::text() const {
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<Address> parse_address(std::string_view text) {
  constexpr const char* kForm = "ADDRESS:PORT, such as 127.0.0.1:9464 or [::1]:9464";
  const size_t colon = text.rfind(':');
  if (text.size() > kLongestAddress || colon == std::string_view::npos) return invalid(text, kForm);
  Address a;
  const std::string_view port = text.substr(colon + 1);
  const auto [stop, error] = std::from_chars(port.data(), port.data() + port.size(), a.port);
  if (error != std::errc() || stop != port.data() + port.size())
    return invalid(text, "a port from 0 to 65535 after the last ':'");
  a.host = text.substr(0, colon);
  if (a.host == "localhost") a.host = "127.0.0.1";
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, a.host.c_str(), &v4) == 1) {
    a.loopback = (ntohl(v4.s_addr) >> 24) == 127;
    return a;
  }
  if (a.host.size() > 2 && a.host.front() == '[' && a.host.back() == ']') {
    a.host = a.host.substr(1, a.host.size() - 2);
    a.v6 = true;
    if (inet_pton(AF_INET6, a.host.c_str(), &v6) == 1) {
      a.loopback = IN6_IS_ADDR_LOOPBACK(&v6);
      return a;
    }
  }
  return invalid(text, kForm);
}

socklen_t socket_address(const Address& a, sockaddr_storage& to) {
  to = {};
  if (a.v6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(to);
    v6.sin6_family = AF_INET6, v6.sin6_port = htons(a.port);
    inet_pton(AF_INET6, a.host.c_str(), &v6.sin6_addr);
    return sizeof v6;
  }
  auto& v4 = reinterpret_cast<sockaddr_in&>(to);
  v4.sin_family = AF_INET, v4.sin_port = htons(a.port);
  inet_pton(AF_INET, a.host.c_str(), &v4.sin_addr);
  return sizeof v4;
}

}  // namespace yard::metrics_detail
