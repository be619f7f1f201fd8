// SPDX-License-Identifier: Apache-2.0
// Kernels with parameters of their own as users see them: plans, memos and handles with transforms,
// where transforms are forbidden, what a call reports, fallback, canaries and verification.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/c.h>
#include <yard/verify.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "op/numbers.h"
#include "testing.h"

namespace yard::testing {
namespace {

using plugin::Param;
using plugin::Params;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// ---- Plans, memos and handles ----

constexpr Op<void(Out, In, int)> copy_op{"copy"};

thread_local int t_compact = 0;  // calls of the kernel below with a compact x

void copy_compact(plugin::Call, plugin::Tensor out, plugin::Tensor x, int64_t) {
  ASSERT_TRUE(x.is_compact() && out.is_compact());
  ++t_compact;
  for (int64_t i = 0; i < x.numel(); ++i) out.data<float>()[i] = x.data<float>()[i];
}
void copy_any(plugin::Call, plugin::Tensor out, plugin::Tensor x, int64_t) {
  for (int64_t i = 0; i < x.numel(); ++i) out.at<float>(i) = x.at<float>(i);
}

const Params kCompact = {Param("out").layout("row-major"), Param("x").layout("row-major"),
                         Param("by")};

plugin::Kernel compact_kernel() {
  return plugin::Kernel::of<copy_compact>("copy", "default.compact")
      .backend("test")
      .params(kCompact);
}

class CompactKernel : public ::testing::Test {
 protected:
  CompactKernel() {
    std::iota(from_.begin(), from_.end(), 1.0f);
    bare_.add(compact_kernel()).or_throw();
  }
  TensorView dense(std::vector<float>& v) { return TensorView(v.data(), DType::f32, {8}); }
  TensorView every_second(std::vector<float>& v) {
    return TensorView(v.data(), DType::f32, {8}, {2});
  }

