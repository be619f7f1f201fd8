// SPDX-License-Identifier: Apache-2.0
// Tests the environment: the effect of each variable, who set it, which values stay, and arbitrary
// bytes.
#include "policy/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <yard/log.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/text.h"

namespace yard::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

Environment read_variables(const Variables& variables) {
  std::vector<EnvProblem> problems;
  Environment e = read_environment(variables, {}, problems);
  for (const EnvProblem& p : problems) ADD_FAILURE() << to_string(p);
  return e;
}

TEST(Environment, EachVariableSetsItsPart) {
  const Environment e =
      read_variables({{"YARD_PREFER", "vendor"},
                      {"YARD_STRICT", "yes"},
                      {"YARD_DISABLE", "0"},
                      {"YARD_PER_OP", "rms_norm=vendor|default;softmax=reference"},
                      {"YARD_DENY_VENDORS", "acme,intel"},
                      {"YARD_ALLOW_VENDORS", "nvidia"},
                      {"YARD_ALLOW_KERNELS", "default.*,vendor.??dnn"},
                      {"YARD_DENY_KERNELS", "*.old"},
                      {"YARD_BACKEND_SIMD", "off"},
                      {"YARD_BACKEND_ONEDNN", "on"},
                      {"YARD_BACKEND_ACME", "auto"},
                      {"YARD_LOG_LEVEL", "info,select=debug"},
                      {"YARD_STATE_BYTES", " 4096 "},
                      {"HOME", "nowhere"}});
  EXPECT_EQ(to_string(e.policy),
            "prefer=vendor strict=true reference_only=false per_op[rms_norm]=vendor|default "
            "per_op[softmax]=reference allow_vendors=nvidia deny_vendors=acme,intel "
            "allow_kernels=default.*,vendor.??dnn deny_kernels=*.old backends[onednn]=on "
            "backends[simd]=off");
  EXPECT_EQ(e.log_levels, "info,select=debug");
  EXPECT_EQ(e.state_bytes, 4096);
  EXPECT_THAT(
      e.sources,
      UnorderedElementsAre(
          Pair("prefer", "YARD_PREFER"), Pair("strict", "YARD_STRICT"),
          Pair("reference_only", "YARD_DISABLE"), Pair("per_op[rms_norm]", "YARD_PER_OP"),
          Pair("per_op[softmax]", "YARD_PER_OP"), Pair("allow_vendors", "YARD_ALLOW_VENDORS"),
          Pair("deny_vendors", "YARD_DENY_VENDORS"), Pair("allow_kernels", "YARD_ALLOW_KERNELS"),
          Pair("deny_kernels", "YARD_DENY_KERNELS"),
          Pair("backends[onednn]", "YARD_BACKEND_ONEDNN"),
          Pair("backends[simd]", "YARD_BACKEND_SIMD")));
}

TEST(Environment, CaseAndSpacesDoNotMatter) {
  const Environment e =
      read_variables({{"YARD_PREFER", " Reference\t"},
                      {"YARD_STRICT", "ON"},
                      {"YARD_DISABLE", " True "},
                      {"YARD_PER_OP", " rms_norm = VENDOR | Impl: default.simd ; x.y= Default"},
                      {"YARD_DENY_VENDORS", " acme ,Big Corp, acme"},
                      {"YARD_BACKEND_SIMD", "AUTO"},
                      {"YARD_BACKEND_A_2", "No"},
                      {"YARD_LOG_LEVEL", " INFO , Select = Debug "}});
  EXPECT_EQ(e.policy.prefer, Kind::kReference);
  EXPECT_EQ(e.policy.strict, true);
  EXPECT_EQ(e.policy.reference_only, true);
  EXPECT_THAT(e.policy.per_op,
              ElementsAre(Pair("rms_norm", ElementsAre("vendor", "impl:default.simd")),
                          Pair("x.y", ElementsAre("default"))));
  EXPECT_THAT(e.policy.deny_vendors, ElementsAre("acme", "Big Corp"));
  EXPECT_THAT(e.policy.backends, ElementsAre(Pair("a_2", false)));
  EXPECT_EQ(e.log_levels, "INFO , Select = Debug");
}

TEST(Environment, SwitchesAreTheseWordsInAnyCase) {
  for (const char* on : {"1", "on", "true", "yes", "ON", "True", "yEs"})
    EXPECT_EQ(read_variables({{"YARD_STRICT", on}}).policy.strict, true) << on;
  for (const char* off : {"0", "off", "false", "no", "OFF", "False", "nO"})
    EXPECT_EQ(read_variables({{"YARD_STRICT", off}}).policy.strict, false) << off;
}

TEST(Environment, EmptyAndBlankCountAsNotSet) {
  for (const std::string& name : known_variables())
    for (const char* value : {"", " ", "\t  "})
      EXPECT_EQ(read_variables({{name, value}}), Environment());
  EXPECT_EQ(read_variables({{"YARD_BACKEND_SIMD", ""}}), Environment());
}

TEST(Environment, TheLastGoodValueStaysOnlyWhereTheNewOneIsWrong) {
  const Environment good = read_variables({{"YARD_PREFER", "vendor"}, {"YARD_STRICT", "1"}});
  std::vector<EnvProblem> problems;
  const Environment now = read_environment(
      {{"YARD_PREFER", "vendr"}, {"YARD_STRICT", "0"}, {"YARD_LOG_LEVEL", "loud"}}, good, problems);
  EXPECT_EQ(now.policy.prefer, Kind::kVendor);
  EXPECT_EQ(now.policy.strict, false);
  EXPECT_EQ(problems.size(), 2u);
  problems.clear();
  EXPECT_EQ(read_environment({}, now, problems), Environment()) << "taken away is taken away";
}

