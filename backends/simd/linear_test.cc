// SPDX-License-Identifier: Apache-2.0
// Tests `linear` against sums in double: all weights, odd sizes, strides, special values, pieces.
#include "testing_blocks.h"

namespace yard::simd {
namespace {

using testing::BlockTensor;
using testing::kFloats;
using testing::kFormats;
using testing::Strides;
using testing::TestTensor;

int32_t run_linear(const TestTensor& out, const TestTensor& x, const yard_tensor_t* weight,
                   const TestTensor* scale = nullptr, const TestTensor* bias = nullptr,
                   const yard_host_t* host = nullptr) {
  const Tensor s(scale != nullptr ? scale->c() : nullptr), b(bias != nullptr ? bias->c() : nullptr);
  const Tensor o(out.c()), in(x.c()), w(weight);
  const auto bytes = static_cast<size_t>(linear_workspace(o, in, w, s, b));
  struct alignas(64) Line {
    char bytes[64];
  };
  std::vector<Line> workspace((bytes + 63) / 64);
  yard_call_t call{};
  call.size = sizeof call, call.host = host;
  call.workspace = workspace.data(), call.workspace_size = bytes;
  return linear(Call(&call), o, in, w, s, b);
}

// A result in double, and |x| |w|, which is sqrt(k) times the size of a typical result.
struct Expected {
  double value = 0, norm = 0;
};
template <class W>
Expected expected(const std::vector<double>& x, int64_t row, int64_t k, const W& w, double scale,
                  double bias) {
  Expected e;
  double xx = 0, ww = 0;
  for (int64_t i = 0; i < k; ++i) {
    const double a = x[static_cast<size_t>(row * k + i)], b = w(i) * scale;
    e.value += a * b, xx += a * a, ww += b * b;
  }
  e.value += bias;
  e.norm = std::sqrt(xx * ww / static_cast<double>(std::max<int64_t>(k, 1)));
  return e;
}

double rounding(uint32_t dtype) {
  return dtype == YARD_F32 ? 2e-6 : dtype == YARD_F16 ? 1e-3 : 8e-3;
}

struct Shape {
  int64_t rows, n, k;
};

void compare_quantized(uint32_t dtype, Format format, Shape s, bool with_bias) {
  SCOPED_TRACE(::testing::Message() << "format " << static_cast<int>(format) << ", dtype " << dtype
                                    << ", " << s.rows << " x " << s.n << " x " << s.k);
  const auto seed = static_cast<uint32_t>(s.rows * 100 + s.n * 10 + s.k);
  TestTensor x(dtype, {s.rows, s.k}), out(dtype, {s.rows, s.n}), bias(dtype, {s.n}),
      scale(YARD_F32, {s.n});
  fill(x, testing::Contents::kNormal, seed), fill(bias, testing::Contents::kNormal, seed + 1);
  scale.fill(3);
  const BlockTensor w(format, s.n, s.k, seed, 2);
  const bool scaled = format == Format::kI8;
  ASSERT_EQ(run_linear(out, x, w.c(), scaled ? &scale : nullptr, with_bias ? &bias : nullptr),
            YARD_OK);
  const std::vector<double> values = x.values();
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t n = 0; n < s.n; ++n) {
      const auto at = static_cast<size_t>(n);
      const Expected e = expected(
          values, r, s.k, [&](int64_t i) { return w.at(n, i); }, scaled ? scale.at(at) : 1,
          with_bias ? bias.at(at) : 0);
      // Allow five standard deviations for activations of int8.
      ASSERT_NEAR(out.at(static_cast<size_t>(r * s.n + n)), e.value,
                  0.03 * e.norm + rounding(dtype) * (std::abs(e.value) + 1));
    }
  EXPECT_TRUE(out.gaps_intact());
}

TEST(QuantizedLinear, AgreesWithTheDefinition) {
  for (const uint32_t dtype : kFloats)
    for (const Format format : kFormats) {
      const int64_t unit = block_elements(format);
      for (const int64_t rows : {1, 3, 4, 6})
        compare_quantized(dtype, format, {rows, 17, unit * 3}, rows % 2 == 0);
      compare_quantized(dtype, format, {1, 70, 256}, true);
      compare_quantized(dtype, format, {9, 1, unit * 40}, false);
    }
}

// Uses more rows, and more blocks, than are processed at a time.
TEST(QuantizedLinear, TakesManyRowsAndLongOnes) {
  for (const Format format : kFormats) {
    compare_quantized(YARD_F32, format, {131, 20, 256}, true);
    compare_quantized(YARD_F32, format, {5, 20, 1792}, false);
    compare_quantized(YARD_F32, format, {kTileRowsAtATime + 23, 150, 512}, false);
  }
}

// Tiles multiply rows in sixteens, by one or two panels, and store whole panels directly.
TEST(QuantizedLinear, TakesAnyNumberOfRowsInTiles) {
  if (quant_tiles() == nullptr) GTEST_SKIP() << "this processor has no tiles";
  for (const uint32_t dtype : kFloats)
    for (const Format format : kFormats) {
      const int64_t k = format == Format::kI8 ? 301 : block_elements(format) * 9;
      compare_quantized(dtype, format, {kFewestTileRows, 32, k}, false);
      compare_quantized(dtype, format, {33, 16, k}, false);
      compare_quantized(dtype, format, {48, 49, k}, true);
    }
}

TEST(QuantizedLinear, AcceptsEmptySizes) {
  for (const Format format : kFormats)
    for (const Shape s : {Shape{0, 3, 256}, Shape{2, 0, 256}, Shape{2, 3, 0}})
      compare_quantized(YARD_F32, format, s, true);
}

TEST(QuantizedLinear, TakesAnyStridesOfRows) {
  constexpr int64_t kN = 18, kK = 64;
  const BlockTensor w(Format::kQ8_0, kN, kK, 1);
  for (const Strides& strides :
       {Strides{200, 80, 1}, Strides{80, 300, 1}, Strides{-200, 80, 1}, Strides{0, 80, 1}}) {
    TestTensor x(YARD_F32, {3, 2, kK}, strides), compact(YARD_F32, {3, 2, kK});
    fill(x, testing::Contents::kNormal, 2);
    compact.set(x.values());
    TestTensor found(YARD_F32, {3, 2, kN}, Strides{20, 70, 1}), plain(YARD_F32, {3, 2, kN});
    ASSERT_EQ(run_linear(found, x, w.c()), YARD_OK);
    ASSERT_EQ(run_linear(plain, compact, w.c()), YARD_OK);
    EXPECT_EQ(found.values(), plain.values());
    EXPECT_TRUE(found.gaps_intact());
  }
}

// Rows that int8 cannot hold are multiplied in f32, and other rows beside them are not affected.
void keep_special_values(int64_t rows) {
  constexpr int64_t kN = 17, kK = 256;
  constexpr double kInf = HUGE_VAL;
  for (const Format format : kFormats) {
    const BlockTensor w(format, kN, kK, 4);
    TestTensor x(YARD_F32, {rows, kK}), out(YARD_F32, {rows, kN}), scale(YARD_F32, {kN});
    scale.set(std::vector<double>(kN, 1.0));
    std::vector<double> values(static_cast<size_t>(rows * kK));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = (static_cast<double>(i * 7 % 23) - 11) / 8;
    values[kK + 3] = std::nan("");
    values[2 * kK + 5] = kInf;
    for (size_t i = 3 * kK; i < 4 * kK; ++i) values[i] *= 1e-38;
    for (size_t i = 4 * kK; i < 5 * kK; ++i) values[i] *= 1e33;
    x.set(values);
    values = x.values();
    ASSERT_EQ(run_linear(out, x, w.c(), format == Format::kI8 ? &scale : nullptr), YARD_OK);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t n = 0; n < kN; ++n) {
        const double found = out.at(static_cast<size_t>(r * kN + n));
        const Expected e = expected(
            values, r, kK, [&](int64_t i) { return w.at(n, i); }, 1, 0);
        if (r == 1) {
          EXPECT_TRUE(std::isnan(found));
        } else if (r == 2) {
          EXPECT_TRUE(found == e.value || (std::isnan(found) && std::isnan(e.value))) << found;
        } else {
          EXPECT_NEAR(found, e.value, (r == 3 || r == 4 ? 1e-5 : 0.03) * e.norm);
        }
      }
  }
}
TEST(QuantizedLinear, KeepsSpecialValues) { keep_special_values(6); }
TEST(QuantizedLinear, KeepsSpecialValuesInTiles) { keep_special_values(kFewestTileRows + 1); }