  Bare bare_;
  std::vector<float> from_ = std::vector<float>(16), to_ = std::vector<float>(16);
};

TEST_F(CompactKernel, CallsWithAndWithoutTransformsAlternate) {
  for (int i = 0; i < 40; ++i) {
    std::fill(to_.begin(), to_.end(), 0.0f);
    const bool x = i % 2 == 0, out = i % 4 < 2;
    ASSERT_TRUE(copy_op
                    .on(bare_.runtime)(out ? every_second(to_) : dense(to_),
                                       x ? every_second(from_) : dense(from_), 0)
                    .ok());
    for (size_t k = 0; k < 8; ++k)
      ASSERT_EQ(to_[out ? 2 * k : k], from_[x ? 2 * k : k]) << i << " " << k;
    if (out) {
      ASSERT_EQ(to_[1], 0.0f) << "gaps are not written";
    }
  }
  EXPECT_EQ(t_compact, 40);
}

TEST_F(CompactKernel, HandlesTransformToo) {
  auto bound = bind(copy_op.on(bare_.runtime), every_second(to_), every_second(from_));
  ASSERT_TRUE(bound.ok()) << bound.status().to_string();
  auto frozen = freeze(copy_op.on(bare_.runtime), every_second(to_), every_second(from_));
  ASSERT_TRUE(frozen.ok()) << frozen.status().to_string();
  for (int i = 0; i < 3; ++i) {
    std::fill(to_.begin(), to_.end(), 0.0f);
    ASSERT_TRUE((*bound)(every_second(to_), every_second(from_), 0).ok());
    EXPECT_EQ(to_[14], from_[14]);
    std::fill(to_.begin(), to_.end(), 0.0f);
    ASSERT_TRUE((*frozen)(every_second(to_), every_second(from_), 0).ok());
    EXPECT_EQ(to_[14], from_[14]);
    EXPECT_EQ(to_[13], 0.0f);
  }
}

TEST_F(CompactKernel, TheRecordHasTheTimesOfTransforms) {
  ResultRecord r;
  Options o;
  o.result = &r;
  ASSERT_TRUE(copy_op.on(bare_.runtime).with(o)(dense(to_), dense(from_), 0).ok());
  EXPECT_EQ(r.pre_ns, 0);
  EXPECT_EQ(r.post_ns, 0);
  r = {};
  ASSERT_TRUE(copy_op.on(bare_.runtime).with(o)(every_second(to_), every_second(from_), 0).ok());
  EXPECT_GT(r.pre_ns, 0);
  EXPECT_GT(r.post_ns, 0);
  EXPECT_GE(r.run_ns, 0);
}

// ---- Where they are forbidden ----

TEST_F(CompactKernel, TransformsAreForbiddenByScopeOrCall) {
  const auto call = [&](const Options& o = {}) {
    return copy_op.on(bare_.runtime).with(o)(every_second(to_), every_second(from_), 0);
  };
  EXPECT_TRUE(call().ok());
  Options forbids;
  forbids.policy.emplace().transforms["copy"] = false;
  EXPECT_THAT(call(forbids).to_string(),
              AllOf(HasSubstr("transform:"), HasSubstr("out needs a transform (make contiguous)")));
  {
    const ScopedPolicy in(Scope().transforms(false));
    EXPECT_EQ(call().code(), Code::kNoKernel);
    Options allows;
    allows.policy.emplace().transforms["copy"] = true;
    EXPECT_TRUE(call(allows).ok());
    EXPECT_TRUE(copy_op.on(bare_.runtime)(dense(to_), dense(from_), 0).ok()) << "none is needed";
  }
  EXPECT_TRUE(call().ok());
}

TEST_F(CompactKernel, TransformsAreForbiddenByFileOrProcess) {
  const auto call = [&] {
    return copy_op.on(bare_.runtime)(every_second(to_), every_second(from_), 0);
  };
  auto reading =
      parse_config("version: \"1.0\"\npolicy: {transforms: {copy: false}}\n", "rules.yaml");
  ASSERT_TRUE(reading.ok());
  EXPECT_EQ(parse_config(to_yaml(reading.config), "again.yaml").config, reading.config);
  ASSERT_TRUE(bare_.runtime.rules().set(reading.config).ok());
  EXPECT_EQ(call().code(), Code::kNoKernel);
  Policy p;
  p.transforms["copy"] = true;
  EXPECT_THAT(to_string(p), HasSubstr("transforms[copy]=true"));
  ASSERT_TRUE(bare_.runtime.set_policy(p).ok());
  EXPECT_TRUE(call().ok()) << "the process precedes the file";
  reading =
      parse_config("version: \"1.0\"\npolicy: {transforms: {copy: sometimes}}\n", "rules.yaml");
  EXPECT_FALSE(reading.ok());
}

TEST(ForbiddenTransforms, AreAnOptionOfTheCInterface) {
  Runtime& shared = Runtime::shared();
  Changes c;
  c.add_backend(backend_of("test")).add_op(op_of(kCopy)).add_kernel(compact_kernel());
  ASSERT_TRUE(shared.apply(std::move(c)).ok());
  yard_op_ref_t* op = yard_find_op("copy", nullptr, 0);
  ASSERT_NE(op, nullptr);
  std::vector<float> from(16, 3.0f), to(16);
  const TensorView x(from.data(), DType::f32, {8}, {2}), out(to.data(), DType::f32, {8}, {2});
  const yard_value_t args[] = {value_of(out), value_of(x), Value(0).c()};
  yard_options_t o{};
  o.size = sizeof o;
  yard_result_t r{};
  r.size = sizeof r;
  char error[512];
  EXPECT_EQ(yard_call_with(op, args, 3, &o, &r, error, sizeof error), YARD_OK) << error;
  EXPECT_GT(r.pre_ns, 0);
  EXPECT_GT(r.post_ns, 0);
  o.flags = YARD_OPTION_NO_TRANSFORMS;
  EXPECT_NE(yard_call_with(op, args, 3, &o, &r, error, sizeof error), YARD_OK);
  EXPECT_THAT(std::string(error), HasSubstr("transform"));
}

// ---- A library's attention behind a built-in op ----

// Computes softmax(q k^T scale) v on [batch, heads, seq, dim] in f32, with grouped query heads.
void bhsd_attention(plugin::Call, plugin::Tensor q, plugin::Tensor k, plugin::Tensor v,
                    plugin::Tensor out, double scale) {
  const int64_t seq = q.size(2), keys = k.size(2), dim = q.size(3),
                group = q.size(1) / std::max<int64_t>(k.size(1), 1);
  const double by =
      scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(dim, 1)));
  std::vector<double> p(static_cast<size_t>(keys));
  for (int64_t b = 0; b < q.size(0); ++b)
    for (int64_t h = 0; h < q.size(1); ++h)
      for (int64_t s = 0; s < seq; ++s) {
        const int64_t kv = h / group;
        double most = -INFINITY, sum = 0;
        for (int64_t t = 0; t < keys; ++t) {
          double dot = 0;
          for (int64_t d = 0; d < dim; ++d)
            dot += double{q.at<float>(b, h, s, d)} * double{k.at<float>(b, kv, t, d)};
          p[static_cast<size_t>(t)] = dot * by;
          most = std::max(most, dot * by);
        }
        for (double& x : p) sum += x = std::exp(x - most);
        for (int64_t d = 0; d < dim; ++d) {
          double to = 0;
          for (int64_t t = 0; t < keys; ++t)
            to += p[static_cast<size_t>(t)] / sum * double{v.at<float>(b, kv, t, d)};
          out.at<float>(b, h, s, d) = static_cast<float>(to);
        }
      }
}

