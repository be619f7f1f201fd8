// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/rights.h"
#include "base/testing_acl.h"

namespace yard::base {
namespace {

TEST(Acls, NameThoseWhoMayWrite) {
  using E = AclEntry;
  const E owner{1, 6, kNoId}, group{4, 4, kNoId}, other{32, 4, kNoId}, mask{16, 7, kNoId};
  const auto who = [&](std::vector<E> more, E with_mask) {
    std::vector<E> all = {owner};
    all.insert(all.end(), more.begin(), more.end());
    all.insert(all.end(), {group, with_mask, other});
    return who_writes_by_acl_value(acl_value(all));
  };
  EXPECT_EQ(who({}, mask), "");
  EXPECT_EQ(who({{2, 6, 54321}}, mask), "user 54321, by its ACL");
  EXPECT_EQ(who({{2, 4, 54321}}, mask), "") << "it may only read";
  EXPECT_EQ(who({{2, 6, 54321}}, {16, 5, kNoId}), "") << "the mask forbids it";
  EXPECT_EQ(who({{2, 6, 0}, {2, 7, ::geteuid()}, {8, 7, 0}}, mask), "");
  EXPECT_EQ(who({{8, 2, 777}}, mask), "group 777, by its ACL");
}

TEST(Acls, ThatAreInvalidGrantEverything) {
  const std::string good = acl_value({{1, 6, kNoId}});
  EXPECT_EQ(who_writes_by_acl_value(good), "");
  for (const std::string& bad : {std::string(), good.substr(0, 3), good.substr(0, 9), good + "x",
                                 std::string(4, '\1') + good.substr(4)})
    EXPECT_NE(who_writes_by_acl_value(bad), "") << bad.size();
}

TEST(Acls, OfAFileThatHasNoneAreEmpty) {
  EXPECT_EQ(who_writes_by_acl("/"), "");
  EXPECT_NE(who_writes_by_acl("/no/such/file"), "");
}

}  // namespace
}  // namespace yard::base
