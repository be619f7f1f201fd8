// SPDX-License-Identifier: Apache-2.0
#include "base/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/testing_files.h"
#include "base/testing_fork.h"

namespace yard::base {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Collects the events of a runtime that no other test uses.
struct OfRuntime {
  const uint64_t id = [] {
    static uint64_t last = 1'000'000;
    return ++last;
  }();
  uint64_t add(const EventKind& kind, std::string subject, std::string reason = "") const {
    return record(
        {.kind = &kind, .runtime = id, .subject = std::move(subject), .reason = std::move(reason)});
  }
  std::vector<Event> all() const {
    std::vector<Event> to = events();
    std::erase_if(to, [&](const Event& e) { return e.runtime != id; });
    return to;
  }
  std::vector<std::string> subjects() const {
    std::vector<std::string> to;
    for (const Event& e : all()) to.push_back(e.subject);
    return to;
  }
};

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

size_t lines_with(const std::string& path, const std::string& what) {
  std::istringstream in(text_of(path));
  size_t count = 0;
  for (std::string line; std::getline(in, line);) count += line.find(what) != line.npos;
  return count;
}

// Stops the writing at the end of a test.
struct Writing {
  explicit Writing(const std::string& path) { write_events_to(path).or_throw(); }
  ~Writing() { write_events_to("").ignore(); }
};

TEST(Events, AreKeptInOrderWithTheirTimeAndProcess) {
  const OfRuntime r;
  const auto before = std::chrono::system_clock::now();
  const uint64_t first = r.add(event::kRulesRefused, "a.yaml", "line 1\n\x1b[31mred");
  const uint64_t second = r.add(event::kPluginLoaded, "acme");
  EXPECT_EQ(second, first + 1);
  const auto all = r.all();
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].kind, &event::kRulesRefused);
  EXPECT_EQ(all[0].process, ::getpid());
  EXPECT_GE(all[0].at, before);
  EXPECT_EQ(all[0].reason.find('\x1b'), std::string::npos);
  EXPECT_THAT(to_json(all[0]),
              AllOf(HasSubstr(R"("kind": "rules_refused")"), HasSubstr(R"("subject": "a.yaml")"),
                    HasSubstr(R"("who": null)")));
  EXPECT_EQ(events(second - 1).front().id, second);
  EXPECT_TRUE(events(second).empty());
}

TEST(Events, ABreakerThatFlapsDisplacesNeitherOtherBreakersNorOtherKinds) {
  const OfRuntime r;
  r.add(event::kRules, "a.yaml");
  r.add(event::kBreakerOpened, "softmax vendor.quiet");
  for (int i = 0; i < 5000; ++i) {
    r.add(event::kBreakerOpened, "softmax vendor.flaps");
    r.add(event::kBreakerClosed, "softmax vendor.flaps");
  }
  const auto subjects = r.subjects();
  EXPECT_LE(subjects.size(), 2 + 2 * event::kBreakerOpened.most_of_subject);
  EXPECT_EQ(subjects[0], "a.yaml");
  EXPECT_EQ(subjects[1], "softmax vendor.quiet");
}

TEST(Events, AreBoundedByKindAndAltogether) {
  const OfRuntime r;
  for (int i = 0; i < 1000; ++i) r.add(event::kRulesRefused, std::to_string(i), "why");
  EXPECT_THAT(r.subjects(), SizeIs(event::kRulesRefused.most));
  EXPECT_EQ(r.subjects().back(), "999");
  for (int i = 0; i < 100; ++i) {
    const OfRuntime other;
    for (int k = 0; k < 100; ++k) other.add(event::kPluginLoaded, "p");
  }
  EXPECT_LE(events().size(), 4096u);
  r.add(event::kRulesRefused, std::string(100'000, 'x'), std::string(100'000, 'y'));
  EXPECT_LT(to_json(r.all().back()).size(), 2000u);
}

TEST(Events, TheOutermostActorCausesThoseOfItsThread) {
  const OfRuntime r;
  {
    const Actor client("user 7");
    const Actor inner("the program");
    r.add(event::kRules, "a");
    std::thread([&] { r.add(event::kRules, "b"); }).join();
  }
  r.add(event::kRules, "c");
  const auto all = r.all();
  ASSERT_THAT(all, SizeIs(3));
  EXPECT_EQ(all[0].who, "user 7");
  EXPECT_EQ(all[1].who, "");
  EXPECT_EQ(all[2].who, "");
}

