// SPDX-License-Identifier: Apache-2.0
#include "address.h"

#include <gtest/gtest.h>

namespace yard::metrics_detail {
namespace {

TEST(Address, AcceptsNumbersAndLocalhost) {
  for (const char* text : {"127.0.0.1:9464", "127.9.9.9:0", "localhost:65535", "[::1]:80"}) {
    const Result<Address> a = parse_address(text);
    ASSERT_TRUE(a.ok()) << text << a.status().to_string();
    EXPECT_TRUE(a->loopback) << text;
  }
  for (const char* text : {"0.0.0.0:9464", "[::]:9464", "10.0.0.1:1", "[2001:db8::1]:1",
                           "128.0.0.1:1", "[::ffff:127.0.0.1]:1"}) {
    const Result<Address> a = parse_address(text);
    ASSERT_TRUE(a.ok()) << text;
    EXPECT_FALSE(a->loopback) << text;
  }
  EXPECT_EQ(parse_address("localhost:1")->text(), "127.0.0.1:1");
  EXPECT_EQ(parse_address("[::1]:2")->text(), "[::1]:2");
}

TEST(Address, RefusesEverythingElse) {
  for (const char* text : {"",
                           ":",
                           "9464",
                           ":9464",
                           "127.0.0.1",
                           "127.0.0.1:",
                           "127.0.0.1:65536",
                           "127.0.0.1:-1",
                           "127.0.0.1:80s",
                           "127.0.0.1:80,0.0.0.0:81",
                           "0.0.0.0:81,127.0.0.1:80",
                           "127.1:80",
                           "::1:80",
                           "[127.0.0.1]:80",
                           "[]:80",
                           "host.example:80",
                           "127.0.0.1:80\n",
                           " 127.0.0.1:80",
                           "http://127.0.0.1:80",
                           "+80"}) {
    const Result<Address> a = parse_address(text);
    ASSERT_FALSE(a.ok()) << text;
    EXPECT_EQ(a.status().message().substr(0, 26), "invalid address: expected ") << text;
  }
  EXPECT_FALSE(parse_address(std::string(100000, '1') + ":80").ok());
}

}  // namespace
}  // namespace yard::metrics_detail
