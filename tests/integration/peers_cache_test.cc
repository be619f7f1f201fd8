// SPDX-License-Identifier: Apache-2.0
// LayerZero's cache key leaves out inputs of the selection. Each test changes one of these inputs
// while the other choice is cached, and expects the kernel that a fresh selection gives. For
// determinism see peers_dispatch_test.cc.
#include <gtest/gtest.h>
#include <yard/policy.h>

#include "testing.h"

namespace yard::testing::peers_cache {
namespace {

constexpr const char* kSchema =
    "attend(out!: T[batch, seq_len], x: T[batch, seq_len], mask?: T[batch, seq_len], "
    "dropout: float = 0.0)";

class CacheKeyOmits : public ::testing::Test {
 protected:
  CacheKeyOmits() : bare_(kSchema) {
    static const yard_limit_t compact[] = {plugin::compact()};
    static const yard_limit_t no_mask[] = {plugin::absent("mask")};
    yard_kernel_t k = kernel_of("attend", "compact", 1, 300);
    k.limits = compact, k.limit_count = 1;
    yard_kernel_t plain = kernel_of("attend", "no_mask", 2, 200);
    plain.limits = no_mask, plain.limit_count = 1;
    for (const yard_kernel_t& d : {k, plain, kernel_of("attend", "any", 3, 100)})
      bare_.add(d).or_throw();
  }
  void rule(const std::string& condition) {
    const auto r = parse_config(
        "version: '1.0'\ndispatch_rules: [{operation: attend, kernel: any, conditions: {" +
            condition + "}}]\n",
        "rules.yaml");
    for (const ConfigProblem& p : r.problems) ADD_FAILURE() << to_string(p);
    ASSERT_TRUE(bare_.runtime.rules().set(r.config).ok());
  }
  struct Call {
    bool padded = false, transposed = false, mask = false;
    double dropout = 0;
    std::map<std::string, std::string> labels = {};
  };
  intptr_t ran(const Call& c) {
    std::vector<float> memory(256);
    const int64_t shape[] = {4, 4};
    const int64_t strides[] = {c.transposed ? 1 : c.padded ? 8 : 4, c.transposed ? 4 : 1};
    const TensorView x(memory.data(), DType::f32, shape, strides);
    const TensorView out(memory.data() + 64, DType::f32, {4, 4});
    const TensorView mask(memory.data() + 128, DType::f32, {4, 4});
    Options o;
    for (const auto& [key, value] : c.labels) o.labels[key] = value;
    t_ran = 0;
    std::vector<Arg> args = {{"out", out}, {"x", x}, {"dropout", c.dropout}};
    if (c.mask) args.push_back({"mask", mask});
    const Status s = bare_.runtime.call("attend", args, o);
    EXPECT_TRUE(s.ok()) << s.to_string();
    return t_ran;
  }
  // Each call comes while the other one is in the cache.
  void differ(const Call& a, intptr_t for_a, const Call& b, intptr_t for_b) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(ran(a), for_a);
      EXPECT_EQ(ran(b), for_b);
    }
  }
  Bare bare_;
};

TEST_F(CacheKeyOmits, Contiguity) { differ({}, 1, {.padded = true}, 2); }

TEST_F(CacheKeyOmits, Strides) {
  rule("layout: strided");
  differ({.padded = true}, 2, {.transposed = true}, 3);
}

TEST_F(CacheKeyOmits, TheMask) { differ({.padded = true}, 2, {.padded = true, .mask = true}, 3); }

TEST_F(CacheKeyOmits, Dropout) {
  rule("dropout_p_gt: 0.1");
  differ({.dropout = 0.1}, 1, {.dropout = 0.2}, 3);
}

TEST_F(CacheKeyOmits, TensorParallelSize) {
  rule("tp_size_gte: 2");
  differ({.labels = {{"tp_size", "1"}}}, 1, {.labels = {{"tp_size", "2"}}}, 3);
}

TEST_F(CacheKeyOmits, PipelineParallelSize) {
  rule("pp_size: 4");
  differ({}, 1, {.labels = {{"pp_size", "4"}}}, 3);
}

}  // namespace
}  // namespace yard::testing::peers_cache