TEST(Events, DetailsEndWithTheirRuntime) {
  const OfRuntime r;
  auto detail = std::make_shared<int>(1);
  record({.kind = &event::kChange, .runtime = r.id, .subject = "deny", .detail = detail});
  EXPECT_EQ(detail.use_count(), 2);
  forget_details(r.id + 1);
  EXPECT_EQ(detail.use_count(), 2);
  forget_details(r.id);
  EXPECT_EQ(detail.use_count(), 1);
  EXPECT_THAT(r.all(), SizeIs(1));
}

TEST(Events, AreAppendedToAFileOfThisUserAlone) {
  const TempFolder folder;
  const std::string path = folder / "events";
  const OfRuntime r;
  r.add(event::kDeviceLost, "before");
  write_in_place(path, "an earlier process\n");
  {
    const Writing writing(path);
    r.add(event::kDeviceLost, "cuda:0", "xid 79");
    ASSERT_TRUE(eventually([&] { return lines_with(path, "xid 79") == 1; }));
  }
  r.add(event::kDeviceLost, "after");
  EXPECT_EQ(lines_with(path, "an earlier process"), 1u);
  EXPECT_EQ(lines_with(path, "before") + lines_with(path, "after"), 0u);
  EXPECT_EQ(lines_with(path, "\"process\": " + std::to_string(::getpid())), 1u);
  const std::string fresh = folder / "fresh";
  const Writing writing(fresh);
  struct stat info {};
  ASSERT_EQ(::stat(fresh.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(Events, AreNotWrittenThroughLinksOrToOtherFiles) {
  const TempFolder folder;
  write_in_place(folder / "target", "kept");
  std::filesystem::create_symlink(folder / "target", folder / "link");
  std::filesystem::create_hard_link(folder / "target", folder / "second");
  std::filesystem::create_directory(folder / "sub");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const char* name : {"link", "second", "sub", "pipe", "no/such/folder"})
    EXPECT_THAT(write_events_to(folder / name).to_string(), HasSubstr("events cannot be written"))
        << name;
  EXPECT_THAT(write_events_to("/dev/null").to_string(), HasSubstr("a file of this user alone"));
  EXPECT_EQ(text_of(folder / "target"), "kept");
}

TEST(Events, AFullFileIsRenamedOnce) {
  const TempFolder folder;
  const std::string path = folder / "events";
  write_in_place(path, std::string(kMostEventBytes - 100, 'x') + '\n');
  const OfRuntime r;
  const Writing writing(path);
  r.add(event::kDeviceLost, "cuda:0", "the first that does not fit");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(path + ".1"); }));
  ASSERT_TRUE(eventually([&] { return lines_with(path, "does not fit") == 1; }));
  EXPECT_EQ(std::filesystem::file_size(path + ".1"), kMostEventBytes - 99);
  EXPECT_LT(std::filesystem::file_size(path), 1000u);
  EXPECT_FALSE(std::filesystem::exists(path + ".2"));
}

TEST(Events, AChildKeepsTheListAndWritesItsOwnLinesOnly) {
  const TempFolder folder;
  const std::string path = folder / "events";
  const OfRuntime r;
  const Writing writing(path);
  for (int i = 0; i < 20; ++i) {
    r.add(event::kDeviceLost, "parent " + std::to_string(i), "x");
    EXPECT_TRUE(true_in_child([&] {
      const bool has = !r.all().empty();
      if (i != 0) return has;
      r.add(event::kDeviceBack, "child", "y");
      return has && eventually([&] { return lines_with(path, "\"child\"") == 1; });
    }));
  }
  ASSERT_TRUE(eventually([&] { return lines_with(path, "parent 19") == 1; }));
  EXPECT_EQ(lines_with(path, "parent"), 20u);
  EXPECT_EQ(lines_with(path, "\"child\""), 1u);
}

TEST(Events, ManyThreadsRecordAndRead) {
  const OfRuntime r;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) r.add(event::kBreakerOpened, "op k", "why"), events();
    });
  for (auto& t : threads) t.join();
  const auto all = r.all();
  EXPECT_THAT(all, SizeIs(event::kBreakerOpened.most_of_subject));
  EXPECT_TRUE(std::ranges::is_sorted(all, {}, &Event::id));
}

}  // namespace
}  // namespace yard::base
