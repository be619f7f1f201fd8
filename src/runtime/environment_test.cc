// SPDX-License-Identifier: Apache-2.0
// Tests when a runtime reads its environment, and that invalid variables do no harm.
#include "rules/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/log.h>
#include <yard/runtime.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/testing_files.h"

namespace yard {
namespace {

using ::testing::HasSubstr;

// Unsets the variables at the end of each test.
class EnvironmentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([this](const LogMessage& m) { log_ += std::string(m.text) + '\n'; });
  }
  void TearDown() override {
    for (const char* v : set_) ::unsetenv(v);
    set_log_sink({});
    apply_log_levels("").or_throw();
  }
  void set(const char* variable, const char* value) {
    ::setenv(variable, value, 1);
    set_.push_back(variable);
  }
  static std::string selected(const Runtime& r) {
    return r.resolve("softmax(f32[4,8])@cpu").value().kernel;
  }

  std::vector<const char*> set_;
  std::string log_;
};

TEST_F(EnvironmentTest, IsReadWhenTheRuntimeStarts) {
  set("YARD_PREFER", "Reference");
  set("YARD_DENY_VENDORS", "acme");
  const Runtime r;
  EXPECT_EQ(r.policy().prefer, Kind::kReference);
  EXPECT_EQ(selected(r), "reference.cpp");
  const Explanation e = r.explain("softmax(f32[4,8])@cpu").value();
  ASSERT_FALSE(e.policy.empty());
  EXPECT_EQ(e.policy[0].source, "environment (YARD_PREFER)");
}

TEST_F(EnvironmentTest, IsTheWeakerOneBesideWhatIsSet) {
  set("YARD_PREFER", "reference");
  set("YARD_DENY_VENDORS", "acme");
  Runtime r;
  Policy p;
  p.prefer = Kind::kDefault;
  p.deny_vendors = {"zeta"};
  r.set_policy(p).or_throw();
  EXPECT_EQ(r.policy().prefer, Kind::kDefault);
  EXPECT_EQ(r.policy().deny_vendors, (std::vector<std::string>{"acme", "zeta"}));
  r.set_policy({}).or_throw();
  EXPECT_EQ(r.policy().prefer, Kind::kReference);
  EXPECT_EQ(r.policy().deny_vendors, (std::vector<std::string>{"acme"}));
}

TEST_F(EnvironmentTest, IsReadAgainOnlyOnRequest) {
  Runtime r;
  set("YARD_DISABLE", "1");
  EXPECT_EQ(r.policy().reference_only, std::nullopt);
  r.rules().reload_environment().or_throw();
  EXPECT_EQ(r.policy().reference_only, true);
  EXPECT_EQ(selected(r), "reference.cpp");
  ::unsetenv("YARD_DISABLE");
  r.rules().reload_environment().or_throw();
  EXPECT_EQ(r.policy().reference_only, std::nullopt);
}

TEST_F(EnvironmentTest, KeepsTheLastThatMeantSomething) {
  set("YARD_PREFER", "reference");
  Runtime r;
  EXPECT_TRUE(r.problems().empty());
  set("YARD_PREFER", "refrence");
  set("YARD_STRICT", "yes");
  const Status s = r.rules().reload_environment();
  EXPECT_EQ(s.code(), Code::kInvalidArgument);
  EXPECT_THAT(s.to_string(), HasSubstr("YARD_PREFER"));
  EXPECT_THAT(s.to_string(), HasSubstr("reference"));
  EXPECT_EQ(r.policy().prefer, Kind::kReference);
  EXPECT_EQ(r.policy().strict, true);  // the other variables count
  ASSERT_EQ(r.problems().size(), 1u);
  EXPECT_EQ(r.problems()[0].where, "YARD_PREFER");
  EXPECT_THAT(log_, HasSubstr("YARD_PREFER"));
  EXPECT_EQ(selected(r), "reference.cpp");
}

TEST_F(EnvironmentTest, AQuotedFalseIsNotTrue) {
  for (const char* value : {"\"false\"", "'false'", "2", "TRUE!", "ja"}) {
    set("YARD_STRICT", value);
    const Runtime r;
    EXPECT_EQ(r.policy().strict, std::nullopt) << value;
    ASSERT_EQ(r.problems().size(), 1u) << value;
    EXPECT_TRUE(r.problems()[0].error);
  }
}

TEST_F(EnvironmentTest, UnknownNamesAreWarnings) {
  set("YARD_PER_OP", "softmx=reference");
  set("YARD_ALLOW_VENDORS", "nobody");
  set("YARD_BACKEND_REFERENSE", "off");
  set("YARD_PREFFER", "vendor");
  Runtime r;
  EXPECT_EQ(r.problems().size(), 4u);
  for (const Runtime::Problem& p : r.problems()) EXPECT_FALSE(p.error) << p.where;
  EXPECT_THAT(log_, HasSubstr("did you mean 'softmax'?"));
  EXPECT_THAT(log_, HasSubstr("YARD_BACKEND_REFERENCE"));
  EXPECT_THAT(log_, HasSubstr("did you mean 'YARD_PREFER'?"));
}

