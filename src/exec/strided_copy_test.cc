// SPDX-License-Identifier: Apache-2.0
// Compares copies between tensors of any strides and dtypes with element-by-element copies.
#include "exec/mapped_call.h"

#include <gtest/gtest.h>
#include <yard/plugin.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "op/numbers.h"

namespace yard::exec {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::f16, DType::bf16, DType::f64, DType::f8e5m2};
constexpr DType kIntegers[] = {DType::i8,  DType::u8,  DType::i16,
                               DType::u16, DType::i32, DType::i64};

size_t size_of(DType t) { return static_cast<size_t>(bits(t) + 7) / 8; }

class RandomCopy {
 public:
  explicit RandomCopy(uint64_t seed) : random_(seed) {}

  // Copies between random strides of one random shape. Returns an empty text if all elements arrive
  // and nothing else is written.
  std::string check(DType from, DType to) {
    rank_ = static_cast<int32_t>(below(6));
    for (int32_t i = 0; i < rank_; ++i)
      sizes_[i] = below(12) == 0 ? 0 : 1 + below(i < 2 && rank_ < 4 ? 90 : 6);
    make(source_, from, true);
    make(target_, to, false);
    for (size_t i = 0; i < source_.bytes.size(); i += size_of(from))
      op::store(from, source_.bytes.data() + i, static_cast<double>(below(100)));
    const std::vector<std::byte> before = target_.bytes;
    std::vector<std::byte> expected = before;
    each(0, 0, 0, [&](int64_t f, int64_t t) {
      op::store(to, expected.data() + (target_.origin + t) * static_cast<int64_t>(size_of(to)),
                op::load(from, source_.bytes.data() +
                                   (source_.origin + f) * static_cast<int64_t>(size_of(from))));
    });
    copy_elements({at(source_, from), source_.strides, from},
                  {at(target_, to), target_.strides, to}, sizes_, rank_);
    if (expected == target_.bytes) return "";
    std::string text = std::string(to_string(from)) + " to " + to_string(to) + ", sizes";
    for (int32_t i = 0; i < rank_; ++i) text += " " + std::to_string(sizes_[i]);
    return text;
  }

 private:
  struct Memory {
    std::vector<std::byte> bytes;
    int64_t strides[YARD_MAX_RANK];
    int64_t origin;  // the place of element 0
  };

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  // Lays out the dimensions in a random order, with gaps, and some of them backwards. With
  // `may_repeat`, all elements may share one place.
  void make(Memory& m, DType t, bool may_repeat) {
    std::vector<int32_t> order;
    for (int32_t i = 0; i < rank_; ++i) order.push_back(i);
    if (below(2) == 0) std::shuffle(order.begin(), order.end(), random_);
    int64_t step = below(4) == 0 ? 2 : 1;
    m.origin = 0;
    for (size_t i = order.size(); i-- > 0;) {
      const int32_t axis = order[i];
      m.strides[axis] = step;
      step = step * std::max<int64_t>(sizes_[axis], 1) + (below(4) == 0 ? below(5) : 0);
      if (may_repeat && below(12) == 0) {
        m.strides[axis] = 0;
      } else if (below(12) == 0) {
        m.origin += std::max<int64_t>(sizes_[axis] - 1, 0) * m.strides[axis];
        m.strides[axis] = -m.strides[axis];
      }
    }
    m.bytes.assign(static_cast<size_t>(step) * size_of(t), std::byte{0x5a});
  }
  std::byte* at(Memory& m, DType t) {
    return m.bytes.data() + m.origin * static_cast<int64_t>(size_of(t));
  }
  template <class F>
  void each(int32_t axis, int64_t from, int64_t to, const F& f) {
    if (axis == rank_) return f(from, to);
    for (int64_t i = 0; i < sizes_[axis]; ++i)
      each(axis + 1, from + i * source_.strides[axis], to + i * target_.strides[axis], f);
  }

  std::mt19937_64 random_;
  int32_t rank_ = 0;
  int64_t sizes_[YARD_MAX_RANK];
  Memory source_, target_;
};

TEST(StridedCopy, EqualsACopyElementByElement) {
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    std::mt19937_64 random(seed + 77);
    const bool floats = random() % 2 == 0;
    const auto pick = [&]() -> DType {
      return floats ? kFloats[random() % std::size(kFloats)]
                    : kIntegers[random() % std::size(kIntegers)];
    };
    const DType from = pick(), to = pick();
    ASSERT_EQ(RandomCopy(seed).check(from, to), "") << seed;
  }
}

TEST(StridedCopy, MovesTypesThatAreNoNumbers) {
  for (const DType t : {DType::boolean, DType::u8, DType::i4})
    for (uint64_t seed = 0; seed < 50; ++seed)
      ASSERT_EQ(RandomCopy(seed).check(t, t), "") << to_string(t) << seed;
}

TEST(StridedCopy, KeepsAllDigitsOfLargeIntegers) {
  const int64_t one = 1, wide[] = {INT64_MIN + 1, (int64_t{1} << 53) + 1};
  int64_t copied[2] = {};
  const int64_t two = 2;
  copy_elements({reinterpret_cast<const std::byte*>(wide), &one, DType::i64},
                {reinterpret_cast<std::byte*>(copied), &one, DType::i64}, &two, 1);
  EXPECT_EQ(copied[0], wide[0]);
  EXPECT_EQ(copied[1], wide[1]);
  const uint32_t narrow[] = {0xffffffff, 5};
  copy_elements({reinterpret_cast<const std::byte*>(narrow), &one, DType::u32},
                {reinterpret_cast<std::byte*>(copied), &one, DType::i64}, &two, 1);
  EXPECT_EQ(copied[0], 0xffffffffll);
  const int64_t back[] = {-1, 7};
  int32_t small[2];
  copy_elements({reinterpret_cast<const std::byte*>(back), &one, DType::i64},
                {reinterpret_cast<std::byte*>(small), &one, DType::i32}, &two, 1);
  EXPECT_EQ(small[0], -1);
}