// Signs must be right even if f16 hardly holds the results.
TEST(QuantizedLinear, IsExactAtTheEndOfTheRangeOfHalves) {
  constexpr int64_t kN = 64, kK = 256;
  const BlockTensor w(Format::kQ8_0, kN, kK, 4);
  for (const int64_t rows : {int64_t{1}, kFewestTileRows}) {
    TestTensor x(YARD_F16, {rows, kK}), out(YARD_F16, {rows, kN});
    fill(x, testing::Contents::kLarge, 5);
    ASSERT_EQ(run_linear(out, x, w.c()), YARD_OK);
    const std::vector<double> values = x.values();
    for (int64_t i = 0; i < rows * kN; ++i) {
      const Expected e = expected(
          values, i / kN, kK, [&](int64_t at) { return w.at(i % kN, at); }, 1, 0);
      const double rounded = reference::testing::round_to(YARD_F16, e.value),
                   found = out.at(static_cast<size_t>(i));
      EXPECT_TRUE(found == rounded || std::abs(found - rounded) <= 2e-3 * std::abs(rounded))
          << found << " for " << e.value;
    }
  }
}

// Few results are exact, because the largest may be small beside the error of int8.
TEST(QuantizedLinear, ComputesFewResultsInFloat) {
  for (const Format format : kFormats) {
    constexpr int64_t kN = 15, kK = 512;
    const BlockTensor w(format, kN, kK, 4);
    TestTensor x(YARD_F32, {2, kK}), out(YARD_F32, {2, kN}), scale(YARD_F32, {kN});
    scale.set(std::vector<double>(kN, 1.0));
    fill(x, testing::Contents::kNormal, 5);
    ASSERT_EQ(run_linear(out, x, w.c(), format == Format::kI8 ? &scale : nullptr), YARD_OK);
    const std::vector<double> values = x.values();
    for (int64_t r = 0; r < 2; ++r)
      for (int64_t n = 0; n < kN; ++n) {
        const Expected e = expected(
            values, r, kK, [&](int64_t i) { return w.at(n, i); }, 1, 0);
        EXPECT_NEAR(out.at(static_cast<size_t>(r * kN + n)), e.value, 1e-5 * e.norm);
      }
  }
}

