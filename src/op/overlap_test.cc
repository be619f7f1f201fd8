// SPDX-License-Identifier: Apache-2.0
// Tests overlap against brute force on small tensors, and on layouts that people use.
#include "op/overlap.h"
#include "op/facts.h"

#include <gtest/gtest.h>
#include <yard/tensor.h>

#include <random>
#include <set>
#include <vector>

#include "op/testing.h"

namespace yard::op {
namespace {

alignas(64) char arena[1 << 16];

TensorView at(int64_t byte, std::vector<int64_t> shape, std::vector<int64_t> strides = {},
              DType dtype = DType::f32) {
  return TensorView(arena + byte, dtype, shape, strides);
}

Overlap both(const TensorView& a, const TensorView& b) {
  const Overlap o = overlap(with_facts(a), with_facts(b));
  EXPECT_EQ(o, overlap(with_facts(b), with_facts(a))) << "order does not matter";
  if (o != Overlap::kNone) {
    EXPECT_TRUE(ranges_may_meet(with_facts(a), with_facts(b)));
    EXPECT_TRUE(ranges_may_meet(with_facts(b), with_facts(a)));
  }
  return o;
}

TEST(Overlap, UsualLayouts) {
  const TensorView x = at(0, {4, 8});
  EXPECT_EQ(both(x, x), Overlap::kSame);
  EXPECT_EQ(both(x, at(0, {4, 8}, {8, 1})), Overlap::kSame);
  EXPECT_EQ(both(x, at(0, {8, 4})), Overlap::kPartial) << "another shape";
  EXPECT_EQ(both(x, at(0, {4, 8}, {}, DType::i32)), Overlap::kPartial) << "another dtype";
  EXPECT_EQ(both(x, at(4 * 32, {4, 8})), Overlap::kNone) << "right behind it";
  EXPECT_EQ(both(x, at(4 * 31, {4, 8})), Overlap::kPartial);
  EXPECT_EQ(both(x, at(2, {4})), Overlap::kPartial) << "between its elements";
}

TEST(Overlap, InterleavedSlicesOfOneBuffer) {
  const TensorView left = at(0, {64, 128}, {256, 1}), right = at(512, {64, 128}, {256, 1});
  EXPECT_EQ(both(left, right), Overlap::kNone);
  EXPECT_EQ(both(left, at(508, {64, 128}, {256, 1})), Overlap::kPartial);
  EXPECT_EQ(both(at(0, {100}, {2}), at(4, {100}, {2})), Overlap::kNone) << "even and odd";
  EXPECT_EQ(both(at(0, {100}, {2}), at(12, {100}, {3})), Overlap::kPartial);
}

TEST(Overlap, NegativeStrides) {
  EXPECT_EQ(both(at(400, {10}, {-1}), at(364, {4})), Overlap::kPartial);
  EXPECT_EQ(both(at(400, {10}, {-1}), at(404, {4})), Overlap::kNone);
  EXPECT_EQ(both(at(400, {10}, {-1}), at(348, {4})), Overlap::kNone);
}

TEST(Overlap, NothingThere) {
  EXPECT_EQ(both(at(0, {4}), at(0, {4}).with_data(nullptr)), Overlap::kNone);
  EXPECT_EQ(both(at(0, {4}), at(0, {0, 4})), Overlap::kNone);
}

TEST(Overlap, SmallElements) {
  EXPECT_EQ(both(at(0, {8}, {}, DType::i4), at(4, {8}, {}, DType::i4)), Overlap::kNone);
  EXPECT_EQ(both(at(0, {9}, {}, DType::i4), at(4, {8}, {}, DType::i4)), Overlap::kPartial);
}

TEST(Overlap, OutlandishStridesAreTakenToOverlap) {
  yard_tensor_t t = with_facts(at(0, {2}));
  const int64_t shape[] = {3, 3}, strides[] = {INT64_MIN + 1, 7};
  t.ndim = 2, t.shape = shape, t.strides = strides;
  t.facts = facts_of(&t);
  ASSERT_NE(t.facts, 0u);
  EXPECT_EQ(overlap(t, with_facts(at(4096, {2}))), Overlap::kPartial);
  EXPECT_TRUE(overlaps_itself(t));
}

TEST(SelfOverlap, UsualLayouts) {
  EXPECT_FALSE(overlaps_itself(with_facts(at(0, {4, 8}))));
  EXPECT_FALSE(overlaps_itself(with_facts(at(0, {4, 8}, {1, 4})))) << "transposed";
  EXPECT_FALSE(overlaps_itself(with_facts(at(0, {4, 8}, {-8, 1}))));
  EXPECT_FALSE(overlaps_itself(with_facts(at(0, {1, 8}, {0, 1})))) << "size 1 has no stride";
  EXPECT_FALSE(overlaps_itself(with_facts(at(0, {0, 8}, {0, 0})))) << "empty";
  EXPECT_FALSE(overlaps_itself(with_facts(at(0, {3, 2, 4}, {2, 1, 6})))) << "permuted";
  EXPECT_TRUE(overlaps_itself(with_facts(at(0, {4, 8}, {0, 1}))));
  EXPECT_TRUE(overlaps_itself(with_facts(at(0, {4, 8}, {7, 1}))));
  EXPECT_TRUE(overlaps_itself(with_facts(at(0, {4, 4}, {1, 1}))));
}

// Returns the bytes of every element, in order of the index.
std::vector<int64_t> addresses(const TensorView& t) {
  std::vector<int64_t> all = {static_cast<char*>(t.data()) - arena};
  for (int k = 0; k < t.rank(); ++k) {
    std::vector<int64_t> next;
    for (int64_t base : all)
      for (int64_t i = 0; i < t.shape()[static_cast<size_t>(k)]; ++i)
        next.push_back(base + i * t.strides()[static_cast<size_t>(k)] * bits(t.dtype()) / 8);
    all = next;
  }
  return all;
}

TEST(Overlap, AgreesWithBruteForce) {
  std::mt19937 random(7);
  const auto below = [&](int n) {
    return static_cast<int64_t>(random() % static_cast<unsigned>(n));
  };
  const auto any = [&] {
    const auto rank = static_cast<size_t>(below(4));
    std::vector<int64_t> shape(rank), strides(rank);
    for (size_t i = 0; i < rank; ++i) shape[i] = below(5), strides[i] = below(24) - 8;
    static constexpr DType kDTypes[] = {DType::f32, DType::i8, DType::f16};
    return at(2048 + below(120), shape, strides, kDTypes[below(3)]);
  };
  int meets = 0, selves = 0;
  for (int i = 0; i < 30000; ++i) {
    const TensorView a = any(), b = any();
    ASSERT_TRUE(a.valid() && b.valid());
    std::set<int64_t> bytes;
    const auto mine = addresses(a);
    for (int64_t first : mine)
      for (int k = 0; k < bits(a.dtype()) / 8; ++k) bytes.insert(first + k);
    bool shared = false;
    for (int64_t first : addresses(b))
      for (int k = 0; k < bits(b.dtype()) / 8; ++k) shared |= bytes.count(first + k) != 0;
    ASSERT_EQ(both(a, b) != Overlap::kNone, shared) << i;
    const bool self = std::set<int64_t>(mine.begin(), mine.end()).size() != mine.size();
    ASSERT_EQ(overlaps_itself(with_facts(a)), self) << i;
    if ((with_facts(a).facts & YARD_FACTS_PLAIN) != 0) {
      ASSERT_FALSE(self) << i;
    }
    meets += shared, selves += self;
  }
  EXPECT_GT(meets, 1000);
  EXPECT_GT(selves, 1000);
}

}  // namespace
}  // namespace yard::op
