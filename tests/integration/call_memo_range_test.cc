// SPDX-License-Identifier: Apache-2.0
// Forms that differ in their number of rows share a memo where schema and choice do not depend on it. Such a
// call has the same result as one that is checked and selected.
#include <gtest/gtest.h>
#include <yard/detail/memo.h>

#include <deque>
#include <random>

#include "call_memo_testing.h"
#include "test_scale.h"

namespace yard::testing {
namespace {

constexpr Op<void(Out, In, In)> scale{"scale"};

class CallMemoRange : public ::testing::Test {
 protected:
  // A kernel of higher priority than those before.
  void add(std::vector<yard_limit_t> limits) {
    limits_.push_back(std::move(limits));
    const auto n = static_cast<intptr_t>(limits_.size());
    const std::string& id = ids_.emplace_back("k" + std::to_string(n));
    yard_kernel_t k = kernel_of("scale", id.c_str(), n, static_cast<int32_t>(n));
    k.run = run_packed;
    k.typed = reinterpret_cast<void (*)()>(
        +[](yard_call_t* call, Tensor, Tensor, Tensor) { return note(call); });
    k.typed_signature = "ttt";
    k.limits = limits_.back().data(), k.limit_count = static_cast<uint32_t>(limits_.back().size());
    bare_.add(k).or_throw();
  }
  static void* at(uint64_t address) { return reinterpret_cast<void*>(address); }

  // Makes the call, and compares it with one without memos.
  Outcome agree(const TensorView& out, const TensorView& x, const TensorView& w) {
    const Outcome is = result_of([&] { return on_(out, x, w); });
    const Outcome should = result_of([&] { return on_.with(fresh_)(out, x, w); });
    EXPECT_EQ(is, should);
    // By name, once more for the memo that the first one may have left.
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(result_of([&] { return bare_.runtime.call("scale", {out, x, w}); }), should);
    return is;
  }
  Outcome rows(int64_t n, int64_t d = 8) {
    return agree({at(kOut), DType::f32, {n, d}}, {at(kX), DType::f32, {n, d}},
                 {at(kW), DType::f32, {d}});
  }
  // Makes calls of sizes from n on until the range is remembered, whose place another one may have had.
  void reach(int64_t n) {
    for (int i = 0; i < 20 && !covers(n); ++i) rows(n++);
    ASSERT_TRUE(covers(n));
  }
  // Ranges of the op's calls that this thread remembers and that are current.
  size_t ranges() const {
    size_t n = 0;
    for (const detail::CallMemo& m : detail::t_thread->memos->ranges)
      n += m.site == on_.site()->id && m.route.is_current();
    return n;
  }
  // Whether the range that n is in is remembered.
  bool covers(int64_t n) const {
    for (const detail::CallMemo& m : detail::t_thread->memos->ranges)
      if (m.site == on_.site()->id && m.route.is_current() &&
          static_cast<uint64_t>(n) - m.low <= m.width)
        return true;
    return false;
  }

