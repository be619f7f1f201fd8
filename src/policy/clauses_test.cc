// SPDX-License-Identifier: Apache-2.0
// Tests compiled rules (order, sharing, keys) and the clauses of one op from all sources. Most
// important, calls with equal keys must match the same rules.
#include "policy/clauses.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "policy/testing_config.h"

namespace yard::policy {
namespace {

using ::testing::ElementsAre;

OpRules compile(const Known& known, const std::string& op, const std::string& rest) {
  const ConfigReading r = parse_config("version: 1\n" + rest, "rules.yaml");
  for (const ConfigProblem& p : r.problems) ADD_FAILURE() << to_string(p);
  return compile_rules(r.config, *known.ops.at(op).program);
}

std::vector<uint32_t> sources(const OpRules& rules) {
  std::vector<uint32_t> to;
  for (const Clause& c : rules.clauses()) to.push_back(c.source);
  return to;
}

TEST(Rules, AClauseIsSmall) {
  // Includes its share of a test and four literals.
  EXPECT_LE(sizeof(Clause) + sizeof(Test) + 4 * sizeof(uint32_t), 128u);
}

TEST(Rules, TheHighestPriorityComesFirstAndOfEqualsTheEarlier) {
  const TestKnown known = usual_ops();
  const OpRules rules = compile(known, "rms_norm", R"(
defaults: {default_priority: 60}
dispatch_rules:
- {operation: rms_norm, kernel: a, priority: 50}
- {operation: "*", kernel: b}
- {operation: rotary, kernel: c, priority: 900}
- {operation: rms_*, kernel: d, priority: 60}
- {operation: rms_norm, kernel: e, priority: 1000}
)");
  EXPECT_THAT(sources(rules), ElementsAre(4, 1, 3, 0));
  EXPECT_EQ(rules.clauses()[3].names[0], "a");
  EXPECT_THAT(rules.match(TestCall(known, "rms_norm(f32[8,64], f32[64])").view()),
              ElementsAre(0, 1, 2, 3));
}

TEST(Rules, EqualQuestionsAreAskedOnce) {
  const TestKnown known = usual_ops();
  std::string text = "dispatch_rules:\n";
  for (int i = 0; i < 1000; ++i)
    text += fmt::format(
        "- {{operation: rms_norm, kernel: k{}, conditions: {{batch_size_gte: {}, hidden_lt: {}, "
        "rows_gt: {}, dtype: [bf16, f16]}}}}\n",
        i, 8 * (i % 10), 64 * (i % 10), 8 * (i % 10) - 1);
  const OpRules rules = compile(known, "rms_norm", text);
  EXPECT_EQ(rules.clauses().size(), 1000u);
  // `rows >= n` and `rows > n - 1` are one test, and `hidden < n` is the opposite of `hidden >= n`.
  EXPECT_EQ(rules.conditions().tests().size(), 10u + 10u + 1u);
  EXPECT_EQ(rules.conditions().axes().size(), 3u);
  EXPECT_EQ(rules.conditions().key_words(), 1u);
}

TEST(Rules, OneThresholdIsOneBit) {
  const TestKnown known = usual_ops();
  const OpRules rules = compile(known, "attention.causal", R"(
dispatch_rules:
- {operation: "attention.*", kernel: a, conditions: {seq_len_gte: 8192}}
- {operation: "attention.*", kernel: b, conditions: {seq_len_lt: 8192}}
- {operation: "attention.*", kernel: c, conditions: {hidden_lt: 5, num_heads: 7}}
)");
  // Nothing of the rule about another op is compiled.
  ASSERT_EQ(rules.conditions().axes().size(), 1u);
  EXPECT_EQ(rules.conditions().axes()[0].bits, 1u);
  EXPECT_THAT(rules.conditions().axes()[0].cuts, ElementsAre(8192));
  EXPECT_FALSE(rules.conditions().reads_scalars());
  EXPECT_FALSE(rules.conditions().reads_labels());
}

TEST(Rules, WhatIsReadIsStated) {
  const TestKnown known = usual_ops();
  const OpRules rules = compile(known, "attention.causal", R"(
dispatch_rules:
- {operation: "*", kernel: a, conditions: {is_causal: true, tenant: x, device: cuda, inference: on}}
)");
  std::vector<Axis::Kind> kinds;
  for (const Axis& a : rules.conditions().axes()) kinds.push_back(a.kind);
  EXPECT_THAT(kinds, ElementsAre(Axis::Kind::kInteger, Axis::Kind::kLabel, Axis::Kind::kDevice,
                                 Axis::Kind::kFlag));
  EXPECT_TRUE(rules.conditions().reads_scalars());
  EXPECT_TRUE(rules.conditions().reads_labels());
  EXPECT_EQ(rules.conditions().axes()[2].bits + rules.conditions().axes()[3].bits, 0u);
}

TEST(Rules, ScoresAreMatchedBesideRules) {
  const TestKnown known = usual_ops();
  const OpRules rules = compile(known, "rms_norm", R"(
score:
- {kernel: default.*, add: 5}
- {operation: rms_norm, kernel: vendor.*, multiply: 2, conditions: {rows_gte: 100}}
- {operation: rotary, kernel: x, add: 1}
)");
  EXPECT_THAT(rules.match(TestCall(known, "rms_norm(f32[8,64], f32[64])").view()), ElementsAre(0));
  EXPECT_THAT(rules.match(TestCall(known, "rms_norm(f32[800,64], f32[64])").view()),
              ElementsAre(0, 1));
  EXPECT_EQ(rules.clauses()[1].multiply, 2);
}

TEST(Rules, AnExactNameBeatsAGlobAndALongerGlobAShorterOne) {
  const std::map<std::string, int, std::less<>> map = {
      {"*", 1}, {"attention.*", 2}, {"attention.causal", 3}, {"att*", 4}};
  EXPECT_EQ(*find_for_op(map, "attention.causal"), 3);
  EXPECT_EQ(*find_for_op(map, "attention.full"), 2);
  EXPECT_EQ(*find_for_op(map, "rotary"), 1);
  EXPECT_EQ(find_for_op(std::map<std::string, int, std::less<>>{{"a", 1}}, "b"), nullptr);
}

// ---- The list of one op ----

constexpr KernelFacts kKernels[] = {
    {"default.simd", "", "simd"},
    {"vendor.acme", "acme", "acme", Kind::kVendor},
    {"vendor.off", "off", "off", Kind::kVendor, false},
    {"reference.cpp", "", "cpu", Kind::kReference},
};

// Returns the clause that excludes each kernel from all calls, or an empty text for kernels that
// may run.
std::vector<std::string> excluded(const Clauses& clauses) {
  std::vector<std::string> to;
  for (size_t i = 0; i < std::size(kKernels); ++i) {
    const uint32_t clause = clauses.always(i).excluded;
    to.push_back(clause == kNoClause ? "" : clauses.text(clauses.clause(clause)));
  }
  return to;
}

TEST(Clauses, TheFirstThatExcludesAKernelIsTheReason) {
  ClauseSources sources;
  EXPECT_THAT(excluded(Clauses(sources, "norm", kKernels)),
              ElementsAre("", "", "the backend's switch", ""));
  sources.policy.deny_kernels = {"vendor.*"};
  sources.policy.deny_vendors = {"acme"};
  sources.policy.backends = {{"off", true}, {"cpu", false}};
  EXPECT_THAT(excluded(Clauses(sources, "norm", kKernels)),
              ElementsAre("", "deny_kernels", "deny_kernels", "the backend's switch"));
  sources.force = "vendor.acme";
  EXPECT_THAT(excluded(Clauses(sources, "norm", kKernels)),
              ElementsAre("force", "deny_kernels", "force", "force"));
}

TEST(Clauses, AForcedKernelBypassesTheLockAndBothBypassTheOrder) {
  ClauseSources sources;
  sources.policy.locks = {{"n*", "reference.cpp"}};
  sources.policy.per_op = {{"norm", {"vendor:acme", "default"}}};
  EXPECT_THAT(excluded(Clauses(sources, "norm", kKernels)),
              ElementsAre("locks", "locks", "locks", ""));
  // Without the clause that excludes a kernel, the next one counts.
  sources.without = {Clause::Act::kLock, 0, kKernels[0]};
  const Clauses ordered(sources, "norm", kKernels);
  EXPECT_THAT(excluded(ordered), ElementsAre("", "", "the backend's switch", "per_op"));
  EXPECT_LT(ordered.tier(1), ordered.tier(0));
  sources.force = "default.simd";
  EXPECT_THAT(excluded(Clauses(sources, "norm", kKernels)),
              ElementsAre("", "force", "force", "force"));
}

TEST(Clauses, RulesWithoutConditionsAreAppliedToAllCalls) {
  const TestKnown known = usual_ops();
  ClauseSources sources;
  sources.rules = std::make_shared<const OpRules>(compile(known, "rms_norm", R"(
dispatch_rules:
- {operation: rms_norm, deny: [vendor.acme], kernel: reference.cpp}
- {operation: rms_norm, allow: ["default.*"], conditions: {rows_gte: 100}}
score:
- {kernel: default.*, add: 5, multiply: 2}
)"));
  const Clauses clauses(sources, "rms_norm", kKernels);
  EXPECT_EQ(clauses.clause(clauses.always(1).excluded).act, Clause::Act::kDeny);
  EXPECT_EQ(clauses.clause(clauses.always(3).chosen).act, Clause::Act::kChoose);
  EXPECT_EQ(clauses.always(0).add, 5);
  EXPECT_EQ(clauses.always(0).multiply, 2);
  Rulings of;
  clauses.evaluate(TestCall(known, "rms_norm(f32[8,64], f32[64])").view(), of);
  EXPECT_EQ(of.kernels[3].excluded, kNoClause);
  clauses.evaluate(TestCall(known, "rms_norm(f32[800,64], f32[64])").view(), of);
  EXPECT_EQ(clauses.clause(of.kernels[3].excluded).act, Clause::Act::kAllow);
  EXPECT_EQ(of.kernels[0].excluded, kNoClause);
}

TEST(Clauses, AFallbackOfModesIsASequenceOfGroups) {
  using Takes = ClauseGroup::Takes;
  ClauseSources sources;
  sources.mapped = "reference.cpp";
  sources.mode.mode = Mode::kStatic;
  EXPECT_THAT(excluded(Clauses(sources, "norm", kKernels)),
              ElementsAre("mode static", "mode static", "the backend's switch", ""));
  sources.mode.fallback = {Mode::kConfig, Mode::kDynamic};
  const Clauses clauses(sources, "norm", kKernels);
  std::vector<std::pair<Mode, Takes>> groups;
  for (const ClauseGroup& g : clauses.groups()) groups.emplace_back(g.mode, g.takes);
  EXPECT_THAT(groups, ElementsAre(std::pair(Mode::kStatic, Takes::kMapped),
                                  std::pair(Mode::kConfig, Takes::kChosen),
                                  std::pair(Mode::kDynamic, Takes::kAll)));
  EXPECT_LT(clauses.tier(3), 0);
}

// ---- Equal keys, equal matches ----

template <class T>
T pick(std::initializer_list<T> from) {
  return *rc::gen::elementOf(std::vector<T>(from));
}
int upto(int n) { return *rc::gen::inRange(0, n); }

std::string random_condition() {
  const std::string number = std::to_string(upto(6));
  const std::string suffix = pick<std::string>({"", "_ne", "_gt", "_gte", "_lt", "_lte"});
  switch (upto(9)) {
    case 0:
      return pick<std::string>({"batch", "seq_q", "seq_k", "window", "rows_mask", "tp_size"}) +
             suffix + ": " + number;
    case 1: return pick<std::string>({"batch_in", "seq_q_not_in"}) + ": [1, " + number + "]";
    case 2: return "dropout" + suffix + ": 0." + number;
    case 3:
      return pick<std::string>({"dtype", "k.dtype_ne", "mask.dtype", "dtype_not_in"}) + ": " +
             pick<std::string>({"f32", "bf16", "f16"});
    case 4:
      return pick<std::string>({"layout: bhsd", "q.layout: dense", "contiguous: false",
                                "q.layout_ne: strided", "mask.contiguous: true"});
    case 5:
      return pick<std::string>({"tenant: a", "tenant_ne: a", "tenant_match: \"a*\"",
                                "tenant_regex: \"[ab]+\"", "tenant_in: [a, b, ab]"});
    case 6: return pick<std::string>({"note: a", "note_match: \"*b\"", "note_ne: \"\""});
    case 7: return pick<std::string>({"device: cuda", "device_match: \"*:1\"", "platform: cpu"});
    default: return pick<std::string>({"causal: true", "deterministic: false", "inference: true"});
  }
}

std::string random_rules() {
  std::string text = "dispatch_rules:\n";
  for (int i = upto(12); i >= 0; --i) {
    std::string conditions;
    std::map<std::string, bool> used;
    for (int k = upto(4); k > 0; --k) {
      const std::string c = random_condition();
      if (!used.emplace(c.substr(0, c.find(':')), true).second) continue;
      conditions += (conditions.empty() ? "" : ", ") + c;
    }
    text += fmt::format("- {{operation: \"*\", kernel: k, priority: {}, conditions: {{{}}}}}\n",
                        upto(3), conditions);
  }
  return text;
}

std::string random_call() {
  const std::string dtype = pick<std::string>({"f32", "bf16"});
  const int batch = upto(5) + 1, q = upto(6) + 1, k = upto(6) + 1;
  std::string text = fmt::format(
      "attention.causal({0}[{1},{2},1,8{3}], {0}[{1},{4},1,8], {0}[{1},{4},1,8]", dtype, batch, q,
      pick<std::string>(
          {"", fmt::format(";{},16,8,1", 16 * q), fmt::format(";{},32,16,2", 32 * q)}),
      k);
  if (upto(2)) text += fmt::format(", mask={}[{}]", pick<std::string>({"f32", "f16"}), upto(4));
  text += fmt::format(", causal={}, dropout={}, layout={}, note=\"{}\", window={})",
                      pick<std::string>({"true", "false"}),
                      pick<std::string>({"0.1", "0.3", "nan"}), pick<std::string>({"bshd", "bhsd"}),
                      pick<std::string>({"", "a", "ab", "zb"}), upto(6));
  text += pick<std::string>({"@cpu", "@cuda", "@cuda:1"});
  text += pick<std::string>({"", "+deterministic", "+inference"});
  std::string labels;
  if (upto(3)) labels += "tenant=" + pick<std::string>({"a", "b", "ab", "c"});
  if (upto(2))
    labels += (labels.empty() ? "" : ", ") + ("tp_size=" + pick<std::string>({"1", "3", "x"}));
  return labels.empty() ? text : text + "{" + labels + "}";
}

RC_GTEST_PROP(Rules, CallsWithEqualKeysMatchTheSameRules, ()) {
  const TestKnown known = usual_ops();
  const OpRules rules = compile(known, "attention.causal", random_rules());
  std::map<std::vector<uint64_t>, std::vector<uint32_t>> classes;
  for (int i = 0; i < 60; ++i) {
    const TestCall call(known, random_call());
    const CallView view = call.view();
    std::vector<uint64_t> key(rules.conditions().key_words() + 1, 0x5a5a);
    rules.conditions().fold(view, key.data());
    RC_ASSERT(key.back() == 0x5a5au);  // it wrote key_words() words and no more
    key.push_back(view.flags);
    key.push_back(static_cast<uint64_t>(view.device.type) << 32 |
                  static_cast<uint64_t>(view.device.index));
    const std::vector<uint32_t> matches = rules.match(view);
    const auto [it, is_new] = classes.emplace(key, matches);
    RC_ASSERT(is_new || it->second == matches);
  }
}

}  // namespace
}  // namespace yard::policy
