// SPDX-License-Identifier: Apache-2.0
#include "dispatch/call.h"

#include <gtest/gtest.h>
#include <yard/call_spec.h>

#include <random>

#include "dispatch/core.h"
#include "op/facts.h"
#include "registry/testing.h"

namespace yard::dispatch {
namespace {

// The fast path for views must compute the facts that facts_of() computes.
TEST(WithFacts, ViewsHaveTheFactsOfTheirTensors) {
  std::mt19937 random(5);
  const auto of = [&](std::initializer_list<int64_t> c) {
    return *(c.begin() + random() % c.size());
  };
  size_t readable = 0;
  for (int i = 0; i < 200000; ++i) {
    std::vector<int64_t> shape(random() % 5), strides;
    for (int64_t& n : shape)
      n = of({0, 1, 2, 3, 7, 64, 4096, 1 << 19, 1 << 20, 1 << 30, int64_t{1} << 36, -1});
    if (random() % 3 == 0)
      for (size_t d = 0; d < shape.size(); ++d) strides.push_back(of({0, 1, 2, 7, 64, 4096, -1}));
    const Device device{static_cast<int32_t>(of({0, 1, 2, 31, 32})),
                        static_cast<int32_t>(of({0, 1, 255, 256}))};
    const TensorView v(reinterpret_cast<void*>(of({0, 1, 2, 12, 16, 32, 64, 128})),
                       static_cast<DType>(random() % 20), std::span<const int64_t>(shape),
                       std::span<const int64_t>(strides), device);
    const yard_value_t arg = Value(v).c();
    const uint64_t facts = WithFacts({&arg, 1, Cells::kAllViews}).args()[0].u.tensor->facts;
    ASSERT_EQ(facts, op::facts_of(&v.c()));
    readable += facts != 0;
  }
  EXPECT_GT(readable, 10000u);
}

TEST(Site, FollowsAnOpThatComesBackWithOtherParameters) {
  using registry::testing::add;
  using registry::testing::op_of;
  Core core(nullptr, 64);
  core.published.apply({add(op_of("op(out!: T[n], x: T[n])"))}).value();
  Status why;
  Site* const site = core.sites.attach("op", kPackedLetters, &why);
  ASSERT_NE(site, nullptr) << why.to_string();
  EXPECT_EQ(site->count.load(), 2u);
  EXPECT_EQ(site->tensors.load(), 0b11u);
  EXPECT_EQ(site->written.load(), 0b1u);
  core.published
      .apply({registry::RemoveOp{"op"},
              add(op_of("op(x: T[n], by: float = 1.0, out!: T[n], y: T[n])"))})
      .value();
  EXPECT_EQ(core.sites.attach("op", kPackedLetters, &why), site);
  EXPECT_EQ(site->count.load(), 4u);
  EXPECT_EQ(site->tensors.load(), 0b1101u);
  EXPECT_EQ(site->written.load(), 0b10u);
}

}  // namespace
}  // namespace yard::dispatch
