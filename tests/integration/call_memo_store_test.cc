// SPDX-License-Identifier: Apache-2.0
// Tests which forms a thread remembers, and that memos compare forms in full.
#include <gtest/gtest.h>
#include <yard/detail/memo.h>

#include <deque>
#include <map>
#include <random>
#include <tuple>

#include "call_memo_testing.h"

namespace yard::testing {
namespace {

// Memos compare inexact forms in full. The words of these forms are equal, because a size and a
// stride that are too large for a word overlap in it.
TEST(CallMemoHashes, InexactFormsAreComparedInFull) {
  Bare bare("two(out!: T[n, m], x: T[n, m])");
  yard_kernel_t k = kernel_of("two", "any", 1, 1);
  k.run = run_packed;
  k.typed =
      reinterpret_cast<void (*)()>(+[](yard_call_t* call, Tensor, Tensor) { return note(call); });
  k.typed_signature = "tt";
  bare.add(k).or_throw();
  constexpr Op<void(Out, In)> two{"two"};
  const auto on = two.on(bare.runtime);
  const auto at = [](uint64_t n) { return reinterpret_cast<void*>(n << 42); };
  constexpr int64_t kFar = int64_t{1} << 30;  // too far for an exact form
  const TensorView out(at(1), DType::f32, {4, 4});
  const TensorView x(at(2), DType::f32, {4, 4}, {kFar, 1});
  const TensorView elsewhere(at(2), DType::f32, {4, (kFar << 20) + 4}, {kFar, 1});
  ASSERT_FALSE(x.form().is_exact());
  ASSERT_EQ(x.form().head, elsewhere.form().head);
  ASSERT_EQ(x.form().dims, elsewhere.form().dims);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(result_of([&] { return on(out, x); }).kernel, 1);
    EXPECT_EQ(result_of([&] { return on(out, elsewhere); }).code, Code::kInvalidArgument);
    EXPECT_EQ(result_of([&] { return bare.runtime.call("two", {out, x}); }).kernel, 1);
    EXPECT_EQ(result_of([&] {
                return bare.runtime.call("two", {out, elsewhere});
              }).code,
              Code::kInvalidArgument);
  }
}

// Two tensors have the same exact form only if they differ in nothing but their address.
TEST(CallMemoHashes, ExactFormsHoldTheWholeForm) {
  std::mt19937 random(7);
  const auto of = [&](std::initializer_list<int64_t> c) {
    return *(c.begin() + random() % c.size());
  };
  using Meaning = std::tuple<int, int, int, std::vector<int64_t>, std::vector<int64_t>>;
  std::map<std::pair<uint64_t, uint64_t>, Meaning> seen;
  std::map<Meaning, std::pair<uint64_t, uint64_t>> forms;
  size_t exact = 0;
  static float data[4];
  for (int i = 0; i < 200000; ++i) {
    std::vector<int64_t> shape(random() % 6), strides;
    for (int64_t& n : shape) n = of({0, 1, 2, 3, 4, 8, 64, 1 << 20, int64_t{1} << 37, -1});
    if (random() % 2 == 0)
      for (size_t d = 0; d < shape.size(); ++d)
        strides.push_back(of({0, 1, 2, 4, 8, 64, 1 << 20, 1 << 24, -1}));
    const auto dtype = static_cast<DType>(random() % 25);
    const Device device{static_cast<int32_t>(of({0, 1, 2, 31, 32, -1})),
                        static_cast<int32_t>(of({0, 1, 255, 256, -1}))};
    const TensorView v(data, dtype, std::span<const int64_t>(shape),
                       std::span<const int64_t>(strides), device);
    if (!v.form().is_exact()) continue;
    ++exact;
    ASSERT_NE(v.dtype(), DType::invalid);
    const Meaning meaning(static_cast<int>(v.dtype()), v.device().type, v.device().index,
                          {v.shape().begin(), v.shape().end()},
                          {v.strides().begin(), v.strides().end()});
    const std::pair<uint64_t, uint64_t> form(v.form().head, v.form().dims);
    ASSERT_EQ(seen.try_emplace(form, meaning).first->second, meaning);
    ASSERT_EQ(forms.try_emplace(meaning, form).first->second, form);
    // A tensor without data or with an offset has no exact form.
    EXPECT_FALSE(v.with_data(nullptr).form().is_exact());
    EXPECT_EQ(v.with_data(nullptr).with_data(data).form().head, form.first);
    yard_tensor_t shifted = v.c();
    shifted.byte_offset = 4;
    EXPECT_FALSE(TensorView(shifted).form().is_exact());
  }
  EXPECT_GT(exact, 1000u);
}

// ---- Which forms are stored ----

// Returns whether this thread has a current memo for calls of the op with a first tensor of these
// sizes.
bool is_memoised(const detail::Site* site, int64_t rows, int64_t d) {
  const detail::CallMemos& all = *detail::t_thread->memos;
  for (const detail::CallMemo& m : all.of)
    if (m.site == site->id &&
        m.words[0] >> TensorView::Form::kFirst == static_cast<uint64_t>(rows) &&
        (m.words[1] & 0xfffff) == static_cast<uint64_t>(d) && m.route.is_current())
      return true;
  return false;
}

class CallMemoStore : public ::testing::Test {
 protected:
  CallMemoStore() {
    for (intptr_t i = 0; i < 7; ++i) {
      limits_.push_back({plugin::multiple_of("n", i + 1)});
      const std::string& id = ids_.emplace_back("n" + std::to_string(i + 1));
      yard_kernel_t k = kernel_of("two", id.c_str(), i + 1, static_cast<int32_t>(i + 1));
      k.run = run_packed;
      k.typed = reinterpret_cast<void (*)()>(
          +[](yard_call_t* call, Tensor, Tensor) { return note(call); });
      k.typed_signature = "tt";
      k.limits = limits_.back().data(), k.limit_count = 1;
      bare_.add(k).or_throw();
    }
  }
  // Returns the largest divisor up to 7.
  static intptr_t expected(int64_t n) {
    for (intptr_t i = 7; i > 1; --i)
      if (n % i == 0) return i;
    return 1;
  }
  intptr_t ran(int64_t n, int64_t m = 8) {
    const TensorView out(reinterpret_cast<void*>(1ull << 36), DType::f32, {n, m});
    const TensorView x(reinterpret_cast<void*>(1ull << 40), DType::f32, {n, m});
    const Outcome r = result_of([&] { return on_(out, x); });
    return r.code == Code::kOk ? r.kernel : -1;
  }