// A value of 100 in a block reduces the precision of the other values, unless the block has a rest.
TEST(QuantizedLinear, IsExactBesideLargeValues) {
  constexpr int64_t kN = 64, kK = 512, kRows = 5;  // too few for tiles
  for (const Format format : kFormats) {
    const BlockTensor w(format, kN, kK, 4);
    TestTensor x(YARD_F32, {kRows, kK}), out(YARD_F32, {kRows, kN}), scale(YARD_F32, {kN});
    scale.set(std::vector<double>(kN, 1.0));
    fill(x, testing::Contents::kNormal, 5);
    std::vector<double> values = x.values();
    for (int64_t r = 1; r < kRows; ++r) values[static_cast<size_t>(r * (kK + 40))] = 100;
    x.set(values);
    values = x.values();
    ASSERT_EQ(run_linear(out, x, w.c(), format == Format::kI8 ? &scale : nullptr), YARD_OK);
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t n = 0; n < kN; ++n) {
        const auto weight = [&](int64_t i) { return w.at(n, i); };
        std::vector<double> small = values;
        for (double& v : small)
          if (v == 100) v = 0;
        const double norm = expected(small, r, kK, weight, 1, 0).norm;
        EXPECT_NEAR(out.at(static_cast<size_t>(r * kN + n)),
                    expected(values, r, kK, weight, 1, 0).value, 0.04 * norm);
      }
  }
}

// Tiles add in another order, so that the bits are those of another call that uses tiles.
TEST(QuantizedLinear, GivesTheSameBitsInPiecesAndForAnyNumberOfRows) {
  constexpr int64_t kN = 300, kK = 512, kMost = kTileRowsAtATime + 40;
  for (const int64_t rows : {kFewestTileRows - 1, int64_t{40}, kMost})
    for (const Format format : kFormats) {
      const int64_t few = use_tiles(rows) ? kFewestTileRows : 1;
      const BlockTensor w(format, kN, kK, 5);
      TestTensor x(YARD_F32, {rows, kK}), whole(YARD_F32, {rows, kN}), pieces(YARD_F32, {rows, kN});
      TestTensor some(YARD_F32, {few, kK}), result(YARD_F32, {few, kN}), scale(YARD_F32, {kN});
      fill(x, testing::Contents::kNormal, 6), scale.fill(1);
      std::vector<double> spiky = x.values();
      for (size_t i = 40; i < spiky.size(); i += 1111)
        spiky[i] = 60;  // rows with rests among others
      x.set(spiky);
      const TestTensor* const s = format == Format::kI8 ? &scale : nullptr;
      ASSERT_EQ(run_linear(whole, x, w.c(), s), YARD_OK);
      ASSERT_EQ(run_linear(pieces, x, w.c(), s, nullptr, testing::splitting_host()), YARD_OK);
      EXPECT_TRUE(whole.bytes() == pieces.bytes());
      const std::vector<double> values = x.values(), all = whole.values();
      for (const int64_t row : {int64_t{0}, std::min<int64_t>(6, rows - few), rows - few}) {
        some.set({values.begin() + row * kK, values.begin() + (row + few) * kK});
        ASSERT_EQ(run_linear(result, some, w.c(), s), YARD_OK);
        EXPECT_EQ(result.values(),
                  std::vector<double>(all.begin() + row * kN, all.begin() + (row + few) * kN));
      }
    }
}

