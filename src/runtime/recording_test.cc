// SPDX-License-Identifier: Apache-2.0
// Tests the bounds of a recording.
#include "runtime/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/testing_files.h"

namespace yard::runtime {
namespace {

void see(Recording& recording, const std::string& number) {
  static const auto* const program = new op::Program(op::Program::compile("f(n: int)").value());
  static const op::Labels none;
  const yard_value_t zero = Value(int64_t{0}).c();
  const registry::ObservedCall call{.program = *program,
                                    .index = 0,
                                    .args = &zero,
                                    .flags = 0,
                                    .labels = none,
                                    .kernel = nullptr,
                                    .start = 0,
                                    .end = 0,
                                    .mode = Mode::kDynamic};
  recording.count(recording.texts.find(
      call, number, [&](const op::CallSpec&) { return "call(" + number + ")"; }));
}

TEST(Recording, KeepsSoManyDistinctCallsAndCountsTheRestAsDropped) {
  const base::TempFolder folder;
  const auto recording = Recording::open(folder / "calls.txt").value();
  for (size_t i = 0; i < kMostRecorded + 100; ++i) see(*recording, std::to_string(i));
  see(*recording, "3");  // a recorded call still counts
  const yard::Recording::Stats stats = recording->stats();
  EXPECT_EQ(stats.distinct, kMostRecorded);
  EXPECT_EQ(stats.calls, kMostRecorded + 1);
  EXPECT_EQ(stats.dropped, 100u);
  EXPECT_EQ(stats.problem, "");
  recording->write().or_throw();
  std::ifstream file(folder / "calls.txt");
  std::string first, second, third;
  std::getline(file, first);
  std::getline(file, second);
  std::getline(file, third);
  EXPECT_THAT(first, ::testing::HasSubstr("# 65537 calls, 65536 distinct"));
  EXPECT_EQ(second, "# 100 more were dropped: only 65536 distinct calls are kept");
  EXPECT_EQ(third, "2\tcall(3)");
}

TEST(Recording, OfOneFileIsOne) {
  const base::TempFolder folder;
  const auto a = Recording::open(folder / "calls.txt").value();
  EXPECT_EQ(Recording::open(folder / "calls.txt").value(), a);
  EXPECT_NE(Recording::open(folder / "other.txt").value(), a);
}

TEST(Recording, TriesAgainWhereAFileCannotBeWritten) {
  const base::TempFolder folder;
  std::filesystem::create_directory(folder / "sub");
  const auto recording = Recording::open(folder / "sub/calls.txt").value();
  std::filesystem::remove_all(folder / "sub");
  see(*recording, "");
  EXPECT_FALSE(recording->write().ok());
  EXPECT_THAT(recording->stats().problem, ::testing::HasSubstr("cannot be written"));
  std::filesystem::create_directory(folder / "sub");
  EXPECT_TRUE(recording->write().ok());
  EXPECT_TRUE(std::filesystem::exists(folder / "sub/calls.txt"));
  EXPECT_EQ(recording->stats().problem, "");
}

}  // namespace
}  // namespace yard::runtime