TEST(LibraryAttention, ServesTheBuiltInOpInItsOwnLayout) {
  static const Params params = {Param("q").from("query").layout("BHSD").dtypes({YARD_F32}),
                                Param("k").from("key").layout("BHSD").dtypes({YARD_F32}),
                                Param("v").from("value").layout("BHSD").dtypes({YARD_F32}),
                                Param("o").from("out").layout("BHSD").dtypes({YARD_F32}),
                                Param("softmax_scale").from("scale")};
  static const yard_limit_t limits[] = {plugin::absent("mask"), plugin::at_least("kv_seq", 1)};
  Runtime runtime(RuntimeSettings{true, 512, false});
  Changes c;
  c.add_backend(backend_of("library"));
  c.add_kernel(plugin::Kernel::of<bhsd_attention>("attention.full", "default.bhsd")
                   .backend("library")
                   .limits(limits)
                   .params(params));
  ASSERT_TRUE(runtime.apply(std::move(c)).ok());
  const auto fill = [](DType t, int64_t n, int64_t step) {
    std::vector<std::byte> to(static_cast<size_t>(n * bits(t) / 8));
    for (int64_t i = 0; i < n; ++i)
      op::store(t, to.data() + i * bits(t) / 8, static_cast<double>(i * step % 17) / 8 - 1);
    return to;
  };
  for (const DType t : {DType::f32, DType::f16, DType::bf16}) {
    const int64_t batch = 2, seq = 5, keys = 7, heads = 6, kv_heads = 3, dim = 8;
    auto q = fill(t, batch * seq * heads * dim, 5), k = fill(t, batch * keys * kv_heads * dim, 3);
    auto v = fill(t, batch * keys * kv_heads * dim, 7), out = fill(t, batch * seq * heads * dim, 0);
    std::vector<std::byte> results[2];
    for (const bool own : {false, true}) {
      ResultRecord r;
      Options o;
      o.force = own ? "default.bhsd" : "reference.cpp", o.result = &r;
      const Status status =
          runtime.call("attention.full",
                       {{"out", TensorView(out.data(), t, {batch, seq, heads, dim})},
                        {"query", TensorView(q.data(), t, {batch, seq, heads, dim})},
                        {"key", TensorView(k.data(), t, {batch, keys, kv_heads, dim})},
                        {"value", TensorView(v.data(), t, {batch, keys, kv_heads, dim})}},
                       o);
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(r.pre_ns > 0, own);
      results[own ? 1 : 0] = out;
    }
    for (size_t i = 0; i < out.size(); i += static_cast<size_t>(bits(t)) / 8)
      ASSERT_NEAR(op::load(t, &results[0][i]), op::load(t, &results[1][i]),
                  t == DType::f32 ? 1e-6 : 0.01)
          << to_string(t) << " " << i;
  }
}

// ---- Fallback, canaries, verification ----

TEST(TransformFallback, AnotherKernelMayRunInPlaceAfterAFailure) {
  Bare bare;
  plugin::Kernel first = plugin::Kernel::of<copy_compact>("copy", "default.first").backend("test");
  first.params(kCompact).priority(900);
  first.d.run = [](yard_call_t*, const yard_value_t* args, uint32_t) -> int32_t {
    std::memset(args[0].u.tensor->data, 0x77, 8 * sizeof(float));
    return YARD_FAULT;
  };
  first.d.typed = nullptr;
  bare.add(first).or_throw();
  bare.add(plugin::Kernel::of<copy_any>("copy", "default.any").backend("test")).or_throw();
  std::vector<float> data(16, 1.0f);
  const TensorView strided(data.data(), DType::f32, {8}, {2}), dense(data.data(), DType::f32, {8});
  EXPECT_TRUE(copy_op.on(bare.runtime)(strided, strided, 0).ok());
  EXPECT_THAT(data, Each(1.0f));
  EXPECT_EQ(copy_op.on(bare.runtime)(dense, dense, 0).code(), Code::kKernelFailed)
      << "it has written to the caller's memory";
}

