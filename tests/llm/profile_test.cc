// SPDX-License-Identifier: Apache-2.0
// Profiles list the kernels that served calls, and print as a table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "profile.h"

namespace llm {
namespace {

using yard::In;
using yard::Op;
using yard::Out;
using yard::Status;

using testing::HasSubstr;
using testing::Not;

constexpr Op<void(Out, In, In)> profiled_add{"add"};
constexpr Op<void(Out, In)> profiled_softmax{"softmax"};

struct Profiled {
  std::vector<float> a = std::vector<float>(64, 1), b = a;
  Profile profile;
  Status add(int64_t unread = 0) {
    const auto t = [](std::vector<float>& v) { return yard::view(v, {4, 16}); };
    return profile.call_part(unread, profiled_add, t(b), t(a), t(b));
  }
};

TEST(Profile, NotesWhatServesEachCall) {
  Profiled p;
  ASSERT_TRUE(p.add().ok());
  ASSERT_TRUE(p.add(100).ok());
  EXPECT_EQ(p.b[5], 3);
  EXPECT_TRUE(p.profile.call(profiled_softmax, yard::view(p.b, {64}), yard::view(p.a, {64})).ok());
  ASSERT_EQ(p.profile.entries().size(), 2u);
  const Profile::Entry& e = p.profile.entries()[0];
  EXPECT_STREQ(e.op, "add");
  EXPECT_THAT(e.kernel, HasSubstr("."));
  EXPECT_EQ(e.calls, 2);
  EXPECT_EQ(e.bytes, 2 * 3 * 64 * 4 - 100);
  EXPECT_GT(e.ns, 0);
  EXPECT_NEAR(p.profile.ms(), e.ms() + p.profile.entries()[1].ms(), 1e-9);
}

TEST(Profile, PassesErrorsOn) {
  Profiled p;
  EXPECT_FALSE(p.profile.call(profiled_softmax, yard::view(p.b, {8}), yard::view(p.a, {64})).ok());
}

TEST(Profile, AddsAMultipleOfAnother) {
  Profiled p;
  ASSERT_TRUE(p.add().ok());
  Profile sum;
  sum.add(p.profile, 3), sum.add(p.profile);
  EXPECT_EQ(sum.entries()[0].calls, 4);
  EXPECT_EQ(sum.entries()[0].bytes, 4 * p.profile.entries()[0].bytes);
}

TEST(Profile, PrintsATable) {
  Profiled p;
  ASSERT_TRUE(p.add().ok());
  const std::string plain = p.profile.to_text(), full = p.profile.to_text("decode", 1000, 50);
  EXPECT_THAT(plain, HasSubstr("op  "));
  EXPECT_THAT(plain, HasSubstr("\nadd  "));
  EXPECT_THAT(plain, Not(HasSubstr("of copy")));
  EXPECT_THAT(plain, Not(HasSubstr("outside of kernels")));
  EXPECT_THAT(full, HasSubstr("decode  "));
  EXPECT_THAT(full, HasSubstr("share"));
  EXPECT_THAT(full, HasSubstr("of copy"));
  EXPECT_THAT(full, testing::ContainsRegex("outside of kernels +(999|1000)\\.[0-9]+ +100\\.0%"));
}

}  // namespace
}  // namespace llm
