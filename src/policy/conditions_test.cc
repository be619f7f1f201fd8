// SPDX-License-Identifier: Apache-2.0
// Tests every operator on every type of field: conditions that hold, that do not hold, absent
// values and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/testing_config.h"

namespace yard::policy {
namespace {

// The result of one condition for one call.
enum class Outcome { kHolds, kFails, kNoField, kWrong };
std::ostream& operator<<(std::ostream& out, Outcome o) {
  constexpr const char* kNames[] = {"holds", "fails", "no field", "wrong"};
  return out << kNames[static_cast<int>(o)];
}

Outcome outcome(const TestKnown& known, const std::string& condition, const std::string& call) {
  const TestCall tc(known, call);
  const ConfigReading r =
      parse_config("version: 1\ndispatch_rules:\n- {operation: " + tc.program().name() +
                       ", kernel: k, conditions: {" + condition + "}}\n",
                   "rules.yaml");
  EXPECT_TRUE(r.ok()) << condition;
  RuleReport report{{{}}, {}};
  const OpRules rules = compile_rules(r.config, tc.program(), &report);
  if (report.rules[0].at(0).wrong) return Outcome::kWrong;
  if (!report.rules[0][0].known) return Outcome::kNoField;
  return rules.match(tc.view()).empty() ? Outcome::kFails : Outcome::kHolds;
}

// The shapes of q, k and v: 8 sequences of length 64 and 9, with 4 and 2 heads of 32.
constexpr const char* kCall =
    "attention.causal(bf16[8,64,4,32], bf16[8,9,2,32], bf16[8,9,2,32], causal=true, dropout=0.5, "
    "layout=bhsd, note=\"hello world\", window=128)"
    "@cuda:1+deterministic{model=llama, tp_size=4, pp_size=many, tenant=\"\"}";

struct ConditionRow {
  const char* condition;
  Outcome outcome;
};
constexpr Outcome T = Outcome::kHolds, F = Outcome::kFails, N = Outcome::kNoField,
                  W = Outcome::kWrong;

void check(const ConditionRow* begin, const ConditionRow* end, const char* call = kCall) {
  const TestKnown known = usual_ops();
  for (const ConditionRow* r = begin; r != end; ++r)
    EXPECT_EQ(outcome(known, r->condition, call), r->outcome) << r->condition;
}

TEST(Conditions, WholeNumbers) {
  const ConditionRow rows[] = {
      {"batch: 8", T},
      {"batch: 7", F},
      {"batch: [7, 8]", T},
      {"batch: [7, 9]", F},
      {"batch_eq: 8", T},
      {"batch_eq: 9", F},
      {"batch_eq: [8, 1]", T},
      {"batch_ne: 7", T},
      {"batch_ne: 8", F},
      {"batch_ne: [7]", W},
      {"batch_gt: 7", T},
      {"batch_gt: 8", F},
      {"batch_gte: 8", T},
      {"batch_gte: 9", F},
      {"batch_lt: 9", T},
      {"batch_lt: 8", F},
      {"batch_lte: 8", T},
      {"batch_lte: 7", F},
      {"batch_in: [1, 8]", T},
      {"batch_in: 8", T},
      {"batch_in: [1, 2, 3]", F},
      {"batch_not_in: [1]", T},
      {"batch_not_in: [8]", F},
      {"batch_match: 8", W},
      {"batch_regex: 8", W},
      {"batch_gte: eight", W},
      {"batch_gte: \"8\"", W},
      {"batch_gte: 8.0", W},
      {"batch_gte: true", W},
      {"batch_gte: [8]", W},
      {"batch: -1", F},
      {"batch_gt: -1", T},
      {"batch_gte: 99999999999999999999", W},
      {"window: 128", T},
      {"window_lt: 128", F},
      {"k.rank: 4", T},
      {"q.size_gte: 65536", T},
      {"batch_gt: 9223372036854775807", F},
      {"batch_lte: 9223372036854775807", T},
  };
  check(std::begin(rows), std::end(rows));
}

TEST(Conditions, Numbers) {
  const ConditionRow rows[] = {
      {"dropout: 0.5", T},          {"dropout: 0.25", F},       {"dropout: [0.1, 0.5]", T},
      {"dropout_eq: 5e-1", T},      {"dropout_ne: 0.5", F},     {"dropout_ne: 1", T},
      {"dropout_gt: 0.4", T},       {"dropout_gt: 0.5", F},     {"dropout_gte: 0.5", T},
      {"dropout_gte: 1", F},        {"dropout_lt: 0.6", T},     {"dropout_lt: 0.5", F},
      {"dropout_lte: 0.5", T},      {"dropout_lte: 0", F},      {"dropout_in: [0, 0.5]", T},
      {"dropout_not_in: [0.5]", F}, {"dropout_not_in: [0]", T}, {"dropout_match: 0*", W},
      {"dropout_regex: x", W},      {"dropout: half", W},       {"dropout: \"0.5\"", W},
      {"dropout_lt: .inf", W},      {"dropout: .nan", W},       {"dropout_gt: [1]", W},
  };
  check(std::begin(rows), std::end(rows));
}

TEST(Conditions, NotANumberPassesNoComparison) {
  const ConditionRow rows[] = {
      {"eps_lt: 1", F}, {"eps_gte: 1", F}, {"eps: 1", F}, {"eps_ne: 1", T}};
  check(std::begin(rows), std::end(rows), "rms_norm(f32[8,64], f32[64], eps=nan)");
}

TEST(Conditions, Switches) {
  const ConditionRow rows[] = {
      {"causal: true", T},
      {"causal: off", F},
      {"causal_eq: yes", T},
      {"causal_ne: true", F},
      {"causal_ne: false", T},
      {"causal_in: [true, false]", T},
      {"causal: [false]", F},
      {"causal_not_in: [true]", F},
      {"causal_not_in: [false]", T},
      {"causal_not_in: [true, false]", F},
      {"causal_gt: false", W},
      {"causal_match: t*", W},
      {"causal: maybe", W},
      {"causal: \"true\"", W},
      {"causal: 2", W},
      {"causal: 1", T},
      {"deterministic: true", T},
      {"deterministic_ne: true", F},
      {"capturing: true", F},
      {"capturing: false", T},
      {"inference_in: [true, false]", T},
      {"contiguous: true", T},
      {"contiguous_ne: true", F},
      {"q.contiguous: false", F},
      {"contiguous_lte: true", W},
  };
  check(std::begin(rows), std::end(rows));
}

TEST(Conditions, WordsOfAClosedList) {
  const ConditionRow rows[] = {
      {"layout: bhsd", T},
      {"layout: bshd", F},
      {"layout: [bshd, bhsd]", T},
      {"layout_eq: bhsd", T},
      {"layout_ne: bshd", T},
      {"layout_in: [bshd]", F},
      {"layout_not_in: [bshd]", T},
      {"layout_match: \"bh*\"", T},
      {"layout_match: \"bs*\"", F},
      {"layout_match: x*", W},
      {"layout_regex: \"b[hs]+d\"", T},
      {"layout_regex: \"(\"", W},
      {"layout: strided", W},
      {"layout_gt: bhsd", W},
      {"q.layout: contiguous", T},
      {"q.layout_ne: strided", T},
      {"q.layout_match: \"*ed\"", F},
      {"q.layout: bhsd", W},
  };
  check(std::begin(rows), std::end(rows));
}

TEST(Conditions, DTypes) {
  const ConditionRow rows[] = {
      {"dtype: bf16", T},
      {"dtype: bfloat16", T},
      {"dtype: [f16, bfloat16]", T},
      {"dtype: float32", F},
      {"dtype_eq: bf16", T},
      {"dtype_ne: f32", T},
      {"dtype_in: [f32, half]", F},
      {"dtype_not_in: [f32]", T},
      {"dtype_not_in: [bf16, f32]", F},
      {"dtype_match: \"*float16\"", T},
      {"dtype_match: f*", F},
      {"dtype_match: z*", W},
      {"dtype_regex: \"b?f16\"", T},
      {"dtype_regex: int.*", F},
      {"dtype_gte: bf16", W},
      {"dtype: bf61", W},
      {"dtype: 16", W},
      {"k.dtype: bf16", T},
      {"k.dtype_ne: bf16", F},
      {"out.dtype: bf16", T},
      {"causal.dtype: bf16", N},
  };
  check(std::begin(rows), std::end(rows));
}

TEST(Conditions, DevicesAndPlatforms) {
  const ConditionRow rows[] = {
      {"device: cuda", T},
      {"device: \"cuda:1\"", T},
      {"device: \"cuda:0\"", F},
      {"device: cpu", F},
      {"device: [cpu, cuda]", T},
      {"device_ne: cpu", T},
      {"device_ne: cuda", F},
      {"device_in: [\"cuda:0\", \"cuda:1\"]", T},
      {"device_not_in: [cuda]", F},
      {"device_match: \"cu*\"", T},
      {"device_match: \"*:1\"", T},
      {"device_match: \"*:0\"", F},
      {"device_regex: \"cuda(:1)?\"", T},
      {"device_regex: \"cpu.*\"", F},
      {"device: gpu", W},
      {"device: \"cuda:x\"", W},
      {"device_gt: cpu", W},
      {"platform: cuda", T},
      {"platform: rocm", F},
      {"platform: \"cuda:1\"", W},
      {"platform_ne: cpu", T},
      {"platform_match: \"*:1\"", F},
      {"platform_match: \"c*\"", T},
      {"platform_regex: c.*", T},
      {"platform_in: [cpu, cuda]", T},
  };
  check(std::begin(rows), std::end(rows));
}

TEST(Conditions, TextArgumentsAndLabels) {
  const ConditionRow rows[] = {
      {"note: hello world", T},
      {"note: hello", F},
      {"note: [a, hello world]", T},
      {"note_ne: x", T},
      {"note_in: [x]", F},
      {"note_not_in: [x]", T},
      {"note_match: \"hello*\"", T},
      {"note_match: [x, \"*d\"]", T},
      {"note_regex: h.* world", T},
      {"note_regex: hello", F},
      {"note_lt: x", W},
      {"model: llama", T},
      {"model_ne: llama", F},
      {"label.model: llama", T},
      {"label.model_eq: llama", T},
      {"model_match: \"ll*\"", T},
      {"model_regex: \"[a-m]+\"", T},
      {"model_in: [gpt, llama]", T},
      {"model_not_in: [gpt]", T},
      {"model_gte: a", W},
      {"tenant: \"\"", T},
      {"tenant_ne: a", T},
      {"phase: decode", F},
      {"tp_size: 4", T},
      {"tp_size_gte: 2", T},
      {"tp_size_gt: four", W},
      {"tp_size_match: x", W},
      {"label.tp_size: \"4\"", T},
      {"label.tp_size: 4", T},
  };
  check(std::begin(rows), std::end(rows));
}

// An absent value is neither equal nor unequal to any value.
TEST(Conditions, AbsentFieldsPassNoTestNorItsOpposite) {
  const ConditionRow rows[] = {
      {"rows_mask: 1", F},
      {"rows_mask_ne: 1", F},
      {"rows_mask_gt: 0", F},
      {"rows_mask_lt: 9", F},
      {"rows_mask_lte: 9", F},
      {"rows_mask_in: [1]", F},
      {"rows_mask_not_in: [1]", F},
      {"mask.dtype: f32", F},
      {"mask.dtype_ne: f32", F},
      {"mask.dtype_not_in: [f32]", F},
      {"mask.contiguous: true", F},
      {"mask.contiguous: false", F},
      {"mask.rank: 1", F},
      {"mask.rank_ne: 1", F},
      {"mask.layout_ne: strided", F},
      {"phase: decode", F},
      {"phase_ne: decode", F},
      {"phase_not_in: [decode]", F},
      {"phase_match: \"*\"", F},
      {"phase_regex: \".*\"", F},
      {"label.other_ne: x", F},
      {"pp_size: 1", F},
      {"pp_size_ne: 1", F},
      {"pp_size_lt: 100", F},
  };
  check(std::begin(rows), std::end(rows));
}

TEST(Conditions, FieldsTheOpLacks) {
  const ConditionRow rows[] = {{"hidden: 1", N},       {"rows_gte: 1", N}, {"batch_ge: 8", N},
                               {"nobody: 1", N},       {"_gte: 1", N},     {"label.: x", N},
                               {"batch_gte_gte: 1", N}};
  check(std::begin(rows), std::end(rows));
}

TEST(Conditions, OtherNamesOfFields) {
  const ConditionRow rows[] = {
      {"batch_size_gte: 8", T},
      {"batch_size: 9", F},
      {"seq_len: 64", T},
      {"seq_len_q: 64", T},
      {"seq_len_k: 9", T},
      {"head_dim: 32", T},
      {"num_heads: 4", T},
      {"num_kv_heads: 2", T},
      {"is_causal: true", T},
      {"dropout_p_gt: 0", T},
      {"enable_gqa: true", T},
      {"requires_deterministic: true", T},
      {"is_cuda_graph_capturing: false", T},
      {"is_contiguous: true", T},
  };
  check(std::begin(rows), std::end(rows));
  const ConditionRow norm[] = {{"batch_size: 24", T},
                               {"hidden_size: 64", T},
                               {"num_tokens: 24", T},
                               {"seq_len: 1", N},
                               {"rows: 24", T}};
  check(std::begin(norm), std::end(norm), "rms_norm(f32[3,8,64], f32[64])");
  const ConditionRow rotary[] = {{"batch_size: 5", T},
                                 {"seq_len_gte: 5", T},
                                 {"num_heads: 2", T},
                                 {"num_kv_heads: 1", F},
                                 {"style: half", T}};
  check(std::begin(rotary), std::end(rotary), "rotary(f32[5,2,8])");
}

TEST(Conditions, LayoutsOfTensors) {
  const ConditionRow dense[] = {{"layout: dense", T},
                                {"contiguous: false", T},
                                {"x.layout: dense", T},
                                {"weight.layout: contiguous", T},
                                {"out.contiguous: true", T}};
  check(std::begin(dense), std::end(dense), "rms_norm(f32[3,64;100,1], f32[64])");
  const ConditionRow strided[] = {{"layout: strided", T}, {"x.layout_ne: dense", T}};
  check(std::begin(strided), std::end(strided), "rms_norm(f32[3,64;128,2], f32[64])");
}

// An exact name wins over a name with an operator. After `label.` the operator always counts.
TEST(Conditions, AFieldWhoseNameEndsLikeAnOperator) {
  TestKnown known;
  known.add("linear(out!: T[*rows, d_out], x: T[*rows, d_in], w: T[d_out, d_in], d: int = 0)",
            {"k"});
  const char* call = "linear(f32[2,8], f32[4,8], d=3)@cpu{logged_in=yes}";
  EXPECT_EQ(outcome(known, "d_in: 8", call), T);
  EXPECT_EQ(outcome(known, "d_in: [3, 4]", call), F);
  EXPECT_EQ(outcome(known, "d_eq: 3", call), T);
  EXPECT_EQ(outcome(known, "d_not_in: [3]", call), F);
  EXPECT_EQ(outcome(known, "d_in_gte: 8", call), T);
  EXPECT_EQ(outcome(known, "label.logged_in: yes", call), F);
  EXPECT_EQ(outcome(known, "label.logged_in_eq: yes", call), T);
}

}  // namespace
}  // namespace yard::policy