TEST(Environment, ProblemsAreFitToBeShown) {
  std::vector<EnvProblem> problems;
  read_environment({{"YARD_PREFER", "vendr"},
                    {"YARD_STRICT", "\x1b[2J" + std::string(1000, 'x')},
                    {"YARD_\n", "\xff"},
                    {"YARD_DENY_KERNELS", "a:,b:,c:,d:,e:,f:,g:,h:,i:,j:"}},
                   {}, problems);
  ASSERT_EQ(problems.size(), 12u);
  EXPECT_THAT(to_string(problems[0]), HasSubstr("\"YARD_\\n\"=\"\\xff\": unknown variable"));
  EXPECT_EQ(problems[9].message, "2 more problems");
  EXPECT_EQ(to_string(problems[10]),
            "YARD_PREFER=\"vendr\": expected default, vendor or reference; did you mean "
            "'vendor'?");
  EXPECT_EQ(problems[11].found, "\"\\x1b[2J" + std::string(76, 'x') + "\"...");
}

TEST(Environment, BackendsGetTheirRealNames) {
  EXPECT_EQ(backend_variable("onednn"), "YARD_BACKEND_ONEDNN");
  EXPECT_EQ(backend_variable("Acme-2.x"), "YARD_BACKEND_ACME_2_X");
  const Policy p = read_variables({{"YARD_BACKEND_ACME_2_X", "off"},
                                   {"YARD_BACKEND_SIMD", "on"},
                                   {"YARD_BACKEND_LATER", "off"}})
                       .policy;
  EXPECT_THAT(with_backend_names(p, {"simd", "Acme-2.x", "acme.2-x"}).backends,
              ElementsAre(Pair("Acme-2.x", false), Pair("acme.2-x", false), Pair("later", false),
                          Pair("simd", true)));
  EXPECT_THAT(with_backend_names(p, {"acme_2_x", "acme-2-x"}).backends,
              ElementsAre(Pair("acme-2-x", false), Pair("acme_2_x", false), Pair("later", false),
                          Pair("simd", true)));
}

TEST(Environment, TheProcessGivesItsOwnVariables) {
  setenv("YARD_PREFER", "vendor=x", 1);
  setenv("YARDSTICK", "1", 1);
  const Variables found = yard_variables();
  unsetenv("YARD_PREFER");
  unsetenv("YARDSTICK");
  EXPECT_EQ(found.at("YARD_PREFER"), "vendor=x");
  EXPECT_EQ(found.count("YARDSTICK"), 0u);
}

TEST(Environment, TheDocsListEveryVariable) {
  std::ifstream file(std::string(YARD_SOURCE_DIR) + "/docs/reference/environment.md");
  std::ostringstream page;
  page << file.rdbuf();
  for (const std::string& name : known_variables())
    EXPECT_THAT(page.str(), HasSubstr("| `" + name + "` |"));
  EXPECT_THAT(page.str(), HasSubstr("| `YARD_BACKEND_<NAME>` |"));
}

rc::Gen<std::string> values() {
  const std::string near = "vendor|default;rms_norm=impl:,softmax.* \tONoff01info";
  return rc::gen::container<std::string>(
      rc::gen::oneOf(rc::gen::elementOf(near), rc::gen::arbitrary<char>()));
}

rc::Gen<std::string> words() {
  return rc::gen::elementOf(std::vector<std::string>{"vendor", "ON", "rms_norm=vendor", "a,b",
                                                     "info", "x=vendor|default;y=impl:z",
                                                     "select=debug", "default.*", "off"});
}

RC_GTEST_PROP(EnvironmentProperty, WhateverTheBytesItSetsOrReports, ()) {
  std::vector<std::string> names = known_variables();
  names.emplace_back("YARD_BACKEND_SIMD");
  const std::string name = *rc::gen::elementOf(names);
  const std::string value = *rc::gen::oneOf(values(), words());
  std::vector<EnvProblem> problems;
  const Environment e = read_environment({{name, value}}, {}, problems);
  const std::string_view word = base::trim(value);
  const bool says_nothing =
      word.empty() || (name == "YARD_BACKEND_SIMD" && base::same_word(word, "auto"));
  RC_ASSERT(problems.empty() || e == Environment());
  RC_ASSERT(says_nothing == (problems.empty() && e == Environment()));
  RC_ASSERT(validate(e.policy).ok());
  for (const EnvProblem& p : problems) {
    RC_ASSERT(p.variable == name && p.error && !p.message.empty());
    for (char c : to_string(p)) RC_ASSERT(static_cast<unsigned char>(c) >= 0x20);
  }
}

RC_GTEST_PROP(EnvironmentProperty, AnyVariablesReadTwiceGiveTheSame, ()) {
  const auto last =
      *rc::gen::map(rc::gen::container<std::map<std::string, std::string>>(
                        rc::gen::elementOf(known_variables()), rc::gen::oneOf(values(), words())),
                    [](const Variables& v) {
                      std::vector<EnvProblem> ignored;
                      return read_environment(v, {}, ignored);
                    });
  const auto now = *rc::gen::container<std::map<std::string, std::string>>(
      rc::gen::oneOf(rc::gen::elementOf(known_variables()),
                     rc::gen::map(values(), [](const std::string& s) { return "YARD_" + s; })),
      rc::gen::oneOf(values(), words()));
  std::vector<EnvProblem> first, second;
  const Environment e = read_environment(now, last, first);
  RC_ASSERT(read_environment(now, e, second) == e);
  RC_ASSERT(first == second);
  RC_ASSERT(apply_log_levels(e.log_levels).ok());
  apply_log_levels("").or_throw();
}

}  // namespace
}  // namespace yard::policy