  static constexpr uint64_t kOut = 1ull << 36, kX = 1ull << 38, kW = 1ull << 40;
  Bare bare_{"scale(out!: T[*rows, d], x: T[*rows, d], w: T[d]) where out may_alias x"};
  std::deque<std::vector<yard_limit_t>> limits_;
  std::deque<std::string> ids_;
  OpOn<void(Out, In, In)> on_ = scale.on(bare_.runtime);
  Options fresh_ = [] {
    Options o;
    o.cache = false;
    return o;
  }();
};

TEST_F(CallMemoRange, ReachesFromOneThresholdToTheNext) {
  add({});
  add({plugin::at_least("rows", 10), plugin::at_most("rows", 99)});
  reach(20);
  EXPECT_TRUE(covers(10));
  EXPECT_TRUE(covers(99));
  EXPECT_FALSE(covers(9));
  EXPECT_FALSE(covers(100));
  for (int64_t n = 1; n <= 300; ++n) EXPECT_EQ(rows(n).kernel, n >= 10 && n <= 99 ? 2 : 1) << n;
  for (int64_t n = 300; n >= 1; --n) EXPECT_EQ(rows(n, 16).kernel, n >= 10 && n <= 99 ? 2 : 1) << n;
}

TEST_F(CallMemoRange, IsNotMadeWhereTheKeyReadsRowsInAnotherWay) {
  add({});
  add({plugin::multiple_of("rows", 8)});
  for (int64_t n = 1; n <= 100; ++n) EXPECT_EQ(rows(n).kernel, n % 8 == 0 ? 2 : 1) << n;
  EXPECT_EQ(ranges(), 0u);
}

TEST_F(CallMemoRange, AFormThatComesAgainGetsAMemoOfItsOwn) {
  add({});
  reach(50);
  ASSERT_TRUE(covers(5));
  const auto is_stored = [&] {
    for (const detail::CallMemo& m : detail::t_thread->memos->of)
      if (m.site == on_.site()->id && m.words[0] >> TensorView::Form::kFirst == 5) return true;
    return false;
  };
  rows(5);
  EXPECT_FALSE(is_stored());
  rows(5);
  EXPECT_TRUE(is_stored());
}

TEST_F(CallMemoRange, EndsWithAChangeOfPolicy) {
  add({});
  add({});
  for (int64_t n = 1; n < 20; ++n) EXPECT_EQ(rows(n).kernel, 2);
  reach(20);
  Policy p;
  p.deny_kernels = {"k2"};
  bare_.runtime.set_policy(p).or_throw();
  EXPECT_EQ(ranges(), 0u);
  for (int64_t n = 40; n < 60; ++n) EXPECT_EQ(rows(n).kernel, 1);
  EXPECT_TRUE(covers(60));  // there is one again
}

TEST_F(CallMemoRange, TensorsThatDoNotFitAreRefused) {
  add({});
  reach(50);
  ASSERT_TRUE(covers(5));
  const TensorView w(at(kW), DType::f32, {8});
  const auto refused = [&](const TensorView& out, const TensorView& x, const TensorView& v) {
    EXPECT_EQ(agree(out, x, v).code, Code::kInvalidArgument);
  };
  const auto matrix = [](uint64_t a, int64_t n, int64_t d, DType t = DType::f32, Device dev = {}) {
    return TensorView(at(a), t, {n, d}, {}, dev);
  };
  refused(matrix(kOut, 5, 8), matrix(kX, 6, 8), w);
  refused(matrix(kOut, 5, 8), matrix(kX, 5, 9), w);
  refused(matrix(kOut, 5, 8), matrix(kX, 5, 8), {at(kW), DType::f32, {7}});
  refused(matrix(kOut, 5, 8), matrix(kX, 5, 8, DType::f16), w);
  refused(matrix(kOut, 5, 8), matrix(kX, 5, 8, DType::f32, {1, 1}), w);
  refused(matrix(kOut, 5, 8), matrix(kX, 5, 8).with_data(nullptr), w);
  refused(matrix(kOut, 5, 8), matrix(kOut + 5 * 32 - 4, 5, 8), w);  // overlaps the last row
  refused(matrix(kOut, 5, 8), matrix(kX, 5, 8), {at(kOut + 5 * 32 - 32), DType::f32, {8}});
  EXPECT_EQ(agree(matrix(kOut, 5, 8), matrix(kOut + 5 * 32, 5, 8), w).code, Code::kOk);
  refused(matrix(kOut, 6, 8), matrix(kOut + 5 * 32, 6, 8), w);  // with one row more it overlaps
}

// Everything at once, at random.
TEST_F(CallMemoRange, RandomCallsAgreeWithFreshOnes) {
  add({});
  add({plugin::at_least("rows", 10)});
  add({plugin::multiple_of("d", 16), plugin::at_most("rows", 200)});
  add({plugin::aligned(64, "x"), plugin::at_least("rows", 37)});
  std::mt19937 random(11);
  const auto of = [&](std::initializer_list<uint64_t> c) {
    return *(c.begin() + random() % c.size());
  };
  size_t fine = 0;
  for (int i = 0; i < fewer(60000) && !HasFailure(); ++i) {
    // More widths than there is room for ranges.
    const auto n = static_cast<int64_t>(random() % 260);
    const auto d =
        static_cast<int64_t>(random() % 2 == 0 ? of({8, 16, 24}) : 8 * (1 + random() % 60));
    const auto bytes = static_cast<uint64_t>(n * d * 4);
    const auto near = [&](uint64_t a) { return a + (random() % 8 == 0 ? of({4, 16, 32, 64}) : 0); };
    const std::vector<int64_t> shape =
        random() % 4 == 0 ? std::vector<int64_t>{n, 2, d} : std::vector<int64_t>{n, d};
    std::vector<int64_t> x_shape = shape, strides;
    if (random() % 16 == 0) x_shape[random() % 2] += 1;
    if (shape.size() == 2 && random() % 8 == 0) strides = {d + static_cast<int64_t>(of({0, 8})), 1};
    const uint64_t out_at = near(kOut);
    uint64_t x_at = near(kX);
    if (random() % 4 == 0) x_at = out_at + of({0, 0, bytes, bytes - 4, 0 - bytes, 4 - bytes, 64});
    const TensorView out(at(out_at), DType::f32, std::span<const int64_t>(shape));
    const TensorView x(at(x_at), DType::f32, std::span<const int64_t>(x_shape),
                       std::span<const int64_t>(strides));
    const TensorView w(at(near(random() % 16 == 0 ? out_at + bytes - 4 : kW)), DType::f32, {d});
    fine += agree(out, x, w).code == Code::kOk;
  }
  EXPECT_GT(fine, fewer(10000u));
  EXPECT_GT(ranges(), 0u);
}

}  // namespace
}  // namespace yard::testing
