// SPDX-License-Identifier: Apache-2.0
// Settings of a rule file for parts other than the dispatcher have an effect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugin_files.h"
#include "testing.h"

namespace yard::testing {
namespace {

using ::testing::HasSubstr;

Config settings(const std::string& text) {
  const auto r = parse_config("version: \"1.0\"\nsettings: " + text + "\n", "rules.yaml");
  for (const ConfigProblem& p : r.problems) ADD_FAILURE() << to_string(p);
  return r.config;
}

struct Plain {
  Plain() {
    RuntimeSettings s;
    s.environment = false;
    s.plugins.installed = false;
    s.plugins.state_directory = folder.path();
    s.output_directory = folder.path();
    runtime.emplace(s);
  }
  Folder folder;
  std::optional<Runtime> runtime;
};

TEST(FileSettings, RequireVerifiedRefusesUnverifiedPlugins) {
  Plain p;
  ASSERT_TRUE(p.runtime->rules().set(settings("{plugins: {require_verified: true}}")).ok());
  const Status s = p.runtime->plugins().load(p.folder.put("answer"));
  EXPECT_THAT(s.to_string(), HasSubstr("yard verify"));
  ASSERT_TRUE(p.runtime->rules().load("").ok());
  EXPECT_TRUE(p.runtime->plugins().load(p.folder.file("answer.so")).ok());
}

std::string recording_to(const std::string& path) { return "{telemetry: {record: " + path + "}}"; }

TEST(FileSettings, RecordWritesCallsUntilTheFileChanges) {
  Plain p;
  const std::string path = p.folder.file("calls.txt");
  ASSERT_TRUE(p.runtime->rules().set(settings(recording_to(path))).ok());
  EXPECT_EQ(p.runtime->recording().stats().path, path);
  std::vector<float> x(8), y(8);
  const TensorView in(x.data(), DType::f32, {2, 4}), out(y.data(), DType::f32, {2, 4});
  ASSERT_TRUE(p.runtime->call("softmax", {{"out", out}, {"x", in}}).ok());
  ASSERT_TRUE(p.runtime->rules().load("").ok());
  EXPECT_EQ(p.runtime->recording().stats().path, "");
  EXPECT_THAT(read_file(path), HasSubstr("softmax(f32[2,4]"));
}

TEST(FileSettings, RecordDoesNotReplaceARecordingOfTheProgram) {
  Plain p;
  const std::string mine = p.folder.file("mine.txt"), theirs = p.folder.file("theirs.txt");
  ASSERT_TRUE(p.runtime->recording().to(mine).ok());
  ASSERT_TRUE(p.runtime->rules().set(settings(recording_to(theirs))).ok());
  EXPECT_EQ(p.runtime->recording().stats().path, mine);
  ASSERT_TRUE(p.runtime->rules().load("").ok());
  EXPECT_EQ(p.runtime->recording().stats().path, mine);
}

}  // namespace
}  // namespace yard::testing
