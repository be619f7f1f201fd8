// SPDX-License-Identifier: Apache-2.0
// Tests `matmul` against the reference: sizes around tiles, strides, special values, pieces.
#include "testing_reference.h"

namespace yard::simd {
namespace {

using testing::Contents;
using testing::expect_near;
using testing::fill;
using testing::kFloats;
using testing::Strides;
using testing::TestTensor;

void compare_products(const TestTensor& found, const TestTensor& a, const TestTensor& b,
                      std::vector<int64_t> shape) {
  TestTensor expected(a.dtype(), std::move(shape));
  ASSERT_EQ(testing::run("matmul", found, a, b).code, YARD_OK);
  ASSERT_EQ(reference::testing::run("matmul", expected, a, b).code, YARD_OK);
  expect_near("matmul", found, expected);
}

TEST(Matmul, AgreesWithTheReferenceAtAnySize) {
  for (const uint32_t dtype : kFloats)
    for (const int64_t m : {1, 2, 5, 6, 7, 13, 129})
      for (const int64_t n : {1, 3, 8, 31, 32, 33, 70})
        for (const int64_t k : {0, 1, 5, 33, 128, 300}) {
          SCOPED_TRACE(::testing::Message() << m << " x " << n << " x " << k);
          TestTensor a(dtype, {m, k}), b(dtype, {k, n}), out(dtype, {m, n});
          fill(a, Contents::kNormal, static_cast<uint32_t>(m + k));
          fill(b, Contents::kNormal, static_cast<uint32_t>(n + k + 1));
          compare_products(out, a, b, {m, n});
        }
}

// Few rows are multiplied with parts of the rows of `b`.
TEST(Matmul, AgreesOnWideRows) {
  for (const uint32_t dtype : kFloats)
    for (const int64_t m : {1, 8, 9}) {
      TestTensor a(dtype, {2, m, 11}), b(dtype, {2, 11, 1100}), out(dtype, {2, m, 1100});
      fill(a, Contents::kNormal, 5), fill(b, Contents::kNormal, 6);
      compare_products(out, a, b, {2, m, 1100});
    }
}

TEST(Matmul, TakesAnyStridesOfItsMatrices) {
  constexpr int64_t kM = 9, kN = 37, kK = 150;
  // Padded, transposed, every other element, backwards, and one matrix for the whole batch.
  const Strides of_a[] = {
      {2000, 160, 1}, {2000, 1, kM}, {4000, 400, 2}, {-1600, 160, 1}, {0, 160, 1}};
  const Strides of_b[] = {{7000, 40, 1}, {7000, 1, kK}, {14000, 90, 2}, {-7000, 40, 1}, {0, 1, kK}};
  for (const uint32_t dtype : kFloats)
    for (const Strides& strides_of_a : of_a)
      for (const Strides& strides_of_b : of_b) {
        TestTensor a(dtype, {2, kM, kK}, strides_of_a), b(dtype, {2, kK, kN}, strides_of_b);
        fill(a, Contents::kNormal, 1), fill(b, Contents::kNormal, 2);
        TestTensor out(dtype, {2, kM, kN}, Strides{45, 120, 1});
        compare_products(out, a, b, {2, kM, kN});
      }
}

TEST(Matmul, AgreesOnSpecialValues) {
  for (const uint32_t dtype : kFloats)
    for (const Contents contents :
         {Contents::kNan, Contents::kInfinity, Contents::kDenormal, Contents::kZero}) {
      SCOPED_TRACE(static_cast<int>(contents));
      TestTensor a(dtype, {7, 40}), b(dtype, {40, 35}), out(dtype, {7, 35});
      fill(a, contents, 3), fill(b, Contents::kNormal, 4);
      compare_products(out, a, b, {7, 35});
      fill(a, Contents::kNormal, 3), fill(b, contents, 4);
      compare_products(out, a, b, {7, 35});
    }
}

// Some results are small beside the others of their row, which f16 cannot hold.
TEST(Matmul, IsExactWhereTermsCancel) {
  for (const int64_t m : {3, 66}) {
    TestTensor a(YARD_F32, {m, 5000}), b(YARD_F32, {5000, 40}), out(YARD_F32, {m, 40}),
        expected(YARD_F32, {m, 40});
    fill(a, Contents::kNormal, 1), fill(b, Contents::kNormal, 2);
    ASSERT_EQ(testing::run("matmul", out, a, b).code, YARD_OK);
    ASSERT_EQ(reference::testing::run("matmul", expected, a, b).code, YARD_OK);
    for (size_t i = 0; i < out.size(); ++i)
      EXPECT_NEAR(out.at(i), expected.at(i), 1e-4 + 1e-5 * std::abs(expected.at(i)));
    TestTensor c(YARD_F16, {m, 64}), d(YARD_F16, {64, 600}), large(YARD_F16, {m, 600});
    fill(c, Contents::kLarge, 1), fill(d, Contents::kLarge, 2);
    compare_products(large, c, d, {m, 600});
  }
}

TEST(Matmul, AcceptsEmptyTensors) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{0, 3, 4}, {3, 0, 4}, {0, 0, 0}}) {
    TestTensor a(YARD_F32, {m, k}), b(YARD_F32, {k, n}), out(YARD_F32, {m, n});
    compare_products(out, a, b, {m, n});
  }
}

// Threads, and the rows and columns beside it, do not change a result.
TEST(Matmul, GivesTheSameBitsInPieces) {
  for (const uint32_t dtype : kFloats) {
    constexpr int64_t kM = 140, kN = 70, kK = 300;
    TestTensor a(dtype, {2, kM, kK}), b(dtype, {2, kK, kN});
    fill(a, Contents::kNormal, 1), fill(b, Contents::kNormal, 2);
    TestTensor whole(dtype, {2, kM, kN}), pieces(dtype, {2, kM, kN}), row(dtype, {1, kN});
    ASSERT_EQ(testing::run("matmul", whole, a, b).code, YARD_OK);
    ASSERT_EQ(testing::run_on(testing::splitting_host(), "matmul", pieces, a, b).code, YARD_OK);
    EXPECT_TRUE(whole.bytes() == pieces.bytes());
    TestTensor one(dtype, {1, kK}), right(dtype, {kK, kN});
    const std::vector<double> of_a = a.values(), of_b = b.values(), all = whole.values();
    right.set({of_b.begin(), of_b.begin() + kK * kN});
    for (const int64_t r : {0, 5, 133}) {
      one.set({of_a.begin() + r * kK, of_a.begin() + (r + 1) * kK});
      ASSERT_EQ(testing::run("matmul", row, one, right).code, YARD_OK);
      EXPECT_EQ(row.values(),
                (std::vector<double>{all.begin() + r * kN, all.begin() + (r + 1) * kN}));
    }
  }
}

}  // namespace
}  // namespace yard::simd
