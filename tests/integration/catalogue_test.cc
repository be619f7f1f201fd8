// SPDX-License-Identifier: Apache-2.0
// Tests the built-in ops through the public interface: typed calls, families in rules, sizes beyond
// 32 bits, and errors of residency, aliasing, clauses and contents.
#include <gmock/gmock.h>
#include <yard/yard.h>

#include <cmath>
#include <vector>

namespace yard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Op<void(Out, In, In, In, OptIn, float)> attention_causal{"attention.causal"};
constexpr Op<void(Out, In, In, OptIn, OptIn)> linear{"linear"};
constexpr Op<void(Out, Out, In, bool)> topk_softmax{"topk_softmax"};
constexpr Op<void(Out, In, In)> embedding{"embedding"};
constexpr Op<void(Out, In, In)> add{"add"};
constexpr Op<void(Out, In)> argmax{"argmax"};

std::string message(const Status& s) { return std::string(s.message()); }

TEST(Catalogue, TypedCalls) {
  std::vector<float> x = {1, 3, 2, 0}, weights(2), out(2);
  std::vector<int32_t> ids(2);
  const TensorView tx = view(x, {1, 4});
  ASSERT_TRUE(topk_softmax(view(weights, {1, 2}), view(ids, {1, 2}), tx, true).ok());
  EXPECT_THAT(ids, ElementsAre(1, 2));
  EXPECT_NEAR(weights[0], std::exp(1.0) / (1 + std::exp(1.0)), 1e-6);
  std::vector<int64_t> largest(1);
  ASSERT_TRUE(argmax(view(largest, {1}), tx).ok());
  EXPECT_EQ(largest[0], 1);

  std::vector<float> q = {1, 0}, k = {0, 0, 0, 0}, v = {1, 2, 3, 4};
  ASSERT_TRUE(attention_causal(view(out, {1, 1, 1, 2}), view(q, {1, 1, 1, 2}),
                               view(k, {1, 2, 1, 2}), view(v, {1, 2, 1, 2}), nullptr, 0.0f)
                  .ok());
  EXPECT_THAT(out, ElementsAre(2, 3));
}

TEST(Catalogue, RulesMatchAFamily) {
  Runtime runtime;
  const ConfigReading rules = parse_config(
      "version: '1.0'\ndispatch_rules: [{operation: 'attention.*', deny: ['*']}]\n", "rules.yaml");
  ASSERT_TRUE(rules.ok());
  ASSERT_TRUE(runtime.rules().set(rules.config).ok());
  const char* call = "attention.full(f32[1,2,1,4], f32[1,2,1,4], f32[1,2,1,4])";
  EXPECT_EQ(runtime.resolve(call).status().code(), Code::kNoKernel);
  EXPECT_TRUE(runtime.resolve("add(f32[2,2], f32[2,2])").ok());
}

TEST(Catalogue, GroupsOfHeadsAreWhole) {
  std::vector<float> q(6), kv(4), out(6);
  EXPECT_EQ(
      message(attention_causal(view(out, {1, 1, 3, 2}), view(q, {1, 1, 3, 2}),
                               view(kv, {1, 1, 2, 2}), view(kv, {1, 1, 2, 2}), nullptr, 0.0f)),
      "attention.causal: expected heads % kv_heads == 0, got heads = 3, kv_heads = 2");
}

TEST(Catalogue, IntegerWeightsNeedAScale) {
  std::vector<float> x(4), out(2), scale(2);
  std::vector<int8_t> w(8);
  const TensorView tx = view(x, {1, 4}), tout = view(out, {1, 2});
  EXPECT_EQ(message(linear(tout, tx, view(w, {2, 4}), nullptr, nullptr)),
            "linear: expected scale iff W in {i8}, got W = i8 without 'scale'");
  EXPECT_TRUE(linear(tout, tx, view(w, {2, 4}), view(scale, {2}), nullptr).ok());
}

TEST(Catalogue, TensorsOfOneCallAreOnOneDevice) {
  std::vector<float> x(4), out(2), w(8);
  const TensorView far(w.data(), DType::f32, {2, 4}, {}, Device{2, 0});
  EXPECT_THAT(message(linear(view(out, {1, 2}), view(x, {1, 4}), far, nullptr, nullptr)),
              AllOf(HasSubstr("invalid argument 'weight': expected a tensor on cpu"),
                    HasSubstr("on cuda")));
}