void compare_float(uint32_t dtype, uint32_t weight_dtype, Shape s, bool with_bias) {
  SCOPED_TRACE(::testing::Message() << "dtypes " << dtype << ", " << weight_dtype << ", " << s.rows
                                    << " x " << s.n << " x " << s.k);
  TestTensor x(dtype, {s.rows, s.k}), w(weight_dtype, {s.n, s.k}, Strides{s.k + 3, 1});
  TestTensor out(dtype, {s.rows, s.n}), bias(dtype, {s.n});
  fill(x, testing::Contents::kNormal, 1), fill(w, testing::Contents::kNormal, 2);
  fill(bias, testing::Contents::kNormal, 3);
  ASSERT_EQ(run_linear(out, x, w.c(), nullptr, with_bias ? &bias : nullptr), YARD_OK);
  const std::vector<double> values = x.values(), weights = w.values();
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t n = 0; n < s.n; ++n) {
      const auto weight = [&](int64_t i) { return weights[static_cast<size_t>(n * s.k + i)]; };
      const Expected e =
          expected(values, r, s.k, weight, 1, with_bias ? bias.at(static_cast<size_t>(n)) : 0);
      ASSERT_NEAR(out.at(static_cast<size_t>(r * s.n + n)), e.value,
                  rounding(dtype) * (std::abs(e.value) + e.norm + 1e-3));
    }
  EXPECT_TRUE(out.gaps_intact());
}

TEST(FloatLinear, AgreesWithTheDefinition) {
  for (const uint32_t dtype : kFloats)
    for (const uint32_t weight : kFloats) {
      for (const int64_t k : {0, 1, 7, 8, 9, 16, 31, 64, 100, 257})
        compare_float(dtype, weight, {2, 7, k}, k % 2 == 0);
      for (const int64_t rows : {0, 1, 4, 5, 8, 11})
        compare_float(dtype, weight, {rows, 19, 40}, true);
      compare_float(dtype, weight, {3, 0, 8}, true);
    }
}

TEST(FloatLinear, KeepsNanInItsRow) {
  TestTensor x(YARD_BF16, {2, 9}), w(YARD_F16, {2, 9}), out(YARD_BF16, {2, 2});
  x.fill(1), w.fill(2);
  std::vector<double> values = x.values();
  values[12] = std::nan("");
  x.set(values);
  ASSERT_EQ(run_linear(out, x, w.c()), YARD_OK);
  EXPECT_FALSE(std::isnan(out.at(0)) || std::isnan(out.at(1)));
  EXPECT_TRUE(std::isnan(out.at(2)) && std::isnan(out.at(3)));
}

// A single row of x is multiplied with several rows of weights at once.
TEST(FloatLinear, GivesTheSameBitsForAWeightBesideOthers) {
  constexpr int64_t kN = 6;
  for (const uint32_t dtype : kFloats)
    for (const int64_t k : {1, 8, 15, 33, 64, 100, 257, 700}) {
      TestTensor x(YARD_F32, {1, k}), w(dtype, {kN, k}), all(YARD_F32, {1, kN});
      fill(x, testing::Contents::kNormal, 1), fill(w, testing::Contents::kNormal, 2);
      ASSERT_EQ(run_linear(all, x, w.c()), YARD_OK);
      const std::vector<double> weights = w.values();
      for (int64_t n = 0; n < kN; ++n) {
        TestTensor one(dtype, {1, k}), result(YARD_F32, {1, 1});
        one.set({weights.begin() + n * k, weights.begin() + (n + 1) * k});
        ASSERT_EQ(run_linear(result, x, one.c()), YARD_OK);
        EXPECT_EQ(result.at(0), all.at(static_cast<size_t>(n))) << dtype << ", " << k;
      }
    }
}

TEST(FloatLinear, GivesTheSameBitsInPieces) {
  TestTensor x(YARD_F32, {6, 700}), w(YARD_BF16, {130, 700}), whole(YARD_F32, {6, 130}),
      pieces(YARD_F32, {6, 130});
  fill(x, testing::Contents::kNormal, 1), fill(w, testing::Contents::kNormal, 2);
  ASSERT_EQ(run_linear(whole, x, w.c()), YARD_OK);
  ASSERT_EQ(run_linear(pieces, x, w.c(), nullptr, nullptr, testing::splitting_host()), YARD_OK);
  EXPECT_TRUE(whole.bytes() == pieces.bytes());
}

}  // namespace
}  // namespace yard::simd
