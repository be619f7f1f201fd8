// SPDX-License-Identifier: Apache-2.0
// Tests rules about ops and kernels of a plugin that is opened after the rules were read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/log.h>

#include "plugin_files.h"

namespace yard::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PluginRules : public ::testing::Test {
 protected:
  PluginRules() : path_(folder_.put("answer")), runtime_(alone({folder_.path()})) {}

  Status load(const std::string& text) {
    return runtime_.rules().load(folder_.put_bytes("version: '1.0'\n" + text, "rules.yaml"));
  }
  std::vector<std::string> errors() const {
    std::vector<std::string> to;
    for (const Runtime::Problem& p : runtime_.problems())
      if (p.error) to.push_back(p.message);
    return to;
  }

  Folder folder_;
  const std::string path_;
  Runtime runtime_;
};

TEST_F(PluginRules, ConditionsAreCheckedWhenThePluginIsOpened) {
  ASSERT_TRUE(load("dispatch_rules:\n"
                   "  - {operation: answer, kernel: default.answer, optional: true,\n"
                   "     conditions: {nn_gte: 8, n_gte: abc}}\n")
                  .ok());
  EXPECT_THAT(errors(), IsEmpty());
  std::vector<std::string> logged;
  set_log_sink([&](const LogMessage& m) {
    if (m.logger == "policy") logged.emplace_back(m.text);
  });
  EXPECT_EQ(ask(runtime_), 1);
  set_log_sink({});
  const auto both =
      ElementsAre(AllOf(HasSubstr("rules.yaml:4:19: error: dispatch_rules[0].conditions.nn_gte"),
                        HasSubstr("did you mean 'n_gte'?")),
                  AllOf(HasSubstr("rules.yaml:4:30: error: dispatch_rules[0].conditions.n_gte"),
                        HasSubstr("got abc")));
  EXPECT_THAT(errors(), both);
  EXPECT_THAT(logged, both);
}

TEST_F(PluginRules, TheEnvironmentMayNameAPluginThatIsNotOpenedYet) {
  ::setenv("YARD_PLUGINS", path_.c_str(), 1);
  ::setenv("YARD_BACKEND_ANSWER", "on", 1);
  ::setenv("YARD_PER_OP", "answer=default", 1);
  ::setenv("YARD_BACKEND_ANSWRE", "on", 1);
  RuntimeSettings settings;
  settings.plugins.installed = false;
  const Runtime runtime(settings);
  for (const char* name :
       {"YARD_PLUGINS", "YARD_BACKEND_ANSWER", "YARD_PER_OP", "YARD_BACKEND_ANSWRE"})
    ::unsetenv(name);
  ASSERT_EQ(runtime.problems().size(), 1u);
  EXPECT_EQ(runtime.problems()[0].where, "YARD_BACKEND_ANSWRE");
  EXPECT_THAT(runtime.problems()[0].message, HasSubstr("did you mean 'YARD_BACKEND_ANSWER'?"));
}

TEST_F(PluginRules, ValidConditionsComeIntoForceWithoutMessages) {
  ASSERT_TRUE(load("dispatch_rules:\n"
                   "  - {operation: answer, kernel: default.answer, optional: true,\n"
                   "     conditions: {n_gte: 1}}\n")
                  .ok());
  EXPECT_EQ(ask(runtime_), 1);
  EXPECT_THAT(errors(), IsEmpty());
  EXPECT_THAT(runtime_.explain("answer(i64[1])").value().candidates[0].detail,
              HasSubstr("chosen by dispatch_rules[0]"));
}

TEST_F(PluginRules, AStaticMapFollowsLoadingAndUnloadingOfItsPlugin) {
  ASSERT_TRUE(load("static_kernel_map: {answer: {kernel: default.answer, optional: true}}\n"
                   "settings: {mode: static}\n")
                  .ok());
  EXPECT_EQ(ask(runtime_), 1);
  ASSERT_TRUE(runtime_.plugins().unload("answer").ok());
  Status why;
  EXPECT_EQ(ask(runtime_, "answer", &why), -1);
  EXPECT_FALSE(why.ok());
  ASSERT_TRUE(runtime_.plugins().load("answer").ok());
  EXPECT_EQ(ask(runtime_), 1);
}

}  // namespace
}  // namespace yard::testing
