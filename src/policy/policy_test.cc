// SPDX-License-Identifier: Apache-2.0
// Tests policy values: merging, validation, text, and notes of sources.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <yard/options.h>
#include <yard/policy.h>

#include <chrono>

#include "policy/process.h"

namespace yard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Merge, AStrongerSourceReplacesScalarsEntriesAndAllowLists) {
  Policy weak, strong;
  weak.prefer = Kind::kVendor;
  weak.strict = true;
  weak.per_op["softmax"] = {"vendor"};
  weak.per_op["norm"] = {"default"};
  weak.allow_vendors = {{"a", "b"}};
  weak.allow_kernels = {{"default.*"}};
  weak.locks["norm"] = "default.a";
  weak.backends["acme"] = false;
  strong.prefer = Kind::kReference;
  strong.strict = false;
  strong.per_op["softmax"] = {"reference"};
  strong.allow_vendors = {{"c"}};
  strong.locks["norm"] = "default.b";
  strong.locks["*"] = "default.c";
  strong.backends["acme"] = true;
  const Policy p = merge(weak, strong);
  EXPECT_EQ(p.prefer, Kind::kReference);
  EXPECT_EQ(p.strict, false);
  EXPECT_THAT(p.per_op.at("softmax"), ElementsAre("reference"));
  EXPECT_THAT(p.per_op.at("norm"), ElementsAre("default"));
  EXPECT_THAT(*p.allow_vendors, ElementsAre("c"));
  EXPECT_THAT(*p.allow_kernels, ElementsAre("default.*"));
  EXPECT_EQ(p.locks.at("norm"), "default.b");
  EXPECT_EQ(p.locks.at("*"), "default.c");
  EXPECT_TRUE(p.backends.at("acme"));
}

TEST(Merge, DenyListsAddUp) {
  Policy weak, strong;
  weak.deny_vendors = {"a", "b"};
  weak.deny_kernels = {"*.slow"};
  strong.deny_vendors = {"b", "c"};
  const Policy p = merge(weak, strong);
  EXPECT_THAT(p.deny_vendors, ElementsAre("a", "b", "c"));
  EXPECT_THAT(p.deny_kernels, ElementsAre("*.slow"));
}

TEST(Merge, AnUnsetFieldSaysNothing) {
  Policy p;
  p.prefer = Kind::kDefault;
  p.reference_only = true;
  // This list is set but empty, so no vendor is allowed.
  p.allow_vendors.emplace();
  p.deny_kernels = {"x"};
  p.per_op["a"] = {"default"};
  EXPECT_EQ(merge(p, Policy()), p);
  EXPECT_EQ(merge(Policy(), p), p);
  EXPECT_EQ(merge(p, p), p);
  Policy none;
  EXPECT_TRUE(none.empty());
  EXPECT_FALSE(p.empty());
}

// Returns a few of each, so that they collide often.
Policy any_policy() {
  const auto names = [] {
    return *rc::gen::container<std::vector<std::string>>(
        rc::gen::element<std::string>("a", "b", "a,b", "a b", "*"));
  };
  const auto flag = [] { return *rc::gen::arbitrary<bool>(); };
  Policy p;
  if (flag()) p.prefer = *rc::gen::element(Kind::kDefault, Kind::kVendor, Kind::kReference);
  if (flag()) p.strict = flag();
  if (flag()) p.reference_only = flag();
  if (flag()) p.allow_vendors = names();
  if (flag()) p.allow_kernels = names();
  for (const std::string& n : names()) p.backends[n] = flag();
  for (const std::string& n : names()) p.locks[n] = *rc::gen::element<std::string>("x", "y z");
  for (const std::string& n : names())
    p.per_op[n] = {*rc::gen::element<std::string>("vendor", "impl:a|b")};
  // Merged deny lists contain no duplicates.
  Policy denies;
  denies.deny_vendors = names();
  p.deny_vendors = merge(Policy(), denies).deny_vendors;
  return p;
}