TEST(Catalogue, OutputsAliasOnlyWhatTheyMay) {
  std::vector<float> a = {1, 2, 3}, b = {10, 20, 30};
  const TensorView ta = view(a, {1, 3}), tb = view(b, {1, 3});
  ASSERT_TRUE(add(ta, ta, tb).ok());
  EXPECT_THAT(a, ElementsAre(11, 22, 33));
  EXPECT_THAT(message(add(TensorView(a.data() + 1, DType::f32, {1, 2}),
                          TensorView(a.data(), DType::f32, {1, 2}), view(b, {1, 2}))),
              HasSubstr("some of it shared"));
}

// The f32 kernels and the reference would differ for such numbers. Memos must refuse them as well.
TEST(Catalogue, RefusesANegativeEpsAndScalesBeyondF32) {
  constexpr Op<void(Out, In, In, float)> rms_norm{"rms_norm"};
  std::vector<float> x = {1, 2, 3, 4}, w(4, 1), out(4), sum(4);
  const TensorView tx = view(x, {1, 4}), tw = view(w, {4}), to = view(out, {1, 4});
  constexpr float kNan = __builtin_nanf("");
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(rms_norm(to, tx, tw, 1e-6f).ok());
    ASSERT_TRUE(rms_norm(to, tx, tw, 0).ok());
    for (const float eps : {-1.0f, -1e-38f, kNan}) {
      const Status s = rms_norm(to, tx, tw, eps);
      EXPECT_EQ(s.error_class(), ErrorClass::kCaller);
      EXPECT_THAT(message(s), HasSubstr("invalid argument 'eps': expected eps >= 0, got ")) << i;
      EXPECT_FALSE(call("rms_norm", {to, tx, tw, eps}).ok());
      EXPECT_FALSE(call("layer_norm", {to, tx, tw, tw, eps}).ok());
      EXPECT_FALSE(call("add_rms_norm", {to, view(sum, {1, 4}), tx, tw, eps}).ok());
    }
    const TensorView q = view(x, {1, 1, 1, 4}), t = view(out, {1, 1, 1, 4});
    for (const double scale : {4e38, -4e38, double{kNan}, double{__builtin_inf()}}) {
      for (const char* op : {"attention.full", "attention.causal", "attention.cross"})
        EXPECT_THAT(message(call(op, {t, q, q, q, {"scale", scale}})), HasSubstr("'scale'")) << op;
      EXPECT_THAT(
          message(call("attention.sliding_window", {t, q, q, q, {"window", 1}, {"scale", scale}})),
          HasSubstr("'scale'"));
      std::vector<int32_t> one(1, 1);
      const TensorView lengths = view(one, {1}), q3 = view(x, {1, 1, 4}), t3 = view(out, {1, 1, 4});
      EXPECT_THAT(message(call("attention.decode", {t3, q3, q, q, lengths, {"scale", scale}})),
                  HasSubstr("'scale'"));
      EXPECT_THAT(message(call("attention.paged_decode",
                               {t3, q3, q, q, view(one, {1, 1}), lengths, {"scale", scale}})),
                  HasSubstr("'scale'"));
    }
    EXPECT_TRUE(call("attention.full", {t, q, q, q, {"scale", 3.4028234e38}}).ok());
  }
}

TEST(Catalogue, SizesBeyond32Bits) {
  // All rows of the table share memory.
  std::vector<float> row = {1, 2, 3}, out(3);
  const int64_t vocab = int64_t{1} << 33;
  const TensorView table(row.data(), DType::f32, {vocab, 3}, {0, 1});
  std::vector<int64_t> ids = {vocab - 1};
  ASSERT_TRUE(embedding(view(out, {1, 3}), view(ids, {1}), table).ok());
  EXPECT_THAT(out, ElementsAre(1, 2, 3));
  ids[0] = vocab;
  EXPECT_THAT(message(embedding(view(out, {1, 3}), view(ids, {1}), table)),
              HasSubstr("expected 0 <= id < vocab, which is 8589934592, got 8589934592"));
}

}  // namespace
}  // namespace yard
