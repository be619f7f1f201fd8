// SPDX-License-Identifier: Apache-2.0
// Tests norms, activations and softmax against the reference kernels: every dtype, widths around
// the widths of vectors and blocks, strides, special values, calls in place, pieces.
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "rows.h"
#include "testing_reference.h"

namespace yard::simd {
namespace {

using testing::Contents;
using testing::expect_near;
using testing::fill;
using testing::kContents;
using testing::kFloats;
using testing::Strides;
using testing::TestTensor;

constexpr int64_t kWidths[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 257, 1000};

struct Tensors {
  Tensors(uint32_t dtype, int64_t rows, int64_t width, Contents contents, uint32_t seed)
      : x(dtype, {rows, width}),
        residual(dtype, {rows, width}),
        weight(dtype, {width}),
        bias(dtype, {width}),
        wide(dtype, {rows, 2 * width}) {
    fill(x, contents, seed);
    fill(residual, contents, seed + 1);
    fill(weight, Contents::kNormal, seed + 2);
    fill(bias, Contents::kNormal, seed + 3);
    fill(wide, contents, seed + 4);
  }
  TestTensor x, residual, weight, bias, wide;
};

void compare_all(uint32_t dtype, int64_t rows, int64_t width, Contents contents,
                 double eps = 1e-5) {
  Tensors t(dtype, rows, width, contents, static_cast<uint32_t>(width * 31 + rows));
  const auto check = [&](const char* op, const auto&... in) {
    TestTensor found(dtype, {rows, width}), expected(dtype, {rows, width});
    const std::vector<uint8_t> before = t.x.bytes();
    ASSERT_EQ(testing::run(op, found, in...).code, YARD_OK);
    ASSERT_EQ(reference::testing::run(op, expected, in...).code, YARD_OK);
    expect_near(op, found, expected);
    EXPECT_EQ(t.x.bytes(), before);
  };
  check("rms_norm", t.x, t.weight, eps);
  check("layer_norm", t.x, t.weight, t.bias, eps);
  check("layer_norm", t.x, nullptr, nullptr, eps);
  check("layer_norm", t.x, t.weight, nullptr, eps);
  check("layer_norm", t.x, nullptr, t.bias, eps);
  check("softmax", t.x);
  check("silu_and_mul", t.wide);
  check("gelu_and_mul", t.wide, int64_t{0});
  check("gelu_and_mul", t.wide, int64_t{1});

  TestTensor found(dtype, {rows, width}), expected(dtype, {rows, width});
  TestTensor residual(dtype, {rows, width});
  residual.set(t.residual.values());
  ASSERT_EQ(testing::run("add_rms_norm", found, residual, t.x, t.weight, eps).code, YARD_OK);
  ASSERT_EQ(reference::testing::run("add_rms_norm", expected, t.residual, t.x, t.weight, eps).code,
            YARD_OK);
  expect_near("add_rms_norm", found, expected);
  expect_near("add_rms_norm", residual, t.residual);
}

TEST(Kernels, AgreeWithTheReferenceAtAnyWidth) {
  for (const uint32_t dtype : kFloats)
    for (const int64_t width : kWidths) compare_all(dtype, 3, width, Contents::kNormal);
}

TEST(Kernels, AgreeOnLongRows) {
  for (const uint32_t dtype : kFloats)
    for (const int64_t width : {4095, 4096, 4097, 20001})
      compare_all(dtype, 2, width, Contents::kNormal);
}

TEST(Kernels, AgreeOnSpecialValues) {
  for (const uint32_t dtype : kFloats)
    for (const Contents contents : kContents)
      for (const int64_t width : {1, 5, 33, 300}) {
        SCOPED_TRACE(static_cast<int>(contents));
        compare_all(dtype, 8, width, contents);
        if (contents != Contents::kDenormal) compare_all(dtype, 8, width, contents, 0.0);
      }
}

TEST(Kernels, AcceptEmptyTensors) {
  for (const uint32_t dtype : kFloats) {
    compare_all(dtype, 0, 8, Contents::kNormal);
    compare_all(dtype, 3, 0, Contents::kNormal);
    compare_all(dtype, 0, 0, Contents::kNormal);
  }
}

// The squares of these elements leave the range of f32.
TEST(Norms, ScaleRowsThatOverflowOrUnderflow) {
  for (const uint32_t dtype : {uint32_t{YARD_F32}, uint32_t{YARD_BF16}})
    for (const double size : {1e38, 1e25, 1e-12, 1e-20, 1e-30, 1e-38})
      for (const double eps : {0.0, 1e-40, 1e-6}) {
        constexpr int64_t kWidth = 37;
        TestTensor x(dtype, {2, kWidth}), w(dtype, {kWidth});
        std::vector<double> values;
        for (int i = 0; i < 2 * kWidth; ++i) values.push_back(size * (0.5 + (i * 7 % 11) / 8.0));
        x.set(values);
        fill(w, Contents::kNormal, 5);
        TestTensor found(dtype, {2, kWidth}), expected(dtype, {2, kWidth});
        SCOPED_TRACE(size);
        ASSERT_EQ(testing::run("rms_norm", found, x, w, eps).code, YARD_OK);
        ASSERT_EQ(reference::testing::run("rms_norm", expected, x, w, eps).code, YARD_OK);
        expect_near("rms_norm", found, expected);
        ASSERT_EQ(testing::run("layer_norm", found, x, w, nullptr, eps).code, YARD_OK);
        ASSERT_EQ(reference::testing::run("layer_norm", expected, x, w, nullptr, eps).code,
                  YARD_OK);
        expect_near("layer_norm", found, expected);
      }
}

TEST(Kernels, WorkInPlace) {
  for (const uint32_t dtype : kFloats)
    for (const int64_t width : {9, 64, 100}) {
      Tensors t(dtype, 4, width, Contents::kNormal, 3);
      TestTensor expected(dtype, {4, width}), x(dtype, {4, width});
      const auto check = [&](const char* op, const auto&... rest) {
        x.set(t.x.values());
        ASSERT_EQ(reference::testing::run(op, expected, t.x, rest...).code, YARD_OK);
        ASSERT_EQ(testing::run(op, x, x, rest...).code, YARD_OK);
        expect_near(op, x, expected);
      };
      check("rms_norm", t.weight, 1e-6);
      check("layer_norm", t.weight, t.bias, 1e-6);
      check("softmax");
      x.set(t.x.values());
      TestTensor residual(dtype, {4, width});
      residual.set(t.residual.values());
      ASSERT_EQ(
          reference::testing::run("add_rms_norm", expected, t.residual, t.x, t.weight, 1e-6).code,
          YARD_OK);
      ASSERT_EQ(testing::run("add_rms_norm", x, residual, x, t.weight, 1e-6).code, YARD_OK);
      expect_near("add_rms_norm", x, expected);
      expect_near("add_rms_norm", residual, t.residual);
    }
}

// Leading dimensions may be padded, swapped, backwards, or overlapping.
TEST(Kernels, TakeAnyStridesOfRows) {
  constexpr int64_t kWidth = 21;
  const Strides all[] = {{100, 50, 1}, {30, 90, 1}, {-100, 30, 1},
                         {0, 30, 1},   {0, 0, 1},   {30, 0, 1}};
  for (const uint32_t dtype : kFloats)
    for (const Strides& strides : all) {
      TestTensor x(dtype, {3, 2, kWidth}, strides), weight(dtype, {kWidth});
      fill(x, Contents::kNormal, 1);
      fill(weight, Contents::kNormal, 2);
      TestTensor found(dtype, {3, 2, kWidth}, Strides{25, 80, 1}), expected(dtype, {3, 2, kWidth});
      ASSERT_EQ(testing::run("rms_norm", found, x, weight, 1e-6).code, YARD_OK);
      ASSERT_EQ(reference::testing::run("rms_norm", expected, x, weight, 1e-6).code, YARD_OK);
      expect_near("rms_norm", found, expected);
      ASSERT_EQ(testing::run("softmax", found, x).code, YARD_OK);
      ASSERT_EQ(reference::testing::run("softmax", expected, x).code, YARD_OK);
      expect_near("softmax", found, expected);
    }
}

TEST(Kernels, TakeOneRowWithoutLeadingDimensions) {
  for (const uint32_t dtype : kFloats) {
    TestTensor x(dtype, {50}), found(dtype, {50}), expected(dtype, {50});
    fill(x, Contents::kNormal, 1);
    ASSERT_EQ(testing::run("softmax", found, x).code, YARD_OK);
    ASSERT_EQ(reference::testing::run("softmax", expected, x).code, YARD_OK);
    expect_near("softmax", found, expected);
  }
}

// The division of rows among threads changes no bit.
TEST(Kernels, GiveTheSameBitsInChunks) {
  for (const uint32_t dtype : kFloats) {
    // Each row is long enough to be a piece.
    constexpr int64_t kRows = 2, kWidth = 140001;
    Tensors t(dtype, kRows, kWidth, Contents::kNormal, 9);
    const auto check = [&](const char* op, const auto&... in) {
      TestTensor whole(dtype, {kRows, kWidth}), pieces(dtype, {kRows, kWidth});
      ASSERT_EQ(testing::run(op, whole, in...).code, YARD_OK);
      ASSERT_EQ(testing::run_on(testing::splitting_host(), op, pieces, in...).code, YARD_OK);
      EXPECT_TRUE(whole.bytes() == pieces.bytes()) << op;
    };
    check("rms_norm", t.x, t.weight, 1e-6);
    check("layer_norm", t.x, t.weight, t.bias, 1e-6);
    check("softmax", t.x);
    check("silu_and_mul", t.wide);
    check("gelu_and_mul", t.wide, int64_t{0});
  }
}

// Rows that begin at a vector boundary, like the tensors of real programs.
struct AlignedRows {
  AlignedRows(uint32_t dtype, int64_t rows, int64_t width, int64_t stride)
      : shape{rows, width}, strides{stride, 1} {
    t.device = {1, 0}, t.ndim = 2, t.dtype = reference::testing::dlpack(dtype);
    t.shape = shape, t.strides = strides;
    row_bytes = static_cast<size_t>(stride) * (t.dtype.bits / 8);
    used = static_cast<size_t>(width) * (t.dtype.bits / 8);
    bytes = (static_cast<size_t>(rows) * row_bytes + 63) / 64 * 64;
    memory.reset(static_cast<uint8_t*>(std::aligned_alloc(64, bytes)));
    std::fill_n(memory.get(), bytes, kGap);
    t.data = memory.get();
  }
  const yard_tensor_t* c() const { return &t; }
  // Returns the elements, after checking that nothing was written between them.
  std::vector<uint8_t> elements() const {
    std::vector<uint8_t> to;
    for (size_t i = 0; i < bytes; ++i) {
      const bool element = i / row_bytes < static_cast<size_t>(shape[0]) && i % row_bytes < used;
      if (element)
        to.push_back(memory.get()[i]);
      else
        EXPECT_EQ(memory.get()[i], kGap) << i;
    }
    return to;
  }

