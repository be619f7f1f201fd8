// SPDX-License-Identifier: Apache-2.0
#include "op/call_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yard::op {
namespace {

std::string line_of(const std::string& call) {
  const CallSpec spec = parse_call_spec(call).value();
  return "yard,exec," + spec.op + ",default.simd," + verbose_arguments(spec) + ",hit,12.4us";
}

TEST(VerboseLine, IsShortForPlainCalls) {
  EXPECT_EQ(line_of("rms_norm(f32[8,4096], f32[4096])@cpu"),
            "yard,exec,rms_norm,default.simd,f32[8,4096] f32[4096],hit,12.4us");
}

TEST(VerboseLine, HoldsTheWholeCall) {
  for (const char* call :
       {"rms_norm(f32[8,4096], f32[4096])@cpu", "rms_norm(f32[8,64;128,1]%16, f32[64], eps=1e-5)",
        "f()", "f(x=none, y=true, z=-3)@cuda:1", "f([f32[2], f32[3]], name=\"a b, c\\\"d\")",
        "rms_norm(f32[8,64], f32[64], out=&x)@cpu", "f(f32[2])@cpu{tenant=B, zone=\"a b\"}"}) {
    const auto spec = parse_call_spec(call);
    ASSERT_TRUE(spec.ok()) << call << ": " << spec.status().to_string();
    const auto again = parse_call_spec(line_of(call));
    ASSERT_TRUE(again.ok()) << line_of(call) << ": " << again.status().to_string();
    EXPECT_EQ(*again, *spec) << line_of(call);
  }
}

TEST(VerboseLine, OtherFormsAreErrors) {
  for (const char* line :
       {"yard,", "yard,exec", "yard,exec,op", "yard,exec,op,k", "yard,exec,op,k,a",
        "yard,exec,op,k,hit,1us", "yard,exec,,k,a,hit,1us", "yard,,,,,,"}) {
    const auto call = parse_call_spec(line);
    EXPECT_FALSE(call.ok()) << line;
    EXPECT_EQ(call.status().code(), Code::kParse) << line;
  }
}

}  // namespace
}  // namespace yard::op
