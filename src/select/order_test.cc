// SPDX-License-Identifier: Apache-2.0
// Tests the total order of kernels: force, lock, order of the op, kind, estimate, priority, id.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "select/testing.h"

namespace yard::select {
namespace {

using ::testing::ElementsAre;
using testing::Ring;

Ring field() {
  Ring r;
  r.add("default.a").add("vendor.acme", "acme", YARD_KIND_VENDOR);
  r.add("vendor.other", "other", YARD_KIND_VENDOR)
      .add("reference.cpp", "plain", YARD_KIND_REFERENCE);
  return r;
}

TEST(Order, WithoutPreferenceDefaultAndVendorCompeteByPriority) {
  Ring r = field();
  EXPECT_THAT(r.order(), ElementsAre("default.a", "vendor.acme", "vendor.other", "reference.cpp"));
  r.add("vendor.fast", "acme", YARD_KIND_VENDOR, 200);
  r.add("reference.eager", "plain", YARD_KIND_REFERENCE, 1000);
  EXPECT_THAT(r.order(), ElementsAre("vendor.fast", "default.a", "vendor.acme", "vendor.other",
                                     "reference.eager", "reference.cpp"));
}

TEST(Order, PreferSetsTheOrderOfKinds) {
  Ring r = field();
  r.policy.prefer = Kind::kDefault;
  EXPECT_THAT(r.order(), ElementsAre("default.a", "vendor.acme", "vendor.other", "reference.cpp"));
  r.policy.prefer = Kind::kVendor;
  EXPECT_THAT(r.order(), ElementsAre("vendor.acme", "vendor.other", "default.a", "reference.cpp"));
  r.policy.prefer = Kind::kReference;
  EXPECT_THAT(r.order(), ElementsAre("reference.cpp", "default.a", "vendor.acme", "vendor.other"));
  // Kinds come before priorities.
  r.add("vendor.top", "acme", YARD_KIND_VENDOR, 1000);
  r.policy.prefer = Kind::kDefault;
  EXPECT_THAT(r.order(), ElementsAre("default.a", "vendor.top", "vendor.acme", "vendor.other",
                                     "reference.cpp"));
}

TEST(Order, ForceBeatsLockBeatsTheOpsOrder) {
  Ring r = field();
  r.policy.per_op["norm"] = {"reference"};
  EXPECT_THAT(r.order(), ElementsAre("reference.cpp"));
  r.policy.locks["norm"] = "vendor.other";
  EXPECT_THAT(r.order(), ElementsAre("vendor.other"));
  r.force = "vendor.acme";
  EXPECT_THAT(r.order(), ElementsAre("vendor.acme"));
  r.force = "vendor.nobody";
  EXPECT_TRUE(r.order().empty());
}

TEST(Order, AnExactLockBeatsAGlobAndALongGlobAShortOne) {
  Ring r = field();
  r.policy.locks["*"] = "default.a";
  r.policy.locks["softmax"] = "reference.cpp";
  EXPECT_THAT(r.order(), ElementsAre("default.a"));
  r.policy.locks["no*"] = "vendor.acme";
  EXPECT_THAT(r.order(), ElementsAre("vendor.acme"));
  r.policy.locks["norm"] = "vendor.other";
  EXPECT_THAT(r.order(), ElementsAre("vendor.other"));
}

TEST(Order, OfTheOpIsExhaustive) {
  Ring r = field();
  r.policy.per_op["norm"] = {"vendor:other", "reference", "impl:default.a"};
  EXPECT_THAT(r.order(), ElementsAre("vendor.other", "reference.cpp", "default.a"));
  EXPECT_EQ(r.reason("vendor.acme"), YARD_REASON_NOT_IN_ORDER);
  r.policy.per_op["norm"] = {"vendor", "default"};
  EXPECT_THAT(r.order(), ElementsAre("vendor.acme", "vendor.other", "default.a"));
  EXPECT_EQ(r.reason("reference.cpp"), YARD_REASON_NOT_IN_ORDER);
  r.policy.per_op["norm"] = {"vendor:nobody", "impl:nothing"};
  EXPECT_TRUE(r.order().empty());
  // An order of another op has no effect here. Kernels that one token names keep their own order.
  r.policy.per_op.clear();
  r.policy.per_op["softmax"] = {"reference"};
  EXPECT_EQ(r.order().size(), 4u);
  r.policy.per_op["norm"] = {"vendor"};
  r.policy.prefer = Kind::kReference;
  EXPECT_THAT(r.order(), ElementsAre("vendor.acme", "vendor.other"));
}

TEST(Order, TokensNameVendorsOfAnyKind) {
  Ring r = field();
  r.add("default.acme", "acme");
  r.policy.per_op["norm"] = {"vendor:acme"};
  EXPECT_THAT(r.order(), ElementsAre("default.acme", "vendor.acme"));
}

// ---- Estimates ---------------------------------------------------------------------------------

void costs(Ring& r, const char* id, decltype(yard_kernel_t::cost) cost, int32_t priority = 0) {
  static const char* const reads[] = {"hidden", nullptr};
  r.add(id, "plain", YARD_KIND_DEFAULT,
        [&](yard_kernel_t& d) { d.cost = cost, d.cost_reads = reads, d.priority = priority; });
}

TEST(Order, EstimatesDecideIfAllStateOne) {
  Ring r;
  costs(
      r, "default.slow", [](void*, const int64_t* f, uint32_t) { return double(f[0]) * 2; }, 900);
  costs(
      r, "default.fast", [](void*, const int64_t* f, uint32_t) { return double(f[0]); }, 1);
  EXPECT_THAT(r.order(), ElementsAre("default.fast", "default.slow"));
  EXPECT_EQ(r.note("default.fast").estimate_ns, 64);
  r.add("default.silent", "plain", YARD_KIND_DEFAULT, 500);
  EXPECT_THAT(r.order(), ElementsAre("default.slow", "default.silent", "default.fast"));
  // A kernel that is excluded, or in a later tier, does not matter.
  r.policy.deny_kernels = {"default.silent"};
  r.add("reference.cpp", "plain", YARD_KIND_REFERENCE);
  EXPECT_THAT(r.order(), ElementsAre("default.fast", "default.slow", "reference.cpp"));
}

TEST(Order, EstimatesSeeOnlyBuckets) {
  Ring r;
  costs(r, "default.c", [](void*, const int64_t* f, uint32_t n) {
    EXPECT_EQ(n, 1u);
    return double(f[0]);
  });
  EXPECT_EQ(r.note("default.c", "norm(f32[4,64])").estimate_ns, 64);
  EXPECT_EQ(r.note("default.c", "norm(f32[4,95])").estimate_ns, 64);
  EXPECT_EQ(r.note("default.c", "norm(f32[4,96])").estimate_ns, 96);
  EXPECT_EQ(r.note("default.c", "norm(f32[4,0])").estimate_ns, 0);
}

TEST(Order, EstimatesThatAreNone) {
  using Cost = decltype(yard_kernel_t::cost);
  const Cost nones[] = {
      [](void*, const int64_t*, uint32_t) { return -1.0; },
      [](void*, const int64_t*, uint32_t) { return std::nan(""); },
      [](void*, const int64_t*, uint32_t) { return HUGE_VAL; },
      [](void*, const int64_t*, uint32_t) -> double { throw 1; },
  };
  for (Cost none : nones) {
    Ring r;
    costs(r, "default.none", none, 10);
    costs(
        r, "default.some", [](void*, const int64_t*, uint32_t) { return 5.0; }, 20);
    EXPECT_EQ(r.note("default.none").estimate_ns, -1);
    EXPECT_THAT(r.order(), ElementsAre("default.some", "default.none"));
  }
}

TEST(Order, EqualEstimatesFallToPriorityAndThenToTheId) {
  Ring r;
  const auto same = [](void*, const int64_t*, uint32_t) { return 5.0; };
  costs(r, "default.b", same, 10);
  costs(r, "default.a", same, 10);
  costs(r, "default.c", same, 20);
  EXPECT_THAT(r.order(), ElementsAre("default.c", "default.a", "default.b"));
}

TEST(Order, StrictIsThePolicys) {
  Ring r = field();
  r.policy.strict = true;
  EXPECT_TRUE(r.candidates().strict());
  EXPECT_EQ(r.order().size(), 4u);  // the executor takes only the first
  r.policy.strict = false;
  EXPECT_FALSE(r.candidates().strict());
}

TEST(Order, AnOpWithoutKernelsHasNone) {
  const Ring r;
  EXPECT_TRUE(r.order().empty());
}

}  // namespace
}  // namespace yard::select