  static constexpr uint8_t kGap = 0xa5;
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  int64_t shape[2], strides[2];
  size_t row_bytes, used, bytes;
  std::unique_ptr<uint8_t, Free> memory;
  yard_tensor_t t{};
};

// Outputs of large calls bypass the caches in aligned rows. In steps of 104 elements, some rows
// are.
TEST(Kernels, GiveTheSameBitsPastTheCaches) {
  const int64_t cached = cached_bytes();
  for (const uint32_t dtype : kFloats)
    for (const int64_t width : {16, 64, 100, 257, 1000})
      for (const int64_t stride : {int64_t{1024}, (width + 7) / 8 * 8}) {
        constexpr int64_t kRows = 9;
        Tensors t(dtype, kRows, width, Contents::kNormal, static_cast<uint32_t>(width));
        const auto check = [&](const char* op, const auto&... in) {
          SCOPED_TRACE(op);
          AlignedRows past(dtype, kRows, width, stride), plain(dtype, kRows, width, stride);
          cached_bytes() = 0;
          EXPECT_EQ(testing::run(op, past.c(), in...).code, YARD_OK);
          cached_bytes() = INT64_MAX;
          EXPECT_EQ(testing::run(op, plain.c(), in...).code, YARD_OK);
          EXPECT_TRUE(past.elements() == plain.elements());
        };
        check("rms_norm", t.x, t.weight, 1e-6);
        check("layer_norm", t.x, t.weight, t.bias, 1e-6);
        check("silu_and_mul", t.wide);
        check("gelu_and_mul", t.wide, int64_t{0});
        check("add", t.x, t.residual);
        check("mul", t.x, t.residual);
      }
  cached_bytes() = cached;
}

TEST(Kernels, BypassTheCachesForLargeCallsThatAreNotInPlace) {
  const int64_t cached = cached_bytes();
  EXPECT_GE(cached, int64_t{1} << 20);
  EXPECT_LE(cached, (int64_t{4} << 20) * sysconf(_SC_NPROCESSORS_ONLN));
  TestTensor x(YARD_F32, {4, 64}), y(YARD_F32, {4, 64}), out(YARD_F32, {4, 64});
  const Tensor of_out(out.c()), of_x(x.c()), of_y(y.c());
  cached_bytes() = 3 * 4 * 64 * 4;
  EXPECT_FALSE(streams(of_out, {of_x, of_y}));
  --cached_bytes();
  EXPECT_TRUE(streams(of_out, {of_x, of_y}));
  EXPECT_FALSE(streams(of_out, {of_x}));
  EXPECT_FALSE(streams(of_x, {of_x, of_y}));
  cached_bytes() = cached;
}

}  // namespace
}  // namespace yard::simd
