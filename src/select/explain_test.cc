// SPDX-License-Identifier: Apache-2.0
// Tests explanations as data, text and JSON: the winner, why others lost, and the part of policy.
#include "select/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "select/reasons.h"
#include "select/testing.h"

namespace yard::select {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using testing::backend_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Ring;

Ring explained_field() {
  Ring r;
  r.add("default.a").add("vendor.acme", "acme", YARD_KIND_VENDOR, 200);
  r.add("vendor.other", "other", YARD_KIND_VENDOR)
      .add("reference.cpp", "plain", YARD_KIND_REFERENCE);
  return r;
}

std::vector<std::string> ids(const Explanation& e) {
  std::vector<std::string> out;
  for (const Candidate& c : e.candidates) out.push_back(c.id);
  return out;
}

TEST(Explain, CandidatesInTheOrderOfTryingRejectedOnesLast) {
  Ring r = explained_field();
  r.policy.deny_kernels = {"default.a"};
  const Explanation e = r.explain();
  EXPECT_EQ(e.op, "norm");
  EXPECT_EQ(e.selected, "vendor.acme");
  EXPECT_THAT(e.call, HasSubstr("norm(f32[4,64]"));
  EXPECT_THAT(ids(e), ElementsAre("vendor.acme", "vendor.other", "reference.cpp", "default.a"));
  const Candidate& winner = e.candidates[0];
  EXPECT_EQ(winner.verdict, "selected");
  EXPECT_THAT(winner.reason, IsEmpty());
  EXPECT_EQ(winner.vendor, "acme");
  EXPECT_EQ(winner.backend, "acme");
  EXPECT_EQ(winner.kind, Kind::kVendor);
  EXPECT_EQ(winner.priority, 200);
  EXPECT_EQ(e.candidates[1].verdict, "able");
  EXPECT_EQ(e.candidates[1].reason, "outranked");
  EXPECT_EQ(e.candidates[1].detail, "priority 100 against 200");
  EXPECT_THAT(e.candidates[2].detail, HasSubstr("order of preference (reference)"));
  EXPECT_EQ(e.candidates[3].verdict, "rejected");
  EXPECT_EQ(e.candidates[3].reason, "denied_kernel");
}

TEST(Explain, NoKernelIsAble) {
  Ring r = explained_field();
  r.policy.deny_kernels = {"*"};
  const Explanation e = r.explain();
  EXPECT_EQ(e.selected, "");
  EXPECT_THAT(e.to_text(), HasSubstr("no kernel is allowed, able and healthy"));
  EXPECT_TRUE(json::parse(e.to_json())["selected"].is_null());
  const Status s = no_kernel(r.candidates(), r.call());
  EXPECT_EQ(s.code(), Code::kNoKernel);
  EXPECT_EQ(s.notes().size(), 4u);
  EXPECT_THAT(s.to_string(), HasSubstr("vendor.acme: denied_kernel: "));
  EXPECT_THAT(no_kernel(Ring().candidates(), Ring().call()).to_string(),
              HasSubstr("has no kernels"));
}

// ---- Details -----------------------------------------------------------------------------------

TEST(Detail, OfLimitsHasItsFigures) {
  const auto detail = [](yard_limit_t l, const char* call) {
    Ring r;
    r.limit("default.l", l);
    return r.candidate("default.l", call).detail;
  };
  EXPECT_EQ(detail({YARD_LIMIT_MULTIPLE, 0, "hidden", 8, 0, 0}, "norm(f32[4,100])"),
            "hidden = 100 is not a multiple of 8");
  EXPECT_EQ(detail({YARD_LIMIT_MIN, 0, "rows", 8, 0, 0}, "norm(f32[2,2,100])"),
            "rows = 4 is below its least, 8");
  EXPECT_EQ(detail({YARD_LIMIT_MAX, 0, "groups", 8, 0, 0}, "norm(f32[4,8], groups=9)"),
            "groups = 9 is above its most, 8");
  EXPECT_EQ(detail({YARD_LIMIT_DTYPE, 0, nullptr,
                    YARD_DTYPE_BIT(YARD_F16) | YARD_DTYPE_BIT(YARD_BF16), 0, 0},
                   "norm(f32[4,8])"),
            "out is f32; it takes f16, bf16");
  EXPECT_EQ(detail({YARD_LIMIT_RANK, 0, "x", 2, 3, 0}, "norm(f32[8])"),
            "x has rank 1; it takes 2 to 3");
  EXPECT_EQ(detail({YARD_LIMIT_ALIGN, 0, "x", 32, 0, 0}, "norm(f32[8]%4)"),
            "x is aligned to 4 bytes; it needs 32");
  EXPECT_EQ(detail({YARD_LIMIT_COMPACT, 0, nullptr, 0, 0, 0}, "norm(f32[8], f32[8;2])"),
            "bias is not compact, row-major");
  EXPECT_EQ(detail({YARD_LIMIT_INNER_DENSE, 0, "x", 0, 0, 0}, "norm(f32[8;2])"),
            "x is not dense in its last dimension");
  EXPECT_THAT(detail({YARD_LIMIT_PLAIN, 0, "x", 0, 0, 0}, "norm(f32[4,8;0,1])"),
              HasSubstr("x is not free of"));
  EXPECT_EQ(detail({YARD_LIMIT_EQUALS, 0, "mode", 1, 0, 0}, "norm(f32[8])"),
            "mode = fast; it takes exact only");
  EXPECT_EQ(detail({YARD_LIMIT_EQUALS, 0, "groups", 1, 0, 0}, "norm(f32[8], groups=3)"),
            "groups = 3; it takes 1 only");
  EXPECT_EQ(detail({YARD_LIMIT_ABSENT, 0, "bias", 0, 0, 0}, "norm(f32[8], f32[8])"),
            "it does not take bias");
  EXPECT_EQ(detail({YARD_LIMIT_PRESENT, 0, "bias", 0, 0, 0}, "norm(f32[8])"), "it needs bias");
}

TEST(Detail, OfTheMachineAndThePolicy) {
  Ring r = explained_field();
  r.add("default.f", "plain", YARD_KIND_DEFAULT,
        [](yard_kernel_t& d) { d.features = "sse2 neon"; });
  yard_backend_t cuda = backend_of("cuda", "nvidia");
  cuda.device_type = 2;
  r.shelf.put(cuda);
  r.add("vendor.cuda", "cuda", YARD_KIND_VENDOR);
  r.policy.deny_vendors = {"acme"};
  r.policy.backends["other"] = false;
  EXPECT_THAT(r.candidate("default.f").detail, HasSubstr(", which this machine does not offer"));
  EXPECT_EQ(r.candidate("vendor.cuda").detail, "the call is on cpu, the kernel runs on cuda");
  EXPECT_EQ(r.candidate("vendor.acme").detail, "deny_vendors lists acme");
  EXPECT_EQ(r.candidate("vendor.other").detail, "backend other is switched off");
  r.policy.deny_vendors.clear();
  r.policy.allow_vendors.emplace();
  EXPECT_EQ(r.candidate("vendor.acme").detail, "allow_vendors does not list acme");
}

TEST(Detail, OfProbesAndVerifiers) {
  static const char* const texts[] = {"tile {0} x {2} does not fit {1}, {3} {"};
  Ring r;
  yard_backend_t b = backend_of("device");
  b.reasons = texts, b.reason_count = 1;
  b.probe = [](void*, const yard_host_t*, yard_device_t, yard_verdict_t* why) -> int32_t {
    *why = {YARD_REASON_OWN, 0, {1, 2, 3}};
    return YARD_DECLINED;
  };
  r.shelf.put(b);
  r.add("default.p", "device");
  EXPECT_EQ(r.candidate("default.p").detail,
            "backend device is not available: tile 1 x 3 does not fit 2, {3} {");
  const auto verifier = [&](const char* id, decltype(yard_kernel_t::verify) verify) {
    static const yard_limit_t least = {YARD_LIMIT_MIN, 0, "hidden", 1, 0, 0};
    r.add(id, "plain", YARD_KIND_DEFAULT, [&](yard_kernel_t& d) {
      d.verify = verify, d.reasons = texts, d.reason_count = 1, d.limits = &least,
      d.limit_count = 1;
    });
    return r.candidate(id);
  };
  Candidate c = verifier("default.own", [](const yard_query_t*, yard_verdict_t* v) -> int32_t {
    *v = {YARD_REASON_OWN, 0, {16, -1, 32}};
    return YARD_DECLINED;
  });
  EXPECT_EQ(c.reason, "own");
  EXPECT_EQ(c.detail, "tile 16 x 32 does not fit -1, {3} {");
  c = verifier("default.silent", [](const yard_query_t*, yard_verdict_t* v) -> int32_t {
    return v->reason = YARD_REASON_OWN + 5, YARD_DECLINED;
  });
  EXPECT_EQ(c.detail, "its own reason 5, which it does not explain");
  // If a verifier uses a code of the catalogue, its figures are not taken for a limit's.
  c = verifier("default.borrowed", [](const yard_query_t*, yard_verdict_t* v) -> int32_t {
    *v = {YARD_REASON_DIM_TOO_SMALL, 0, {0, 4, 0}};
    return YARD_DECLINED;
  });
  EXPECT_EQ(c.reason, "dim_too_small");
  EXPECT_EQ(c.detail, "A dimension or integer is below its least.");
  c = verifier("default.odd", [](const yard_query_t*, yard_verdict_t* v) -> int32_t {
    return v->reason = 500, YARD_DECLINED;
  });
  EXPECT_EQ(c.reason, "unknown");
  EXPECT_THAT(c.detail, HasSubstr("500"));
  c = verifier("default.throws", [](const yard_query_t*, yard_verdict_t*) -> int32_t {
    throw std::runtime_error("boom");
  });
  EXPECT_EQ(c.reason, "verifier_broken");
  EXPECT_EQ(c.detail, "its verifier threw: boom");
}

TEST(Detail, OfTheOutrankedNamesTheStepThatDecided) {
  static const char* const reads[] = {"hidden", nullptr};
  Ring r;
  const auto cost = [&](const char* id, decltype(yard_kernel_t::cost) c, int32_t priority) {
    r.add(id, "plain", YARD_KIND_DEFAULT,
          [&](yard_kernel_t& d) { d.cost = c, d.cost_reads = reads, d.priority = priority; });
  };
  cost(
      "default.fast", [](void*, const int64_t*, uint32_t) { return 100.0; }, 160);
  cost(
      "default.slow", [](void*, const int64_t*, uint32_t) { return 250.0; }, 150);
  EXPECT_EQ(r.candidate("default.slow").detail, "estimated 250 ns against 100 ns");
  EXPECT_EQ(r.candidate("default.slow").estimate_ns, 250.0);
  // If one kernel states no estimate, estimates decide nothing and are not named.
  r.add("default.silent", "plain", YARD_KIND_DEFAULT, 150);
  EXPECT_EQ(r.candidate("default.slow").detail, "priority 150 against 160");
  r.policy.deny_kernels = {"default.fast"};
  EXPECT_EQ(r.candidate("default.slow").detail,
            "equal in all else; 'default.silent' comes first by name");
}

// ---- Counterfactuals ---------------------------------------------------------------------------

TEST(Counterfactual, OfEveryReasonThatPolicyCanGive) {
  const auto expect = [](const Ring& r, const char* sentence) {
    EXPECT_THAT(r.explain().counterfactuals, ElementsAre(sentence));
  };
  Ring r = explained_field();
  EXPECT_THAT(r.explain().counterfactuals, IsEmpty());
  r.policy.deny_vendors = {"acme"};
  expect(r, "deny_vendors excluded vendor.acme, which would have been first");
  r = explained_field();
  r.policy.deny_kernels = {"*.ac*"};
  expect(r, "deny_kernels excluded vendor.acme, which would have been first");
  r = explained_field();
  r.deny = {"vendor.*"};
  expect(r, "the call's deny list excluded vendor.acme, which would have been first");
  r = explained_field();
  r.policy.allow_vendors = {{"other"}};
  expect(r, "allow_vendors excluded vendor.acme, which would have been first");
  r = explained_field();
  r.policy.allow_kernels = {{"default.*"}};
  expect(r, "allow_kernels excluded vendor.acme, which would have been first");
  r = explained_field();
  r.policy.per_op["norm"] = {"default"};
  expect(r, "per_op excluded vendor.acme, which would have been first");
  r = explained_field();
  r.force = "default.a";
  expect(r, "force excluded vendor.acme, which would have been first");
  r = explained_field();
  r.policy.locks["n*"] = "default.a";
  expect(r, "locks excluded vendor.acme, which would have been first");
  r = explained_field();
  r.policy.backends["acme"] = false;
  expect(r, "the backend's switch excluded vendor.acme, which would have been first");
  r = explained_field();
  r.policy.reference_only = true;
  expect(r, "reference_only excluded vendor.acme, which would have been first");
}

TEST(Counterfactual, NotOfAKernelThatWouldNotHaveWon) {
  Ring r = explained_field();
  r.policy.deny_vendors = {"other"};  // the second vendor would have come third
  EXPECT_THAT(r.explain().counterfactuals, IsEmpty());
  // A kernel that could not have run has no counterfactual either.
  r.add("vendor.wide", "other", YARD_KIND_VENDOR, [](yard_kernel_t& d) {
    static const yard_limit_t l = {YARD_LIMIT_MIN, 0, "hidden", 1 << 20, 0, 0};
    d.priority = 900, d.limits = &l, d.limit_count = 1;
  });
  EXPECT_THAT(r.explain().counterfactuals, IsEmpty());
}

TEST(Explain, SaysWhatPolicyWasInForceAndFromWhere) {
  Ring r = explained_field();
  Policy process, scope;
  process.prefer = Kind::kVendor;
  scope.deny_vendors = {"acme"};
  const policy::Source sources[] = {{"process", &process}, {"scope", &scope}};
  const CandidateSet candidates(
      {r.shelf.op_record("norm"), {merge(process, scope), "vendor.other", {"x*", "y"}}, {}});
  const Explanation e = explain(candidates, r.call(), sources);
  std::vector<std::string> said;
  for (const Explanation::PolicyNote& n : e.policy)
    said.push_back(n.field + "=" + n.value + "@" + n.source);
  EXPECT_THAT(said, ElementsAre("prefer=vendor@process", "deny_vendors=acme@scope",
                                "force=vendor.other@call", "deny=x*,y@call"));
  EXPECT_EQ(e.selected, "vendor.other");
}

TEST(Standing, OfAKernelOnItsOwnDevice) {
  Ring r = explained_field();
  yard_backend_t b = backend_of("gone");
  b.device_type = 2;
  b.probe = [](void*, const yard_host_t*, yard_device_t d, yard_verdict_t*) -> int32_t {
    return d.type == 2 ? YARD_DEVICE_LOST : YARD_OK;
  };
  r.shelf.put(b);
  r.add("default.gone", "gone");
  r.policy.deny_kernels = {"default.a"};
  r.policy.backends["acme"] = false;
  const CandidateSet candidates = r.candidates();
  std::map<std::string, int32_t> reasons;
  std::string text;
  for (const KernelCandidate& c : candidates.all())
    reasons[c.kernel->id] = standing(c, nullptr, &text).reason;
  EXPECT_EQ(reasons["default.a"], YARD_REASON_NONE);  // denied, but available
  EXPECT_EQ(reasons["vendor.acme"], YARD_REASON_DISABLED);
  EXPECT_EQ(reasons["default.gone"], YARD_REASON_UNAVAILABLE);
  EXPECT_THAT(text, HasSubstr("its probe returned 5"));
}

// ---- Text and JSON -----------------------------------------------------------------------------

TEST(Text, LinesUpAndHasNoEscapes) {
  Ring r = explained_field();
  r.policy.deny_vendors = {"acme"};
  const std::string text = r.explain().to_text();
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  std::istringstream lines(text);
  std::vector<size_t> columns;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
    for (const char* verdict : {" selected", " able", " rejected"})
      if (const size_t at = line.find(verdict); at != line.npos) columns.push_back(at);
  }
  EXPECT_EQ(columns.size(), 4u);
  for (size_t c : columns) EXPECT_EQ(c, columns[0]);
  EXPECT_THAT(text,
              AllOf(HasSubstr("  runs default.a\n"),
                    HasSubstr("policy: deny_vendors = acme (from process)"),
                    HasSubstr("deny_vendors excluded vendor.acme, which would have been first")));
  const std::string colour = r.explain().to_text(true);
  EXPECT_THAT(colour, HasSubstr("\x1b[1;32mdefault.a\x1b[0m"));
  std::string plain;
  for (size_t i = 0; i < colour.size(); ++i)
    if (colour[i] == '\x1b')
      i = colour.find('m', i);
    else
      plain += colour[i];
  EXPECT_EQ(plain, text);
  EXPECT_THAT(explained_field().explain().to_text(), HasSubstr("policy: nothing set"));
}