TEST(Merge, IsAssociativeAndIdempotent) {
  EXPECT_TRUE(rc::check("merge", [] {
    const Policy a = any_policy(), b = any_policy(), c = any_policy();
    RC_ASSERT(merge(merge(a, b), c) == merge(a, merge(b, c)));
    RC_ASSERT(merge(a, a) == a);
    const Policy ab = merge(a, b);
    for (const std::string& v : a.deny_vendors)
      RC_ASSERT(std::count(ab.deny_vendors.begin(), ab.deny_vendors.end(), v) == 1);
  }));
}

TEST(ToString, IsEqualExactlyForEqualPolicies) {
  EXPECT_TRUE(rc::check("to_string", [] {
    const Policy a = any_policy(), b = any_policy();
    RC_ASSERT((to_string(a) == to_string(b)) == (a == b));
    const Policy copy = a;
    RC_ASSERT(to_string(copy) == to_string(a));
  }));
  Policy one, two;
  one.deny_vendors = {"a,b"};
  two.deny_vendors = {"a", "b"};
  EXPECT_NE(to_string(one), to_string(two));
  one = two = {};
  one.allow_vendors = {{""}};
  two.allow_vendors.emplace();
  EXPECT_NE(to_string(one), to_string(two));
}

TEST(ToString, IsOneLine) {
  EXPECT_EQ(to_string(Policy()), "nothing set");
  Policy p;
  p.deny_vendors = {"acme", "b"};
  p.prefer = Kind::kVendor;
  p.strict = true;
  p.per_op["softmax"] = {"vendor:onednn", "impl:default.simd", "reference"};
  p.locks["norm*"] = "default.a";
  p.backends["acme"] = false;
  p.deny_kernels = {"odd\nname"};
  EXPECT_EQ(
      to_string(p),
      "prefer=vendor strict=true per_op[softmax]=vendor:onednn|impl:default.simd|reference "
      "deny_vendors=acme,b deny_kernels=\"odd\\nname\" locks[norm*]=default.a backends[acme]=off");
}

std::string why(const Policy& p) { return validate(p).to_string(); }

TEST(Validate, AcceptsWhatIsWellFormed) {
  Policy p;
  EXPECT_EQ(why(p), "ok");
  p.per_op["softmax"] = {"default", "vendor", "reference", "vendor:acme", "impl:vendor.acme"};
  p.allow_vendors.emplace();
  p.locks["*"] = "default.a";
  p.deny_kernels = {"*", "?.x"};
  p.backends["acme"] = true;
  EXPECT_EQ(why(p), "ok");
}

TEST(Validate, NamesTheFieldAndWhatWouldBeRight) {
  const auto token = [](const char* t) {
    Policy p;
    p.per_op["softmax"] = {"default", t};
    return why(p);
  };
  EXPECT_THAT(token("vendr"), AllOf(HasSubstr("per_op['softmax']"), HasSubstr("'vendr'"),
                                    HasSubstr("did you mean 'vendor'?")));
  for (const char* t : {"vendor:", "impl:", "kernel:x", ":", ":x"})
    EXPECT_THAT(token(t), HasSubstr("reference, vendor:NAME or impl:ID")) << t;
  EXPECT_THAT(token(""), HasSubstr("per_op['softmax']"));
  Policy p;
  p.per_op["softmax"] = {};
  EXPECT_THAT(why(p), HasSubstr("would leave no kernel"));
  p = {};
  p.per_op[""] = {"default"};
  EXPECT_THAT(why(p), HasSubstr("per_op"));
  p = {};
  p.locks["softmax"] = "";
  EXPECT_THAT(why(p), HasSubstr("lock"));
  p = {};
  p.backends[""] = true;
  EXPECT_THAT(why(p), HasSubstr("backends"));
  for (auto list : {&Policy::deny_vendors, &Policy::deny_kernels}) {
    p = {};
    p.*list = {"a", ""};
    EXPECT_THAT(why(p), HasSubstr("holds an empty name"));
  }
  for (auto list : {&Policy::allow_vendors, &Policy::allow_kernels}) {
    p = {};
    p.*list = {{""}};
    EXPECT_THAT(why(p), HasSubstr("holds an empty name"));
  }
  EXPECT_EQ(validate(p).code(), Code::kInvalidArgument);
}

