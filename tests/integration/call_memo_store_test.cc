// SPDX-License-Identifier: Apache-2.0
// Which forms a thread remembers, and that it compares them in full.
#include <gtest/gtest.h>
#include <yard/detail/memo.h>

#include <deque>
#include <random>

#include "call_memo_testing.h"

namespace yard::testing {
namespace {

// Forms whose hashes are equal are told apart by comparing: the hash of a matrix has its strides as
// three times the first plus the second.
TEST(CallMemoHashes, FormsOfEqualHashAreComparedInFull) {
  Bare bare("two(out!: T[n, m], x: T[n, m])");
  const std::vector<yard_limit_t> dense = {plugin::inner_dense("x")};
  const auto add = [&](const char* id, intptr_t self, const std::vector<yard_limit_t>& limits) {
    yard_kernel_t k = kernel_of("two", id, self, static_cast<int32_t>(self));
    k.run = run_packed;
    k.typed =
        reinterpret_cast<void (*)()>(+[](yard_call_t* call, Tensor, Tensor) { return note(call); });
    k.typed_signature = "tt";
    k.limits = limits.data(), k.limit_count = static_cast<uint32_t>(limits.size());
    bare.add(k).or_throw();
  };
  add("any", 1, {});
  add("dense", 2, dense);
  constexpr Op<void(Out, In)> two{"two"};
  const auto on = two.on(bare.runtime);
  const auto at = [](uint64_t n) { return reinterpret_cast<void*>(n << 36); };
  const TensorView out(at(1), DType::f32, {4, 4});
  const TensorView rows(at(2), DType::f32, {4, 4}, {8, 1}), odd(at(2), DType::f32, {4, 4}, {7, 4});
  ASSERT_EQ(rows.form_hash(), odd.form_hash());
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(result_of([&] { return on(out, rows); }).kernel, 2);
    EXPECT_EQ(result_of([&] { return on(out, odd); }).kernel, 1);
    EXPECT_EQ(result_of([&] { return bare.runtime.call("two", {out, rows}); }).kernel, 2);
    EXPECT_EQ(result_of([&] { return bare.runtime.call("two", {out, odd}); }).kernel, 1);
  }
}

// ---- Which forms are stored ----

// Whether this thread has a current memo of the op's calls whose first tensor has these sizes.
bool is_memoised(const detail::Site* site, int64_t rows, int64_t d) {
  const detail::CallMemos& all = *detail::t_thread->memos;
  for (const detail::CallMemo& m : all.of)
    if (m.key >> 32 == site->id && m.words[2] == static_cast<uint64_t>(rows) &&
        m.words[3] == static_cast<uint64_t>(d) && m.route.is_current())
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
  // The largest divisor up to 7.
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
  ran(45, 1);  // the thread's first call, and the plan of both
  EXPECT_FALSE(is_memoised(on_.site(), 15, 8));
  ran(15);
  EXPECT_FALSE(is_memoised(on_.site(), 15, 8));
  ran(15);
  EXPECT_TRUE(is_memoised(on_.site(), 15, 8));
}

TEST_F(CallMemoStore, MoreFormsThanThereIsRoomForStayRight) {
  std::mt19937 random(3);
  int64_t n = 1;
  for (int i = 0; i < 100000; ++i) {
    if (random() % 3 != 0) n = 1 + static_cast<int64_t>(random() % 1000);
    ASSERT_EQ(ran(n), expected(n)) << n;
  }
}

// A decoder: a few forms in every step, and one that grows.
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

// The same with a growing form that several layers use.
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