TEST(Text, WhatOthersSaidCannotSteerTheTerminal) {
  Explanation e;
  Candidate broken;
  broken.id = "default.a", broken.backend = "b", broken.verdict = "rejected";
  broken.reason = "verifier_broken", broken.detail = "red \x1b[31m\nnew line";
  e.candidates.push_back(broken);
  EXPECT_THAT(e.to_text(), Not(HasSubstr("\x1b")));
  EXPECT_THAT(e.to_text(), HasSubstr("red \\x1b[31m; new line"));
}

TEST(Json, ParsesAndHasItsKeys) {
  Ring r = explained_field();
  r.policy.deny_vendors = {"acme"};
  Explanation e = r.explain();
  e.generation = 7;
  const json j = json::parse(e.to_json());
  EXPECT_EQ(j["op"], "norm");
  EXPECT_EQ(j["call"], e.call);
  EXPECT_EQ(j["selected"], "default.a");
  EXPECT_EQ(j["generation"], 7);
  ASSERT_EQ(j["candidates"].size(), 4u);
  for (size_t i = 0; i < e.candidates.size(); ++i) {
    const json& c = j["candidates"][i];
    EXPECT_EQ(c["id"], e.candidates[i].id);
    EXPECT_EQ(c["verdict"], e.candidates[i].verdict);
    EXPECT_TRUE(c.contains("reason") && c.contains("detail"));
    EXPECT_EQ(c["reason"].is_null(), e.candidates[i].reason.empty());
  }
  EXPECT_EQ(j["candidates"][3]["reason"], "denied_vendor");
  EXPECT_EQ(j["policy"][0],
            json({{"field", "deny_vendors"}, {"value", "acme"}, {"source", "process"}}));
  EXPECT_EQ(j["counterfactuals"].size(), 1u);
}

TEST(Json, ParsesWhateverTheTextsHold) {
  Explanation e;
  e.op = "\xff\"\\";
  e.call = std::string("\0\x01\x1f", 3);
  e.selected = "\xed\xa0\x80";
  e.policy = {{"\n", "\xc0\xaf", "\t"}};
  e.counterfactuals = {"größer", "\x80"};
  for (double ns : {1e300, 0.1, HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    Candidate c;
    c.id = "{}", c.detail = "\xf0\x9f\x98", c.estimate_ns = ns;
    e.candidates.push_back(c);
  }
  json j;
  ASSERT_NO_THROW(j = json::parse(e.to_json())) << e.to_json();
  EXPECT_EQ(j["call"].get<std::string>(), e.call);
  EXPECT_EQ(j["candidates"][1]["estimate_ns"], 0.1);
  EXPECT_TRUE(j["candidates"][2]["estimate_ns"].is_null());
  EXPECT_EQ(j["counterfactuals"][0], "größer");
}

}  // namespace
}  // namespace yard::select