TEST(Glob, Table) {
  struct Row {
    const char* pattern;
    const char* text;
    bool matches;
  };
  const Row rows[] = {
      {"", "", true},
      {"", "a", false},
      {"*", "", true},
      {"*", "anything", true},
      {"?", "", false},
      {"?", "a", true},
      {"?", "ab", false},
      {"a", "a", true},
      {"a", "A", false},
      {"a*", "a", true},
      {"a*", "ba", false},
      {"*a", "ba", true},
      {"*a", "ab", false},
      {"a*c", "abbbc", true},
      {"a*c", "abbb", false},
      {"a?c", "abc", true},
      {"a?c", "ac", false},
      {"**", "x", true},
      {"*?*", "", false},
      {"*?*", "x", true},
      {"vendor.*", "vendor.acme", true},
      {"vendor.*", "vendor", false},
      {"*.acme", "vendor.acme", true},
      {"*.*", "nodot", false},
      {"a*b*c", "aXbYc", true},
      {"a*b*c", "aXcYb", false},
      {"*ab", "aab", true},
      {"*aab", "aaab", true},
      {"[a]", "a", false},
      {"[a]", "[a]", true},
      {"a", "", false},
      {"?*?", "a", false},
      {"?*?", "ab", true},
  };
  for (const Row& r : rows)
    EXPECT_EQ(glob_matches(r.pattern, r.text), r.matches) << r.pattern << " / " << r.text;
}

// Matches by the definition of a glob.
bool slowly(std::string_view p, std::string_view t) {
  if (p.empty()) return t.empty();
  if (p[0] == '*') return slowly(p.substr(1), t) || (!t.empty() && slowly(p, t.substr(1)));
  return !t.empty() && (p[0] == '?' || p[0] == t[0]) && slowly(p.substr(1), t.substr(1));
}

TEST(Glob, AgreesWithItsDefinition) {
  EXPECT_TRUE(rc::check("glob", [] {
    const auto p =
        *rc::gen::resize(10, rc::gen::container<std::string>(rc::gen::element('a', 'b', '*', '?')));
    const auto t =
        *rc::gen::resize(14, rc::gen::container<std::string>(rc::gen::element('a', 'b')));
    RC_ASSERT(glob_matches(p, t) == slowly(p, t));
  }));
}

TEST(Glob, PathologicalPatternsEnd) {
  std::string pattern, text(20000, 'a');
  for (int i = 0; i < 200; ++i) pattern += "a*";
  pattern += "b";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(glob_matches(pattern, text));
  EXPECT_TRUE(glob_matches(std::string(1000, '*'), text));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Notes, SayWhoSaidWhat) {
  Policy process, call;
  process.prefer = Kind::kVendor;
  process.deny_vendors = {"acme"};
  process.per_op["norm"] = {"default"};
  call.prefer = Kind::kDefault;
  call.deny_vendors = {"b"};
  call.strict = true;
  const policy::Source sources[] = {{"process", &process}, {"call", &call}};
  std::map<std::string, std::pair<std::string, std::string>> said;
  for (const Explanation::PolicyNote& n : policy::notes(sources))
    said[n.field] = {n.value, n.source};
  EXPECT_EQ(said.size(), 4u);
  EXPECT_EQ(said["prefer"], std::pair(std::string("default"), std::string("call")));
  EXPECT_EQ(said["deny_vendors"], std::pair(std::string("acme,b"), std::string("process, call")));
  EXPECT_EQ(said["per_op[norm]"], std::pair(std::string("default"), std::string("process")));
  EXPECT_EQ(said["strict"], std::pair(std::string("true"), std::string("call")));
  EXPECT_TRUE(policy::notes(std::span<const policy::Source>()).empty());
}

TEST(Words, KindsAndModesReadBack) {
  for (Kind k : {Kind::kDefault, Kind::kVendor, Kind::kReference})
    EXPECT_EQ(parse_kind(to_string(k)), k);
  for (Mode m : {Mode::kAuto, Mode::kStatic, Mode::kDynamic, Mode::kConfig, Mode::kHotReload})
    EXPECT_EQ(parse_mode(to_string(m)), m);
  for (const char* wrong : {"", "Vendor", "?", "vendors"}) {
    EXPECT_FALSE(parse_kind(wrong));
    EXPECT_FALSE(parse_mode(wrong));
  }
}

}  // namespace
}  // namespace yard
