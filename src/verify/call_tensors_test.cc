// SPDX-License-Identifier: Apache-2.0
// Tests CallTensors and compare(): layouts, contents, out-of-bounds writes, differing results.
#include <gmock/gmock.h>
#include <yard/call_spec.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "op/testing.h"
#include "verify/elements.h"
#include "verify/testing.h"

namespace yard::verification::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSoftmax = "softmax(out!: T[*rows, d], x: T[*rows, d]) where out may_alias x";

TEST(CallTensors, HaveTheRequestedLayout) {
  CallTensors t(parse(kSoftmax, "softmax(f32[4,8;-16,1]%4, out=f32[4,8;1,4]%16)"), 1);
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

TEST(CallTensors, TheSeedDeterminesTheContents) {
  const ParsedCall call = parse(op::kAddRmsNorm, "add_rms_norm(bf16[3,8], bf16[3,8], bf16[8])");
  CallTensors a(call, 7), b(call, 7), c(call, 8);
  EXPECT_TRUE(compare(a.written(), b.written(), {}).equal_bits);
  EXPECT_FALSE(compare(a.written(), c.written(), {}).equal_bits);
  ASSERT_EQ(a.written().size(), 2u);  // out and residual
  std::memset(a.written()[1].view->data(), 0, 3 * 8 * 2);
  EXPECT_FALSE(compare(a.written(), b.written(), {}).equal_bits);
  a.restore();
  EXPECT_TRUE(compare(a.written(), b.written(), {}).equal_bits);
}

TEST(CallTensors, IndicesLieWithinTheTable) {
  CallTensors t(
      parse(op::kRotary,
            "rotary_embedding(f32[500,1,4], positions=i32[500], cos=f32[3,2], sin=f32[3,2])"),
      1);
  std::set<int32_t> seen;
  for (const Arg& a : t.args())
    if (a.name == "positions")
      for (int i = 0; i < 500; ++i)
        seen.insert(static_cast<const int32_t*>(a.value.c().u.tensor->data)[i]);
  EXPECT_EQ(seen, (std::set<int32_t>{0, 1, 2}));
}

TEST(CallTensors, ElementsAreThoseOfTheSchema) {
  const auto seen = [](const char* clause, const char* call) {
    const std::string schema =
        std::string("f(out!: f32[n], ids: i32[n], table: f32[m, k], mask?: f32[n]) where ") +
        clause;
    const CallTensors t(parse(schema.c_str(), call), 1);
    std::set<int32_t> to;
    for (const Arg& a : t.args())
      if (a.name == "ids")
        for (int i = 0; i < 500; ++i)
          to.insert(static_cast<const int32_t*>(a.value.c().u.tensor->data)[i]);
    return to;
  };
  const char* call = "f(i32[500], f32[3,2])";
  EXPECT_EQ(seen("ids in [1, m)", call), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(seen("ids in [-1, m]", call), (std::set<int32_t>{-1, 0, 1, 2, 3}));
  EXPECT_EQ(seen("ids in [0, m*k)", call), (std::set<int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(seen("ids in [2, 3]", call), (std::set<int32_t>{2, 3}));
  EXPECT_EQ(seen("ids in [100000, 100001]", call), (std::set<int32_t>{100000, 100001}));
  // Empty ranges, and ranges beyond the dtype, are not errors.
  EXPECT_EQ(seen("ids in [7, 3)", call).size(), 1u);
  EXPECT_EQ(*seen("ids in [9223372036854775807, 3)", call).begin(), INT32_MAX);
  EXPECT_EQ(*seen("ids in [-9223372036854775808, -9223372036854775808)", call).begin(), INT32_MIN);
  EXPECT_GT(seen("ids in [0, 9223372036854775807]", call).size(), 400u);
  // The first clause that applies counts.
  const char* guarded = "ids in [7, 7] if mask, ids in [8, 8] unless mask";
  EXPECT_EQ(seen(guarded, call), (std::set<int32_t>{8}));
  EXPECT_EQ(seen(guarded, "f(i32[500], f32[3,2], f32[500])"), (std::set<int32_t>{7}));
}

TEST(CallTensors, SmallIntegersAreData) {
  const CallTensors t(parse("f(out!: f32[n], x: i8[n], table: f32[m, k])", "f(i8[500], f32[3,2])"),
                      1);
  for (const Arg& a : t.args()) {
    if (a.name != "x") continue;
    const auto* x = static_cast<const int8_t*>(a.value.c().u.tensor->data);
    EXPECT_LT(*std::min_element(x, x + 500), -50);
    EXPECT_GT(*std::max_element(x, x + 500), 50);
  }
}

TEST(CallTensors, AnAliasedOutputIsTheInput) {
  CallTensors t(parse(kSoftmax, "softmax(f32[4,8], out=&x)"), 1);
  ASSERT_EQ(t.args().size(), 2u);
  EXPECT_EQ(t.args()[0].value.c().u.tensor->data, t.args()[1].value.c().u.tensor->data);
  ASSERT_EQ(t.written().size(), 1u);
  EXPECT_EQ(t.written()[0].name, "out");
}

TEST(CallTensors, EveryKindOfContents) {
  const ParsedCall call = parse(kSoftmax, "softmax(f16[64,33], out=&x)");
  const auto share = [&](Contents contents, auto holds) {
    const CallTensors t(call, 5, contents);
    size_t n = 0, all = 0;
    for_each_element(*t.written()[0].view,
                     [&](const char* at) { ++all, n += holds(load(DType::f16, at)) ? 1 : 0; });
    return static_cast<double>(n) / static_cast<double>(all);
  };
  EXPECT_EQ(share(Contents::kNormal, [](double v) { return std::fabs(v) <= 6; }), 1);
  EXPECT_NEAR(share(Contents::kNormal, [](double v) { return std::fabs(v) < 1; }), 0.68, 0.05);
  const double nans = share(Contents::kNan, [](double v) { return std::isnan(v); });
  EXPECT_TRUE(nans > 0.01 && nans < 0.1) << nans;
  EXPECT_GT(share(Contents::kInfinity, [](double v) { return std::isinf(v) && v > 0; }), 0.005);
  EXPECT_GT(share(Contents::kInfinity, [](double v) { return std::isinf(v) && v < 0; }), 0.005);
  EXPECT_GT(share(Contents::kDenormal, [](double v) { return std::fabs(v) < 0x1p-14; }), 0.8);
  EXPECT_EQ(share(Contents::kZero, [](double v) { return v == 0; }), 1);
  EXPECT_GT(share(Contents::kZero, [](double v) { return std::signbit(v); }), 0.3);
  EXPECT_GT(share(Contents::kLarge, [](double v) { return std::fabs(v) > 1000; }), 0.8);
  EXPECT_EQ(share(Contents::kLarge, [](double v) { return std::isfinite(v); }), 1);
  for (const Contents c : all_contents()) EXPECT_EQ(parse_contents(to_string(c)), c);
  EXPECT_FALSE(parse_contents("numbers").has_value());
}

TEST(CallTensors, IntegersThatAreDataHaveBothSigns) {
  const CallTensors t(parse("f(x~: T[n])", "f(i8[500])"), 1);
  const auto* x = static_cast<const int8_t*>(t.written()[0].view->data());
  EXPECT_LT(*std::min_element(x, x + 500), -50);
  EXPECT_GT(*std::max_element(x, x + 500), 50);
}

TEST(CallTensors, DamageIsLocated) {
  const ParsedCall call = parse(kSoftmax, "softmax(f32[4,8], out=f32[4,8;10,1])");
  CallTensors t(call, 1);
  auto* out = static_cast<float*>(t.written()[0].view->data());
  out[0] = 1, out[3 * 10 + 7] = 2;
  EXPECT_EQ(t.damage(), "");
  EXPECT_THAT(t.damage(true), HasSubstr("'out', at byte 0"));
  out[8] = 3;
  EXPECT_THAT(t.damage(), HasSubstr("'out', at byte 32, between its elements"));
  t.restore();
  EXPECT_EQ(t.damage(true), "");
  out[3 * 10 + 8] = 1;
  EXPECT_THAT(t.damage(), HasSubstr("'out', 0 bytes after its last element"));
  t.restore();
  reinterpret_cast<char*>(out)[-3] = 1;
  EXPECT_THAT(t.damage(), HasSubstr("'out', 3 bytes before its first element"));
  t.restore();
  for (const Arg& a : t.args())
    if (a.name == "x") static_cast<char*>(a.value.c().u.tensor->data)[5] ^= 1;
  EXPECT_THAT(t.damage(), HasSubstr("changed 'x', which is only read, at byte 5"));
}

TEST(CallTensors, AnEmptyTensorHasGuardsToo) {
  CallTensors t(parse(kSoftmax, "softmax(f32[0,8])"), 1);
  EXPECT_EQ(t.damage(), "");
  static_cast<float*>(t.written()[0].view->data())[0] = 1;
  EXPECT_THAT(t.damage(), HasSubstr("'out'"));
}

TEST(CallTensors, ScramblingLeavesInputsAlone) {
  const ParsedCall call = parse(op::kAddRmsNorm, "add_rms_norm(f32[3,8], f32[3,8], f32[8])");
  CallTensors a(call, 7), b(call, 7);
  a.scramble();
  EXPECT_EQ(a.damage(), "");
  EXPECT_NE(a.bits(), b.bits());
  a.restore();
  EXPECT_EQ(a.bits(), b.bits());
}

// A tolerance for an input applies if the call reads a tensor of that dtype. The first one that
// applies counts.
TEST(Compare, TakesTheToleranceOfItsInputs) {
  constexpr const char* kProducts =
      "linear(out!: T[*rows, n], x: T[*rows, k], weight: W[n, k]) "
      "where T in {f32, f16}, W in {f32, i8, q8_0}";
  const yard_tolerance_t tolerances[] = {{YARD_F16, YARD_Q8_0, 0, 9},
                                         {YARD_F32, YARD_Q8_0, 0, 0.3},
                                         {YARD_F32, 0, 0, 0.1},
                                         {YARD_F32, YARD_I8, 0, 9}};
  const auto within = [&](const char* text, float off) {
    const ParsedCall call = parse(kProducts, text);
    CallTensors a(call, 1), b(call, 1);
    static_cast<float*>(a.written()[0].view->data())[1] = off;
    for (int64_t i = 0; i < 4; ++i) static_cast<float*>(b.written()[0].view->data())[i] = 0;
    for (const int64_t i : {0, 2, 3}) static_cast<float*>(a.written()[0].view->data())[i] = 0;
    return compare(a.written(), b.written(), tolerances).within;
  };
  EXPECT_TRUE(within("linear(f32[1,32], q8_0[4,32])", 0.25f));
  EXPECT_FALSE(within("linear(f32[1,32], q8_0[4,32])", 0.35f));
  EXPECT_FALSE(within("linear(f32[1,32], f32[4,32])", 0.25f));
  EXPECT_TRUE(within("linear(f32[1,32], f32[4,32])", 0.05f));
  EXPECT_FALSE(within("linear(f32[1,32], i8[4,32])", 0.25f));
}

TEST(Compare, FindsTheWorst) {
  const ParsedCall call = parse(kSoftmax, "softmax(f32[4,8])");
  CallTensors a(call, 1), b(call, 1);
  auto* x = static_cast<float*>(a.written()[0].view->data());
  auto* y = static_cast<float*>(b.written()[0].view->data());
  std::fill(x, x + 32, 1.0f), std::fill(y, y + 32, 1.0f);
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

struct Pair {
  explicit Pair(const char* text) : call(parse(kSoftmax, text)), a(call, 1), b(call, 1) {}
  // Writes `found` and `expected` into one element.
  void set(size_t i, double found, double expected) {
    const DType t = a.written()[0].view->dtype();
    const size_t size = element_size(t);
    store(t, static_cast<char*>(a.written()[0].view->data()) + i * size, found);
    store(t, static_cast<char*>(b.written()[0].view->data()) + i * size, expected);
  }
  void fill(double v) {
    for (int64_t i = 0; i < a.written()[0].view->numel(); ++i) set(static_cast<size_t>(i), v, v);
  }
  Difference difference() const { return compare(a.written(), b.written(), {}); }
  ParsedCall call;
  CallTensors a, b;
};

TEST(Compare, TheAbsoluteToleranceScalesWithTheRow) {
  Pair p("softmax(f32[2,8])");
  p.fill(0);
  p.set(1, 1e-3, 0);
  EXPECT_FALSE(p.difference().within);
  p.set(0, 1000, 1000);
  EXPECT_TRUE(p.difference().within);
  p.set(9, 1e-3, 0);  // the other row
  EXPECT_FALSE(p.difference().within);
  EXPECT_EQ(p.difference().worst, "out[1,1]");
}

TEST(Compare, TheAbsoluteToleranceScalesWithTheMagnitude) {
  Pair p("softmax(f32[2,8])");
  p.fill(0);
  p.set(1, 1e-3, 0);
  CallTensors m(p.call, 1);
  auto* const of = static_cast<float*>(m.written()[0].view->data());
  const auto within = [&] { return compare(p.a.written(), p.b.written(), {}, m.written()).within; };
  std::fill(of, of + 16, 0.0f);
  EXPECT_FALSE(within());
  of[0] = 1000;  // another element of its row
  EXPECT_FALSE(within());
  of[1] = 1000;
  EXPECT_TRUE(within());
  of[1] = std::nanf("");
  EXPECT_FALSE(within());
  of[1] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(within());
  p.set(1, std::nanf(""), 0);
  EXPECT_FALSE(within());
}

TEST(Compare, TheRatioIsInUnitsOfTheTolerance) {
  Pair p("softmax(f32[1,1])");
  p.set(0, 0.5 + 3 * (1e-5 + 1e-5 * 0.5), 0.5);
  EXPECT_NEAR(p.difference().ratio, 3, 0.01);
}

TEST(Compare, InfinityIsOneStepBeyondTheLargestNumber) {
  const double inf = std::numeric_limits<double>::infinity();
  Pair p("softmax(f16[1,4])");
  p.fill(1);
  p.set(0, 65504, inf);
  EXPECT_TRUE(p.difference().within);
  EXPECT_TRUE(std::isinf(p.difference().max_abs));
  p.set(0, inf, 65504);
  EXPECT_TRUE(p.difference().within);
  p.set(0, 60000, inf);
  EXPECT_FALSE(p.difference().within);
  p.set(0, -65504, inf);
  EXPECT_FALSE(p.difference().within);
  p.set(0, -inf, inf);
  EXPECT_FALSE(p.difference().within);
  p.set(0, std::nan(""), inf);
  EXPECT_FALSE(p.difference().within);
}

TEST(Compare, ZerosOfBothSignsAreEqual) {
  Pair p("softmax(f32[1,2])");
  p.fill(1);
  p.set(0, -0.0, 0.0);
  EXPECT_FALSE(p.difference().equal_bits);
  EXPECT_TRUE(p.difference().within);
  EXPECT_EQ(p.difference().ratio, 0);
}

}  // namespace
}  // namespace yard::verification::testing