// The fast conversions agree with op::load and op::store bit by bit.
TEST(StridedCopy, ConvertsAllSmallFloatsExactly) {
  const int64_t one = 1, all = 65536;
  std::vector<uint16_t> small(65536);
  for (size_t i = 0; i < small.size(); ++i) small[i] = static_cast<uint16_t>(i);
  for (const DType t : {DType::f16, DType::bf16}) {
    std::vector<float> wide(small.size());
    copy_elements({reinterpret_cast<const std::byte*>(small.data()), &one, t},
                  {reinterpret_cast<std::byte*>(wide.data()), &one, DType::f32}, &all, 1);
    for (size_t i = 0; i < small.size(); ++i) {
      const auto expected = static_cast<float>(op::load(t, &small[i]));
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(wide[i])) << i;
        continue;
      }
      ASSERT_EQ(std::memcmp(&expected, &wide[i], sizeof expected), 0) << to_string(t) << " " << i;
    }
  }
}

TEST(StridedCopy, RoundsAsStoreDoes) {
  const int64_t one = 1;
  std::mt19937 random(5);
  std::vector<float> wide;
  for (int i = 0; i < 200000; ++i) {
    const auto u = static_cast<uint32_t>(random());
    float f;
    std::memcpy(&f, &u, sizeof f);
    wide.push_back(f);
    // These numbers are around the steps of f16: halves of its last place, and its smallest
    // numbers.
    wide.push_back(
        std::ldexp(static_cast<float>(random() % 8192) / 2, static_cast<int>(random() % 34) - 26));
  }
  for (const float f :
       {65504.0f, 65519.0f, 65520.0f, 65536.0f, 0.0f, -0.0f, 0x1p-25f, 0x1.8p-25f,
        std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    wide.push_back(f);
  const auto n = static_cast<int64_t>(wide.size());
  for (const DType t : {DType::f16, DType::bf16}) {
    std::vector<uint16_t> small(wide.size());
    copy_elements({reinterpret_cast<const std::byte*>(wide.data()), &one, DType::f32},
                  {reinterpret_cast<std::byte*>(small.data()), &one, t}, &n, 1);
    for (size_t i = 0; i < wide.size(); ++i) {
      uint16_t expected;
      op::store(t, &expected, static_cast<double>(wide[i]));
      if (std::isnan(wide[i])) {
        ASSERT_TRUE(std::isnan(op::load(t, &small[i])));
        continue;
      }
      ASSERT_EQ(small[i], expected) << to_string(t) << " " << wide[i];
    }
  }
}

// A host that runs the pieces of a loop in another order and counts them.
struct SharingHost {
  int pieces = 0;
  int32_t result = YARD_OK;
  yard_host_t host{};
  SharingHost() {
    host.size = sizeof host, host.self = this;
    host.parallel_for = [](void* self, int64_t count, int64_t grain,
                           void (*body)(void*, int64_t, int64_t), void* context) {
      auto& h = *static_cast<SharingHost*>(self);
      for (int64_t at = (count - 1) / grain * grain; at >= 0; at -= grain, ++h.pieces)
        body(context, at, std::min(count, at + grain));
      return h.result;
    };
  }
};

// Copies f32[rows, columns] to a transposed bf16 tensor.
std::vector<uint16_t> transposed(int64_t rows, int64_t columns, const yard_host_t* host) {
  std::vector<float> from(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i % 1009);
  std::vector<uint16_t> to(from.size());
  const int64_t sizes[] = {columns, rows}, from_strides[] = {1, columns}, to_strides[] = {rows, 1};
  copy_elements({reinterpret_cast<const std::byte*>(from.data()), from_strides, DType::f32},
                {reinterpret_cast<std::byte*>(to.data()), to_strides, DType::bf16}, sizes, 2, host);
  return to;
}

TEST(StridedCopy, SharesLargeCopiesOnly) {
  SharingHost few, many;
  EXPECT_TRUE(transposed(512, 1024, &few.host) == transposed(512, 1024, nullptr));
  EXPECT_EQ(few.pieces, 0);  // exactly 1 MiB
  for (const auto& [rows, columns] :
       {std::pair{700, 1500}, std::pair{1500, 701}, std::pair{3, 400000}})
    EXPECT_TRUE(transposed(rows, columns, &many.host) == transposed(rows, columns, nullptr));
  EXPECT_GE(many.pieces, 6);
}

TEST(StridedCopy, CopiesAloneWhereALoopFails) {
  SharingHost broken;
  broken.host.parallel_for = [](void* self, int64_t, int64_t, void (*)(void*, int64_t, int64_t),
                                void*) {
    ++static_cast<SharingHost*>(self)->pieces;
    return int32_t{YARD_FAULT};
  };
  EXPECT_TRUE(transposed(700, 1500, &broken.host) == transposed(700, 1500, nullptr));
  EXPECT_EQ(broken.pieces, 1);
}

}  // namespace
}  // namespace yard::exec