TEST_F(EnvironmentTest, SwitchesBackendsThatComeLater) {
  set("YARD_BACKEND_LATE_ONE", "off");
  Runtime r;
  Changes c;
  yard_backend_t b{};
  b.size = sizeof b, b.name = "late-one";
  yard_kernel_t k{};
  k.size = sizeof k, k.op = "softmax", k.id = "default.late", k.backend = "late-one";
  k.kind = YARD_KIND_DEFAULT, k.priority = 900;
  k.run = [](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t { return YARD_OK; };
  c.add_backend(b).add_kernel(k);
  r.apply(std::move(c)).or_throw();
  EXPECT_NE(selected(r), "default.late");
  set("YARD_BACKEND_LATE_ONE", "on");
  r.rules().reload_environment().or_throw();
  EXPECT_EQ(selected(r), "default.late");
}

TEST_F(EnvironmentTest, SetsLogLevelsAndTheFirstUseIsLogged) {
  set("YARD_LOG_LEVEL", "WARN,select=INFO");
  Runtime r;
  float in[8] = {}, out[8] = {};
  const TensorView x(in, DType::f32, {8}), y(out, DType::f32, {8});
  for (int i = 0; i < 3; ++i) r.call("softmax", {y, x}).or_throw();
  EXPECT_THAT(log_, HasSubstr("Op 'softmax' using '" + selected(r) + "' (kind="));
  const size_t once = log_.size();
  r.call("softmax", {y, x}).or_throw();
  EXPECT_EQ(log_.size(), once);
  Policy p;
  p.prefer = Kind::kReference;
  r.set_policy(p).or_throw();
  r.call("softmax", {y, x}).or_throw();
  EXPECT_THAT(log_, HasSubstr("Op 'softmax' using 'reference.cpp' (kind=reference, vendor=none)"));
}

// The user who starts a privileged process must not choose which files it reads and writes.
TEST_F(EnvironmentTest, NamesNoFilesToAPrivilegedProcess) {
  const char* paths[] = {"YARD_CONFIG", "YARD_PLUGINS", "YARD_PLUGIN_PATH",
                         "YARD_RECORD", "YARD_EVENTS",  "YARD_PYTHON_PLUGINS"};
  for (const char* variable : paths) set(variable, "/nowhere/at/all");
  set("YARD_PREFER", "reference");
  const auto can_record = [](const std::string&) { return Status(); };
  const auto reading = rules::read_environment({}, can_record, true);
  const policy::Environment& e = reading->good;
  for (const std::string& value :
       {e.config, e.plugins, e.plugin_path, e.record, e.events, e.python_plugins})
    EXPECT_EQ(value, "");
  EXPECT_EQ(e.policy.prefer, Kind::kReference);  // anybody may choose the kernels
  ASSERT_EQ(reading->problems.size(), 6u);
  for (const policy::EnvProblem& p : reading->problems) {
    EXPECT_TRUE(p.error);
    EXPECT_THAT(log_, HasSubstr(p.variable + "="));
    EXPECT_THAT(p.message, HasSubstr("privileged process"));
  }
  const auto plain = rules::read_environment({}, can_record, false);
  EXPECT_EQ(plain->good.config, "/nowhere/at/all");
  EXPECT_EQ(plain->good.plugins, "/nowhere/at/all");
}

TEST_F(EnvironmentTest, AFileForEventsThatCannotBeWrittenIsAProblem) {
  const base::TempFolder folder;
  set("YARD_EVENTS", (folder / "events").c_str());
  Runtime r;
  EXPECT_TRUE(std::filesystem::exists(folder / "events"));
  set("YARD_EVENTS", "/dev/null");
  EXPECT_THAT(r.rules().reload_environment().to_string(),
              HasSubstr("YARD_EVENTS=\"/dev/null\": /dev/null: events cannot be written"));
  r.health().device_lost({2, 0}, "xid 79");  // the last valid file is kept
  EXPECT_TRUE(base::eventually([&] {
    return base::read_small_file(folder / "events", 10'000).value().find("xid 79") !=
           std::string::npos;
  }));
  set("YARD_EVENTS", "");
  EXPECT_TRUE(r.rules().reload_environment().ok());
}

TEST_F(EnvironmentTest, CanBeLeftAlone) {
  set("YARD_PREFER", "reference");
  RuntimeSettings s;
  s.environment = false;
  const Runtime r(s);
  EXPECT_EQ(r.policy().prefer, std::nullopt);
}

}  // namespace
}  // namespace yard
