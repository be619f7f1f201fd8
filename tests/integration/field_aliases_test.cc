// SPDX-License-Identifier: Apache-2.0
// Checks every alias of a field on every built-in op with calls whose dimensions all differ, and
// reads rule files of another project that uses these fields.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/call_spec.h>
#include <yard/config.h>
#include <yard/runtime.h>

#include <map>
#include <set>
#include <sstream>

#include "op/call.h"
#include "policy/fields.h"

namespace yard::testing {
namespace {

using ::testing::IsEmpty;

struct Row {
  const char* call;
  const char* values;  // ALIAS=VALUE pairs; the calls have no field for other aliases
};
constexpr Row kRows[] = {
    {"rms_norm(f32[2,3,5], f32[5])", "batch_size=6 num_tokens=6 hidden_size=5"},
    {"add_rms_norm(f32[2,3,5], f32[2,3,5], f32[5])", "batch_size=6 num_tokens=6 hidden_size=5"},
    {"layer_norm(f32[2,3,5])", "batch_size=6 num_tokens=6 hidden_size=5"},
    {"silu_and_mul(f32[2,3,10])", "batch_size=6 num_tokens=6"},
    {"gelu_and_mul(f32[2,3,10])", "batch_size=6 num_tokens=6"},
    {"softmax(f32[2,3,5])", "batch_size=6 num_tokens=6"},
    {"add(f32[2,3,5], f32[2,3,5])", "batch_size=6 num_tokens=6"},
    {"mul(f32[2,3,5], f32[2,3,5])", "batch_size=6 num_tokens=6"},
    {"rotary_embedding(f32[2,3,5,8], f32[2,3,7,8], i64[2,3])",
     "batch_size=6 num_tokens=6 seq_len=6 num_heads=5 num_kv_heads=7 enable_gqa=1 head_dim=8"},
    {"matmul(f32[2,3,5,7], f32[2,3,7,11])", "batch_size=6"},
    {"linear(f32[2,3,5], f32[7,5])", "batch_size=6 num_tokens=6"},
    {"embedding(i32[2,3], f32[11,5])", "batch_size=6 num_tokens=6"},
    {"quantize_int8(f32[2,3,5])", "batch_size=6 num_tokens=6"},
    {"dequantize(i8[2,3,5], f32[2,3])", "batch_size=6 num_tokens=6"},
    {"attention.full(f32[2,3,10,7], f32[2,11,5,7], f32[2,11,5,7])",
     "batch_size=2 seq_len=3 seq_len_q=3 seq_len_k=11 num_heads=10 num_kv_heads=5 enable_gqa=1 "
     "head_dim=7 is_causal=0 dropout_p=0"},
    {"attention.causal(f32[2,3,10,7], f32[2,11,5,7], f32[2,11,5,7])",
     "batch_size=2 seq_len=3 seq_len_q=3 seq_len_k=11 num_heads=10 num_kv_heads=5 enable_gqa=1 "
     "head_dim=7 is_causal=1 dropout_p=0"},
    {"attention.sliding_window(f32[2,3,5,7], f32[2,11,5,7], f32[2,11,5,7], window=4)",
     "batch_size=2 seq_len=3 seq_len_q=3 seq_len_k=11 num_heads=5 num_kv_heads=5 enable_gqa=0 "
     "head_dim=7 is_causal=1 dropout_p=0"},
    {"attention.cross(f32[2,3,10,7], f32[2,11,5,7], f32[2,11,5,7])",
     "batch_size=2 seq_len=3 seq_len_q=3 seq_len_k=11 num_heads=10 num_kv_heads=5 enable_gqa=1 "
     "head_dim=7 is_causal=0 dropout_p=0"},
    {"attention.decode(f32[2,10,7], f32[2,11,5,7], f32[2,11,5,7], i32[2])",
     "batch_size=2 seq_len=1 seq_len_q=1 seq_len_k=11 num_heads=10 num_kv_heads=5 enable_gqa=1 "
     "head_dim=7 is_causal=1 dropout_p=0"},
    {"attention.paged_decode(f32[2,10,7], f32[13,4,5,7], f32[13,4,5,7], i32[2,3], i32[2])",
     "batch_size=2 seq_len=1 seq_len_q=1 seq_len_k=12 num_heads=10 num_kv_heads=5 enable_gqa=1 "
     "head_dim=7 is_causal=1 dropout_p=0"},
    {"topk_softmax(f32[2,3,5], weights=f32[2,3,4], ids=i32[2,3,4])", "batch_size=6 num_tokens=6"},
    {"argmax(f32[2,3,5])", "batch_size=6 num_tokens=6"},
    {"sample(f32[2,3,5])", "batch_size=6 num_tokens=6"},
};
// All calls above have these values.
constexpr const char* kOfEveryCall =
    " is_contiguous=1 is_cuda_graph_capturing=1 requires_deterministic=0";

TEST(FieldAliases, MeanTheRightFieldOnEveryBuiltInOp) {
  const Runtime runtime(RuntimeSettings{.environment = false});
  std::set<std::string> ops;
  for (const OpInfo& op : runtime.list().ops) ops.insert(op.name);
  for (const Row& row : kRows) {
    const auto spec = op::parse_call_spec(fmt::format("{}@cpu+capturing", row.call));
    ASSERT_TRUE(spec.ok()) << row.call << spec.status().to_string();
    const Listing list = runtime.list();
    ASSERT_NE(list.find_op(spec->op), nullptr) << row.call;
    ops.erase(spec->op);
    const op::Program program = op::Program::compile(list.find_op(spec->op)->schema).value();
    const auto call = op::Call::from_spec(program, *spec);
    ASSERT_TRUE(call.ok()) << row.call << call.status().to_string();
    std::map<std::string, std::string> expected, found;
    std::istringstream values(std::string(row.values) + kOfEveryCall);
    for (std::string value; values >> value;)
      expected[value.substr(0, value.find('='))] = value.substr(value.find('=') + 1);
    policy::OpFields fields(program);
    for (const policy::FieldAlias& alias : policy::kFieldAliases)
      if (const policy::OpField* field = fields.find(alias.name)) {
        const policy::AxisValue v =
            field->axis.read({call->args(), call->flags(), call->device(), &call->labels()});
        // The first layout is the contiguous one.
        const bool layout = field->axis.kind == policy::Axis::Kind::kLayout;
        found[alias.name] = !v.there ? "none" : std::to_string(layout ? v.i == 0 : v.i);
      }
    EXPECT_EQ(found, expected) << row.call;
  }
  EXPECT_THAT(ops, IsEmpty()) << "these have no row";
}

// Returns the calls for which a rule for all attention ops with this condition selects the
// reference kernel.
std::string chosen(const std::string& condition) {
  Runtime runtime(RuntimeSettings{.environment = false});
  ConfigReading r = parse_config(
      "version: '1.0'\ndispatch_rules: [{operation: 'attention.*', kernel: reference.cpp, "
      "conditions: {" +
          condition + "}}]\n",
      "rules.yaml");
  std::vector<ConfigProblem> problems = r.problems;
  if (r.ok()) runtime.rules().set(std::move(r.config), &problems).ignore();
  for (const ConfigProblem& p : problems) return to_string(p);
  std::string to;
  for (const auto& [name, call] :
       {std::pair{"full", "attention.full(f32[2,64,8,64], f32[2,2048,8,64], f32[2,2048,8,64])"},
        {"causal", "attention.causal(f32[2,64,8,64], f32[2,128,2,64], f32[2,128,2,64])"},
        {"decode", "attention.decode(f32[2,8,64], f32[2,1024,2,64], f32[2,1024,2,64], i32[2])"},
        {"paged",
         "attention.paged_decode(f32[2,8,64], f32[99,16,2,64], f32[99,16,2,64], "
         "i32[2,16], i32[2])"}})
    if (runtime.explain(call).value().selected == "reference.cpp")
      to += std::string(to.empty() ? "" : " ") + name;
  return to;
}

TEST(FieldAliases, RulesOfLayerZeroMeanTheSame) {
  EXPECT_EQ(chosen("seq_len_k_gte: 1024"), "full decode");
  EXPECT_EQ(chosen("seq_len_k: 256"), "paged");
  EXPECT_EQ(chosen("seq_len_q_gt: 1"), "full causal");
  EXPECT_EQ(chosen("seq_len: 1"), "decode paged");
  EXPECT_EQ(chosen("head_dim_in: [64, 128]"), "full causal decode paged");
  EXPECT_EQ(chosen("head_dim: 128"), "");
  EXPECT_EQ(chosen("is_causal: true"), "causal decode paged");
  EXPECT_EQ(chosen("is_causal: false, batch_size: 2"), "full");
  EXPECT_EQ(chosen("enable_gqa: true, num_heads: 8, num_kv_heads: 2"), "causal decode paged");
  EXPECT_EQ(chosen("enable_gqa: false"), "full");
  EXPECT_EQ(chosen("dropout_p: 0.0, platform: cpu, dtype: [float32, bfloat16]"),
            "full causal decode paged");
  EXPECT_EQ(chosen("is_cuda_graph_capturing: false, requires_deterministic: false"),
            "full causal decode paged");
  EXPECT_EQ(chosen("dropout_p_gt: 0.0"),
            "rules.yaml:2:18: warning: dispatch_rules[0].conditions: no call can pass "
            "dropout_p_gt; the rule has no effect");
}

TEST(FieldAliases, AnAliasIsOnlyForOpsWithTheFieldsThatItNeeds) {
  const auto has = [](const char* schema, const char* name) {
    return policy::OpFields(op::Program::compile(schema).value()).find(name) != nullptr;
  };
  EXPECT_FALSE(has("norm(out!: T[*rows, d], x: T[*rows, d], dim: int = 0)", "head_dim"));
  EXPECT_FALSE(has("moe(out!: T[capacity, d], x: T[capacity, d])", "seq_len_k"));
  EXPECT_FALSE(has("attention.mine(out!: T[seq, d], x: T[seq, d])", "is_causal"));
  EXPECT_FALSE(has("attention.mine(out!: T[seq, d], x: T[seq, d])", "dropout_p"));
}

}  // namespace
}  // namespace yard::testing
