// SPDX-License-Identifier: Apache-2.0
// Tests how transforms affect the order of kernels, where they are impossible, and explanations.
#include "select/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/plugin.hpp>

#include <nlohmann/json.hpp>

#include "select/testing.h"

namespace yard::select {
namespace {

using plugin::Param;
using plugin::Params;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Ring;

const Params kCompactX = {Param("out"), Param("x").layout("row-major"), Param("bias"),
                          Param("mode"), Param("groups")};
const Params kFloatX = {Param("out"), Param("x").dtypes({YARD_F32}), Param("bias"), Param("mode"),
                        Param("groups")};
const Params kWide = {Param("out"), Param("x").pad(8), Param("bias").pad(8), Param("mode"),
                      Param("groups")};

constexpr const char* kPlain = "norm(f32[4,64])";
constexpr const char* kStrided = "norm(f32[4,64;128,1])";

const char* const kReads[] = {"rows", nullptr};

// Adds a kernel with its own parameters. A negative `ns` means that it states no estimate.
void add(Ring& r, const char* id, const Params* params, double ns, int32_t priority = 0) {
  r.add(id, "plain", YARD_KIND_DEFAULT, [&](yard_kernel_t& d) {
    d.priority = priority;
    if (params != nullptr) d.params = params->list(), d.param_count = params->count();
    if (ns < 0) return;
    d.cost = [](void* self, const int64_t*, uint32_t) {
      return static_cast<double>(reinterpret_cast<intptr_t>(self));
    };
    d.self = reinterpret_cast<void*>(static_cast<intptr_t>(ns));
    d.cost_reads = kReads;
  });
}

TEST(TransformOrder, ACopyCountsInTheEstimate) {
  Ring r;
  add(r, "default.any", nullptr, 2000);
  add(r, "default.compact", &kCompactX, 1900);
  EXPECT_THAT(r.order(kPlain), ElementsAre("default.compact", "default.any"));
  EXPECT_EQ(r.note("default.compact", kPlain).estimate_ns, 1900);
  // The 192 elements are rounded down to a half octave, and are read and written.
  EXPECT_EQ(r.note("default.compact", kStrided).estimate_ns, 1900 + op::transform_ns(256 * 8));
  EXPECT_THAT(r.order(kStrided), ElementsAre("default.any", "default.compact"));
  // The kernel still wins where it is faster by more than the transform.
  add(r, "default.fast", &kCompactX, 100);
  EXPECT_THAT(r.order(kStrided), ElementsAre("default.fast", "default.any", "default.compact"));
}

TEST(TransformOrder, WithoutEstimatesItComesAfterEquals) {
  Ring r;
  add(r, "default.a", &kCompactX, -1);
  add(r, "default.b", nullptr, -1);
  EXPECT_THAT(r.order(kPlain), ElementsAre("default.a", "default.b"));
  EXPECT_THAT(r.order(kStrided), ElementsAre("default.b", "default.a"));
  EXPECT_THAT(r.candidate("default.a", kStrided).detail, HasSubstr("needs no transform"));
  add(r, "default.c", &kCompactX, -1, 200);
  EXPECT_THAT(r.order(kStrided), ElementsAre("default.c", "default.b", "default.a"));
}

TEST(TransformOrder, TheFirstChoiceTellsWhetherItNeedsOne) {
  Ring r;
  add(r, "default.a", &kCompactX, -1);
  const CandidateSet c = r.candidates();
  for (const char* spec : {kPlain, kStrided}) {
    const op::Call call = r.call(spec);
    const Order order = select(c, call.args(), call.count(), call.flags());
    EXPECT_EQ(order.transforms, spec == kStrided);
  }
}

TEST(ForbiddenTransforms, RejectTheKernelWhereOneIsNeeded) {
  Ring r;
  add(r, "default.a", &kCompactX, -1);
  r.policy.transforms["norm"] = false;
  EXPECT_EQ(r.reason("default.a", kPlain), YARD_REASON_NONE);
  EXPECT_EQ(r.reason("default.a", kStrided), YARD_REASON_TRANSFORM);
  const Candidate c = r.candidate("default.a", kStrided);
  EXPECT_EQ(c.reason, "transform");
  EXPECT_EQ(c.detail,
            "x needs a transform (make contiguous), and policy forbids transforms for the op");
  EXPECT_THAT(r.explain(kStrided).counterfactuals,
              ElementsAre("transforms excluded default.a, which would have been first"));
}

TEST(ForbiddenTransforms, AnExactNameBeatsAGlob) {
  Ring r;
  add(r, "default.a", &kCompactX, -1);
  r.policy.transforms = {{"*", false}};
  EXPECT_EQ(r.reason("default.a", kStrided), YARD_REASON_TRANSFORM);
  r.policy.transforms = {{"*", false}, {"nor*", true}};
  EXPECT_EQ(r.reason("default.a", kStrided), YARD_REASON_NONE);
  r.policy.transforms = {{"*", true}, {"nor*", true}, {"norm", false}};
  EXPECT_EQ(r.reason("default.a", kStrided), YARD_REASON_TRANSFORM);
}

TEST(ForbiddenTransforms, AlsoOnDevicesWhoseMemoryTheHostCannotCopy) {
  Ring r;
  yard_backend_t gpu = testing::backend_of("gpu");
  gpu.device_type = 2;
  r.shelf.put(gpu);
  r.add("default.gpu", "gpu", YARD_KIND_DEFAULT,
        [](yard_kernel_t& d) { d.params = kCompactX.list(), d.param_count = kCompactX.count(); });
  EXPECT_EQ(r.reason("default.gpu", "norm(f32[4,64])@cuda"), YARD_REASON_NONE);
  EXPECT_EQ(r.reason("default.gpu", "norm(f32[4,64;128,1])@cuda"), YARD_REASON_TRANSFORM);
  EXPECT_THAT(r.candidate("default.gpu", "norm(f32[4,64;128,1])@cuda").detail,
              HasSubstr("its own memory only"));
}

TEST(TransformLimits, ADtypeThatCannotBeConvertedIsALimit) {
  Ring r;
  add(r, "default.f", &kFloatX, -1);
  EXPECT_EQ(r.reason("default.f", "norm(bf16[4,64])"), YARD_REASON_NONE);
  EXPECT_EQ(r.note("default.f", "norm(bf16[4,64])").transforms.size(), 1u);
  EXPECT_EQ(r.reason("default.f", "norm(f64[4,64])"), YARD_REASON_DTYPE);
  EXPECT_EQ(r.candidate("default.f", "norm(f64[4,64])").detail,
            "x is f64; it takes f32, and what can be converted to that without loss");
}

TEST(TransformLimits, BlocksCannotBeTransformed) {
  Ring r;
  add(r, "default.wide", &kWide, -1);
  EXPECT_EQ(r.reason("default.wide", "norm(q8_0[4,64])"), YARD_REASON_NONE);
  add(r, "default.compact", &kCompactX, -1);
  EXPECT_EQ(r.reason("default.compact", "norm(q8_0[4,64;128,1])"), YARD_REASON_TRANSFORM);
  EXPECT_THAT(r.candidate("default.compact", "norm(q8_0[4,64;128,1])").detail,
              HasSubstr("cannot transform its dtype"));
}

TEST(TransformNotes, AreInTheExplanation) {
  Ring r;
  add(r, "default.wide", &kWide, 50);
  const std::string spec = "norm(bf16[4,60],bf16[60])";
  const Explanation e = r.explain(spec);
  ASSERT_EQ(e.candidates[0].transforms.size(), 2u);
  EXPECT_EQ(e.candidates[0].transforms[0].argument, "x");
  EXPECT_EQ(e.candidates[0].transforms[0].what, "pad");
  EXPECT_EQ(e.candidates[0].transforms[1].argument, "bias");
  EXPECT_THAT(e.to_text(), HasSubstr("transforms: x (pad, ~196 ns); bias (pad, ~124 ns)"));
  const auto parsed = nlohmann::json::parse(e.to_json());
  const auto& c = parsed["candidates"][0];
  EXPECT_EQ(c["transforms"][0]["argument"], "x");
  EXPECT_EQ(c["transforms"][1]["what"], "pad");
  EXPECT_EQ(c["estimate_ns"].get<double>(), 50 + c["transforms"][0]["estimate_ns"].get<double>() +
                                                c["transforms"][1]["estimate_ns"].get<double>());
  EXPECT_TRUE(
      nlohmann::json::parse(r.explain("norm(bf16[4,64])").to_json())["candidates"][0]["transforms"]
          .empty());
}

}  // namespace
}  // namespace yard::select
