// SPDX-License-Identifier: Apache-2.0
#include <hwy/targets.h>

#include <algorithm>
#include <set>

#include "testing_reference.h"

namespace yard::simd {
namespace {

TEST(Plugin, HasAKernelForEveryOpOfTheReference) {
  const yard_plugin_t* p = descriptor();
  EXPECT_EQ(p, descriptor());
  EXPECT_EQ(p->op_count, 0u);
  std::set<std::string> ours, theirs;
  for (uint32_t i = 0; i < p->kernel_count; ++i) ours.insert(p->kernels[i]->op);
  const yard_plugin_t* reference = reference::descriptor();
  for (uint32_t i = 0; i < reference->kernel_count; ++i) theirs.insert(reference->kernels[i]->op);
  EXPECT_EQ(ours, theirs);
}

TEST(Plugin, ClaimsDenseRowsOnly) {
  const yard_plugin_t* p = descriptor();
  for (uint32_t i = 0; i < p->kernel_count; ++i) {
    const yard_kernel_t& k = *p->kernels[i];
    EXPECT_TRUE(std::string(k.id).starts_with("default.simd"));
    EXPECT_STREQ(k.backend, "simd");
    EXPECT_EQ(k.kind, YARD_KIND_DEFAULT);
    EXPECT_TRUE(std::any_of(k.limits, k.limits + k.limit_count, [](const yard_limit_t& l) {
      return l.kind == YARD_LIMIT_INNER_DENSE;
    })) << k.op;
    EXPECT_NE(k.cost, nullptr);
  }
}

#if defined(__x86_64__)
// A virtual machine may have one feature without the other.
TEST(Plugin, AsksForAllFeaturesThatProductsOfPairsNeed) {
  const yard_plugin_t* p = descriptor();
  for (uint32_t i = 0; i < p->kernel_count; ++i) {
    const yard_kernel_t& k = *p->kernels[i];
    if (std::string(k.id) != "default.simd_bf16") continue;
    EXPECT_STREQ(k.features, "avx512bw avx512bf16") << k.op;
  }
}
#endif

TEST(Plugin, RefusesAProcessorWithoutItsInstructionSets) {
  const yard_backend_t& backend = *descriptor()->backends[0];
  yard_verdict_t why{};
  hwy::SetSupportedTargetsForTest(HWY_SCALAR);
  const int32_t answer = backend.probe(nullptr, nullptr, {1, 0}, &why);
  hwy::SetSupportedTargetsForTest(0);
  EXPECT_EQ(answer, YARD_DECLINED);
  EXPECT_EQ(why.reason, YARD_REASON_OWN);
}

}  // namespace
}  // namespace yard::simd
