// SPDX-License-Identifier: Apache-2.0
// The parts of the command that the built-in kernels cannot put to the test: elements of every dtype,
// tensors made from text, results that differ.
#include <gtest/gtest.h>
#include <yard/runtime.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "compare.h"
#include "elements.h"
#include "tensors.h"

namespace yard::tool {
namespace {

ParsedCall parse(const char* text) { return Runtime::shared().parse(text).value(); }

TEST(Elements, EveryNumberSurvivesARoundTrip) {
  for (const auto& [type, bits] : {std::pair{DType::f16, 16}, std::pair{DType::bf16, 16},
                                   std::pair{DType::f8e4m3, 8}, std::pair{DType::f8e5m2, 8}}) {
    std::set<double> seen;
    for (uint32_t i = 0; i < (1u << bits); ++i) {
      const double v = load(type, &i);
      uint32_t back = 0;
      store(type, &back, v);
      if (std::isnan(v))
        EXPECT_TRUE(std::isnan(load(type, &back)));
      else
        EXPECT_EQ(back, i) << to_string(type);
      seen.insert(v);
    }
    EXPECT_GT(seen.size(), (1u << bits) * 9 / 10);
  }
}

TEST(Elements, RoundsToNearestEven) {
  uint16_t h;
  const auto f16 = [&](double v) { return store(DType::f16, &h, v), load(DType::f16, &h); };
  EXPECT_EQ(f16(1 + 0x1p-11), 1);  // a tie goes to the even neighbour
  EXPECT_EQ(f16(1 + 3 * 0x1p-11), 1 + 0x1p-9);
  EXPECT_EQ(f16(65519.9), 65504);
  EXPECT_EQ(f16(65520), std::numeric_limits<double>::infinity());
  EXPECT_EQ(f16(0x1p-25), 0);
  EXPECT_EQ(f16(0x1.8p-25), 0x1p-24);  // the smallest there is
  EXPECT_EQ(f16(2 - 0x1p-12), 2);      // carries into the exponent
  const auto bf16 = [&](double v) { return store(DType::bf16, &h, v), load(DType::bf16, &h); };
  EXPECT_EQ(bf16(1 + 0x1p-8), 1);
  EXPECT_EQ(bf16(-1.0), -1.0);
  uint8_t b;
  const auto f8 = [&](double v) { return store(DType::f8e4m3, &b, v), load(DType::f8e4m3, &b); };
  EXPECT_EQ(f8(448), 448);
  EXPECT_TRUE(std::isnan(f8(1000)));
}

TEST(Tensors, HaveExactlyTheFormAsked) {
  CallTensors t(parse("softmax(f32[4,8;-16,1]%4, out=f32[4,8;1,4]%16)"), 1);
  ASSERT_EQ(t.args().size(), 2u);
  for (const Arg& a : t.args()) {
    const yard_tensor_t& x = *a.value.c().u.tensor;
    const auto address = reinterpret_cast<uintptr_t>(x.data);
    const uintptr_t align = a.name == "x" ? 4 : 16;
    EXPECT_EQ(address % align, 0u);
    EXPECT_NE(address % (2 * align), 0u);
    EXPECT_EQ(x.strides[0], a.name == "x" ? -16 : 1);
  }
  EXPECT_EQ(t.traffic(), 2u * 4 * 8 * 4);
}

TEST(Tensors, SameSeedSameNumbers) {
  const ParsedCall call = parse("add_rms_norm(bf16[3,8], bf16[3,8], bf16[8])");
  CallTensors a(call, 7), b(call, 7), c(call, 8);
  EXPECT_TRUE(compare(a.written(), b.written(), {}).equal_bits);
  EXPECT_FALSE(compare(a.written(), c.written(), {}).equal_bits);
  ASSERT_EQ(a.written().size(), 2u);  // out and residual
  std::memset(a.written()[1].view->data(), 0, 3 * 8 * 2);
  EXPECT_FALSE(compare(a.written(), b.written(), {}).equal_bits);
  a.restore();
  EXPECT_TRUE(compare(a.written(), b.written(), {}).equal_bits);
}

TEST(Tensors, IndicesLieWithinTheTable) {
  CallTensors t(
      parse("rotary_embedding(f32[500,1,4], positions=i32[500], cos=f32[3,2], sin=f32[3,2])"), 1);
  std::set<int32_t> seen;
  for (const Arg& a : t.args())
    if (a.name == "positions")
      for (int i = 0; i < 500; ++i)
        seen.insert(static_cast<const int32_t*>(a.value.c().u.tensor->data)[i]);
  EXPECT_EQ(seen, (std::set<int32_t>{0, 1, 2}));
}

TEST(Tensors, AnAliasedOutputIsTheInput) {
  CallTensors t(parse("softmax(f32[4,8], out=&x)"), 1);
  ASSERT_EQ(t.args().size(), 2u);
  EXPECT_EQ(t.args()[0].value.c().u.tensor->data, t.args()[1].value.c().u.tensor->data);
  ASSERT_EQ(t.written().size(), 1u);
  EXPECT_EQ(t.written()[0].name, "out");
}

TEST(Compare, FindsTheWorst) {
  const ParsedCall call = parse("softmax(f32[4,8])");
  CallTensors a(call, 1), b(call, 1);
  auto* x = static_cast<float*>(a.written()[0].view->data());
  auto* y = static_cast<float*>(b.written()[0].view->data());
  x[3] = 1.000001f, y[3] = 1.0f;
  Difference d = compare(a.written(), b.written(), {});
  EXPECT_FALSE(d.equal_bits);
  EXPECT_TRUE(d.within);
  x[3 * 8 + 5] = 0.5f;
  d = compare(a.written(), b.written(), {});
  EXPECT_FALSE(d.within);
  EXPECT_EQ(d.worst, "out[3,5]");
  EXPECT_EQ(d.max_abs, 0.5);
  const yard_tolerance_t wide[] = {{YARD_F32, 0, 0, 1}};
  EXPECT_TRUE(compare(a.written(), b.written(), wide).within);
  x[0] = std::nanf(""), y[0] = std::nanf("");
  EXPECT_EQ(compare(a.written(), b.written(), {}).max_abs, 0.5);
  y[0] = 0;
  EXPECT_TRUE(std::isinf(compare(a.written(), b.written(), wide).max_abs));
  EXPECT_FALSE(compare(a.written(), b.written(), wide).within);
}

}  // namespace
}  // namespace yard::tool
