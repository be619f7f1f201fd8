// SPDX-License-Identifier: Apache-2.0
// A set-uid program ignores the paths in its user's environment. The test needs root to make such a
// program.
#include <gmock/gmock.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include "installation.h"

namespace yard::testing {
namespace {

using ::testing::HasSubstr;

constexpr unsigned kNobody = 65534;

// Runs the program as an unprivileged user and returns its output.
std::string say(const std::string& program, const std::vector<std::string>& environment) {
  return output_of(program, environment, [] {
    return ::setgroups(0, nullptr) == 0 && ::setgid(kNobody) == 0 && ::setuid(kNobody) == 0;
  });
}

TEST(Privileged, ASetUidProgramObeysNoPathsOfTheEnvironment) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a set-uid program of another user";
  Folder folder, open;
  ::chmod(folder.path().c_str(), 0755);
  ::chmod(open.path().c_str(), 01777);
  const std::string program = folder.put_bytes(read_file(YARD_OUTSIDE_PROGRAM), "program");
  ::chmod(program.c_str(), 0755);
  fs::create_directory(folder.file("plugins"));
  fs::copy_file(built_plugin("answer"), folder.file("plugins/answer.so"));
  fs::copy_file(built_plugin("old_layout"), folder.file("old_layout.so"));
  const std::string by_rules = open.file("by_rules.txt"),
                    by_variable = open.file("by_variable.txt");
  std::ofstream(folder.file("rules.yaml"))
      << "version: \"1.0\"\n"
         "dispatch_rules: [{operation: softmax, kernel: reference.cpp}]\n"
         "settings: {telemetry: {record: "
      << by_rules << "}}\n";
  const std::vector<std::string> with_rules = {"YARD_CONFIG=" + folder.file("rules.yaml"),
                                               "YARD_OUTPUT_DIRECTORY=" + open.path()};
  const std::vector<std::string> others = {"YARD_RECORD=" + by_variable,
                                           "YARD_PLUGINS=" + folder.file("old_layout.so"),
                                           "YARD_PLUGIN_PATH=" + folder.file("plugins")};

  // An ordinary program obeys these variables. Otherwise the checks below would prove nothing.
  const std::string plain = say(program, with_rules);
  if (plain.starts_with("failed")) GTEST_SKIP() << "another user cannot run what was built here";
  EXPECT_THAT(plain, HasSubstr("secure=0 rules=1 recording=1"));
  EXPECT_TRUE(fs::exists(by_rules));
  EXPECT_THAT(say(program, others), HasSubstr("secure=0 rules=0 recording=1 plugins=2"));
  EXPECT_TRUE(fs::exists(by_variable));
  fs::remove(by_rules), fs::remove(by_variable);

  ::chmod(program.c_str(), 04755);
  const std::string first = say(program, with_rules), second = say(program, others);
  if (first.find("secure=0") != first.npos) GTEST_SKIP() << "set-uid does nothing in this folder";
  EXPECT_THAT(first, HasSubstr("secure=1 rules=0 recording=0"));
  for (const char* variable : {"YARD_CONFIG", "YARD_OUTPUT_DIRECTORY"})
    EXPECT_THAT(first, HasSubstr(std::string(variable) + ": ignored"));
  EXPECT_THAT(second, HasSubstr("secure=1 rules=0 recording=0 plugins=0"));
  for (const char* variable : {"YARD_RECORD", "YARD_PLUGINS", "YARD_PLUGIN_PATH"})
    EXPECT_THAT(second, HasSubstr(std::string(variable) + ": ignored"));
  EXPECT_FALSE(fs::exists(by_rules));
  EXPECT_FALSE(fs::exists(by_variable));
}

}  // namespace
}  // namespace yard::testing
