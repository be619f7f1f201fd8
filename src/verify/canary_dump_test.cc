// SPDX-License-Identifier: Apache-2.0
// Tests canary dumps: round trip, errors of the format, and bounded folders.
#include "verify/canary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "base/testing_files.h"

namespace yard::verification {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

CanaryDump some_dump() {
  CanaryDump d;
  d.mismatch.op = "copy", d.mismatch.kernel = "fault.test", d.mismatch.against = "reference.copy";
  d.mismatch.call = "copy(f32[2])@cpu", d.mismatch.worst = "out[1]";
  d.mismatch.found = 0.1, d.mismatch.expected = std::nan("");
  d.mismatch.error = std::numeric_limits<double>::infinity();
  d.mismatch.when += std::chrono::seconds(1'700'000'000);
  d.inputs = {{"x", std::string("\0\n: data\n", 9)}, {"xs[1]", ""}};
  return d;
}

TEST(CanaryDump, RoundTrips) {
  CanaryDump d = some_dump();
  for (const bool tolerance : {false, true}) {
    if (tolerance) d.rtol = 1e-3, d.atol = 0;
    const auto r = parse_canary_dump(to_bytes(d), "dump");
    ASSERT_TRUE(r.ok()) << r.status().to_string();
    EXPECT_EQ(r->inputs, d.inputs);
    EXPECT_EQ(r->mismatch.op, "copy");
    EXPECT_EQ(r->mismatch.call, d.mismatch.call);
    EXPECT_EQ(r->mismatch.found, 0.1);
    EXPECT_TRUE(std::isnan(r->mismatch.expected) && std::isinf(r->mismatch.error));
    EXPECT_EQ(r->mismatch.when, d.mismatch.when);
    EXPECT_EQ(r->rtol, d.rtol);
    EXPECT_EQ(r->atol, d.atol);
  }
}

TEST(CanaryDump, ErrorsAreLocated) {
  const std::string good = to_bytes(some_dump());
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::pair<std::string, const char*> cases[] = {
      {"", "not a canary dump"},
      {changed("dump 1", "dump 2"), "'yard canary dump 1' as the first line"},
      {changed("\ndata\n", "\n"), "dump:"},
      {changed("op: copy\n", ""), "the line 'op: ...' is missing"},
      {changed("op: copy\n", "op: copy\nop: copy\n"), "dump:3: duplicate key \"op\""},
      {changed("op: copy\n", "op:  copy\n"), "without blanks around it"},
      {changed("op: copy\n", "pod: copy\n"), "unknown key \"pod\""},
      {changed("found: 0.1", "found: 0,1"), "invalid number \"0,1\""},
      {changed("x 9", "x 10"), "invalid data: expected 10 bytes"},
      {changed("x 9", "x -9"), "expected 'input: NAME BYTES'"},
      {changed("x 9", "x 99999999999999999999"), "expected 'input: NAME BYTES'"},
      {changed("x 9", "x9"), "expected 'input: NAME BYTES'"},
      {changed("when_us: 1", "when_us: -1"), "a time in microseconds"},
      {good + "x", "invalid data: expected"},
      {"yard canary dump 1\n" + std::string(70'000, 'x') + "\n", "too long"},
  };
  for (const auto& [text, why] : cases) {
    const auto r = parse_canary_dump(text, "dump");
    ASSERT_FALSE(r.ok()) << why;
    EXPECT_EQ(r.status().code(), Code::kParse);
    EXPECT_THAT(std::string(r.status().message()), HasSubstr(why));
  }
}

TEST(CanaryDump, EveryTruncatedFileIsRejected) {
  const std::string good = to_bytes(some_dump());
  for (size_t n = 0; n < good.size(); ++n)
    EXPECT_FALSE(parse_canary_dump(std::string_view(good).substr(0, n), "dump").ok()) << n;
}

TEST(CanaryDump, AFolderOrMissingFileIsAnError) {
  const base::TempFolder folder;
  EXPECT_THAT(read_canary_dump(folder / "").status().to_string(),
              HasSubstr("is not a regular file"));
  EXPECT_THAT(read_canary_dump(folder / "none").status().to_string(), HasSubstr("cannot be read"));
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> to;
  for (const auto& e : fs::directory_iterator(folder)) to.push_back(e.path().filename().string());
  std::sort(to.begin(), to.end());
  return to;
}

TEST(CanaryDump, TheFirstOfAnIncidentAreKeptAndOtherFilesStay) {
  const base::TempFolder temp;
  const std::string folder = temp / "a/b";
  fs::create_directories(folder);
  for (const char* name : {"canary-notes.yarddump", "canary-20200101-000000-000-1-0-a-b.txt", "z"})
    base::write_in_place(folder + "/" + name, "mine");
  fs::create_symlink("z", folder + "/canary-20200101-000000-000-1-0-a-b.yarddump");
  CanaryDump d = some_dump();
  d.mismatch.when = std::chrono::system_clock::now() - std::chrono::minutes(5);
  std::vector<std::string> written;
  for (int i = 0; i < 7; ++i) {
    d.mismatch.when += std::chrono::milliseconds(i % 2);  // some have equal times
    const auto path = add_dump(folder, 3, d);
    ASSERT_TRUE(path.ok()) << path.status().to_string();
    EXPECT_EQ(path->empty(), i >= 3) << i;
    if (!path->empty()) written.push_back(*path);
  }
  EXPECT_EQ(names_in(folder).size(), 4u + 3u);
  for (const std::string& path : written) EXPECT_TRUE(read_canary_dump(path).ok());
  EXPECT_EQ(fs::status(written.back()).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST(CanaryDump, TheNextIncidentReplacesTheDumpsOfEarlierOnes) {
  const base::TempFolder temp;
  const std::string folder = temp / "d";
  CanaryDump d = some_dump();
  const auto now = std::chrono::system_clock::now();
  // The incident lasts half an hour, with a mismatch every minute. Three of them were written.
  const auto age = [&](const std::string& path, auto by) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - by);
  };
  std::vector<std::string> first;
  for (int i = 0; i < 3; ++i) {
    d.mismatch.when = now - std::chrono::minutes(60 - i);
    first.push_back(add_dump(folder, 3, d).value());
    age(first.back(), std::chrono::minutes(60 - i));
  }
  for (const std::string& path : first) age(path, std::chrono::minutes(30));  // one was refused
  d.mismatch.when = now - std::chrono::minutes(25);
  EXPECT_EQ(add_dump(folder, 3, d).value(), "") << "the same incident";
  for (const std::string& path : first) {
    EXPECT_GT(fs::last_write_time(path),
              fs::file_time_type::clock::now() - std::chrono::minutes(1));
    age(path, std::chrono::minutes(30));
  }
  std::vector<std::string> second;
  for (int i = 0; i < 3; ++i) {
    d.mismatch.when = now;
    second.push_back(add_dump(folder, 3, d).value());
    ASSERT_NE(second.back(), "");
    for (size_t k = 0; k < first.size(); ++k)
      EXPECT_EQ(fs::exists(first[k]), k > static_cast<size_t>(i)) << "the oldest go first";
  }
  EXPECT_EQ(add_dump(folder, 3, d).value(), "");
  EXPECT_EQ(names_in(folder).size(), 3u);
  for (const std::string& path : second) EXPECT_TRUE(fs::exists(path));
}

TEST(CanaryDump, WhatAKilledProcessLeftBehindIsRemoved) {
  const base::TempFolder temp;
  const std::string folder = temp / "d";
  fs::create_directories(folder);
  const std::string left = folder + "/canary-20200101-000000-000-1-0-a-b.yarddump.new.1.0";
  base::write_in_place(left, "half");
  ASSERT_TRUE(add_dump(folder, 3, some_dump()).ok());
  EXPECT_TRUE(fs::exists(left)) << "another process may be writing it";
  fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::minutes(2));
  ASSERT_TRUE(add_dump(folder, 3, some_dump()).ok());
  EXPECT_FALSE(fs::exists(left));
  EXPECT_EQ(names_in(folder).size(), 2u);
}

TEST(CanaryDump, TheTotalSizeIsBounded) {
  const base::TempFolder temp;
  CanaryDump d = some_dump();
  d.inputs[0].bytes.assign(1000, 'x');
  const size_t one = to_bytes(d).size();
  for (int i = 0; i < 5; ++i) {
    d.mismatch.when += std::chrono::seconds(1);
    const auto path = add_dump(temp / "d", 100, d, 2 * one + 10);
    ASSERT_TRUE(path.ok());
    EXPECT_EQ(path->empty(), i >= 2);
  }
  EXPECT_EQ(names_in(temp / "d").size(), 2u);
  EXPECT_FALSE(add_dump(temp / "d", 100, d, one - 1).ok());
}

TEST(CanaryDump, NamesOfOpsAndKernelsCannotLeaveTheFolder) {
  const base::TempFolder temp;
  CanaryDump d = some_dump();
  d.mismatch.op = "../../evil", d.mismatch.kernel = std::string(5000, '/') + "\n";
  const auto path = add_dump(temp / "d", 1, d);
  ASSERT_TRUE(path.ok()) << path.status().to_string();
  EXPECT_EQ(fs::path(*path).parent_path(), fs::path(temp / "d"));
  EXPECT_EQ(names_in(temp / "d").size(), 1u);
}

TEST(CanaryDump, AFolderThatCannotBeCreatedIsAnError) {
  const base::TempFolder temp;
  base::write_in_place(temp / "file", "");
  EXPECT_FALSE(add_dump(temp / "file", 1, some_dump()).ok());
  EXPECT_FALSE(add_dump(temp / "file/inside", 1, some_dump()).ok());
}

}  // namespace
}  // namespace yard::verification