int32_t reference_copy(plugin::Call call, plugin::Tensor out, plugin::Tensor x, int64_t by) {
  copy_any(call, out, x, by);
  return YARD_OK;
}
void wrong_copy(plugin::Call, plugin::Tensor out, plugin::Tensor x, int64_t) {
  for (int64_t i = 0; i < x.numel(); ++i) out.data<float>()[i] = x.data<float>()[i] + 1;
}

TEST(TransformCanary, ChecksAndRepairsTheCallersTensors) {
  Bare bare;
  bare.add(plugin::Kernel::of<reference_copy>("copy", "reference.cpp")
               .backend("test")
               .kind(YARD_KIND_REFERENCE))
      .or_throw();
  bare.add(plugin::Kernel::of<wrong_copy>("copy", "default.wrong").backend("test").params(kCompact))
      .or_throw();
  Config c;
  c.canary.emplace_back();
  c.canary[0].op = "copy", c.canary[0].one_in = 1;
  ASSERT_TRUE(bare.runtime.rules().set(c).ok());
  std::vector<float> from(16, 2.0f), to(16, 0.0f);
  const TensorView x(from.data(), DType::f32, {8}, {2}), out(to.data(), DType::f32, {8}, {2});
  ASSERT_TRUE(copy_op.on(bare.runtime)(out, x, 0).ok());
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(to[i], i % 2 == 0 ? 2.0f : 0.0f) << i;
}

// A kernel with parameters in another order, and the meaning of the op for all dtypes.
struct Swapped {
  static void right(plugin::Call call, plugin::Tensor x, int64_t by, plugin::Tensor out) {
    EXPECT_EQ(x.dtype(), uint32_t{YARD_F32});
    EXPECT_EQ(x.numel() % 4, 0);
    copy_compact(call, out, x, by);
  }
  static void wrong(plugin::Call call, plugin::Tensor x, int64_t by, plugin::Tensor out) {
    wrong_copy(call, out, x, by);
  }
  static void reference(plugin::Call, plugin::Tensor out, plugin::Tensor x, int64_t) {
    const auto size = static_cast<size_t>(out.c()->dtype.bits / 8);
    for (int64_t i = 0; i < x.numel(); ++i)
      std::memcpy(out.data<char>() + i * out.stride(0) * static_cast<int64_t>(size),
                  x.data<char>() + i * x.stride(0) * static_cast<int64_t>(size), size);
  }
};

TEST(TransformVerification, FindsWrongKernelsAndPassesRightOnes) {
  static const Params floats = {
      Param("source").from("x").dtypes({YARD_F32}).layout("row-major").pad(4), Param("by"),
      Param("out").dtypes({YARD_F32}).layout("row-major").pad(4)};
  Bare bare("copy(out!: T[n], x: T[n], by: int = 0) where T in {f32, f16, bf16, f64}");
  bare.add(plugin::Kernel::of<Swapped::reference>("copy", "reference.cpp")
               .backend("test")
               .kind(YARD_KIND_REFERENCE))
      .or_throw();
  bare.add(plugin::Kernel::of<Swapped::right>("copy", "default.right")
               .backend("test")
               .params(floats))
      .or_throw();
  bare.add(plugin::Kernel::of<Swapped::wrong>("copy", "default.wrong")
               .backend("test")
               .params(floats))
      .or_throw();
  VerifyOptions o;
  o.cases = 60, o.max_elements = 500;
  const VerifyReport report = verify(bare.runtime, o).value();
  for (const KernelReport& k : report.kernels) {
    if (k.id == "default.right") {
      EXPECT_EQ(k.failed, 0u);
      EXPECT_GT(k.passed, 20u);
    }
    if (k.id == "default.wrong") {
      EXPECT_GT(k.failed, 0u);
    }
  }
}

}  // namespace
}  // namespace yard::testing