  static constexpr Op<void(Out, In)> kTwo{"two"};
  Bare bare_{"two(out!: T[n, m], x: T[n, m])"};
  std::deque<std::vector<yard_limit_t>> limits_;
  std::deque<std::string> ids_;
  OpOn<void(Out, In)> on_ = kTwo.on(bare_.runtime);
};

TEST_F(CallMemoStore, AFormIsStoredWhenItComesASecondTime) {
  ran(45, 1);  // the thread's first call makes the plan of both
  EXPECT_FALSE(is_memoised(on_.site(), 15, 8));
  ran(15);
  EXPECT_FALSE(is_memoised(on_.site(), 15, 8));
  ran(15);
  EXPECT_TRUE(is_memoised(on_.site(), 15, 8));
}

TEST_F(CallMemoStore, MoreFormsThanCapacityAreServedCorrectly) {
  std::mt19937 random(3);
  int64_t n = 1;
  for (int i = 0; i < 100000; ++i) {
    if (random() % 3 != 0) n = 1 + static_cast<int64_t>(random() % 1000);
    ASSERT_EQ(ran(n), expected(n)) << n;
  }
}

// Like a decoder, each step makes a few forms that repeat and one that grows.
TEST_F(CallMemoStore, FormsThatComeOnceEvictNone) {
  const auto hot = [&] {
    for (int64_t n = 1; n <= 16; ++n) EXPECT_EQ(ran(n, 16), expected(n));
  };
  for (int i = 0; i < 4; ++i) hot();
  for (int64_t step = 1; step <= 3000; ++step) {
    ASSERT_EQ(ran(step, 8), expected(step));
    for (int64_t n = 1; step % 100 == 0 && n <= 16; ++n)
      ASSERT_TRUE(is_memoised(on_.site(), n, 16)) << n << " after " << step;
    hot();
  }
}

// Several layers use the growing form here.
TEST_F(CallMemoStore, FormsThatComeForAWhileLeaveMostHotOnes) {
  size_t there = 0, looked = 0;
  for (int64_t step = 1; step <= 2000; ++step) {
    for (int i = 0; i < 4; ++i) ASSERT_EQ(ran(step, 8), expected(step));
    for (int64_t n = 1; n <= 16; ++n) {
      ASSERT_EQ(ran(n, 16), expected(n));
      if (step > 10) ++looked, there += is_memoised(on_.site(), n, 16);
    }
  }
  EXPECT_GE(there * 100, looked * 95) << there << " of " << looked;
}

}  // namespace
}  // namespace yard::testing
