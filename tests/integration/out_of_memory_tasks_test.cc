// SPDX-License-Identifier: Apache-2.0
// A background task that runs out of memory logs a message and goes on.
#include <fcntl.h>
#include <yard/inspect.h>
#include <yard/verify.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "out_of_memory.h"

namespace yard::testing {
namespace {

class OutOfMemoryInTasks : public OutOfMemory {
 protected:
  // Fails allocation n of other threads while `work` runs, for growing n below `most`, until no
  // allocation fails.
  void fail_others(const std::function<void()>& work, uint64_t most, Next next = next_one) {
    for (const auto which : kEach) {
      bool failed = true;
      for (uint64_t n = 0; failed && n < most; n = next(n)) {
        SCOPED_TRACE(n);
        FailingAllocations failing(n, which, FailingAllocations::kOtherThreads);
        work();
        failed = failing.end();
      }
    }
  }
};

TEST_F(OutOfMemoryInTasks, BreakersGoOn) {
  std::atomic<int> heard = 0;
  runtime().health().on_event([&](const BreakerEvent&) { ++heard; });
  const auto change = [&] {
    runtime().health().open("copy", "first", "test").ignore();
    runtime().health().close("copy", "first").ignore();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  fail_others(change, 60);
  const int before = heard;
  EXPECT_TRUE(base::eventually([&] { return change(), heard > before; }));
}

TEST_F(OutOfMemoryInTasks, AWatchedFileIsReadLater) {
  const std::string path = folder_ / "rules.yaml";
  const auto write = [&](int n) {
    base::write_in_place(path + ".new", "version: \"1.0\"\nkernel_locks: {copy: first}\n# " +
                                            std::to_string(n) + "\n");
    std::rename((path + ".new").c_str(), path.c_str());
  };
  write(0);
  const WatchSettings often{std::chrono::milliseconds(20), std::chrono::milliseconds(10)};
  runtime().rules().watch(path, often).or_throw();
  int number = 0;
  const auto change = [&] {
    write(++number);
    std::this_thread::sleep_for(std::chrono::milliseconds(35));
  };
  fail_others(change, 40);
  const auto reloads = [&] { return runtime().stats().reloads.applied; };
  const uint64_t before = reloads();
  EXPECT_TRUE(base::eventually([&] { return change(), reloads() > before; }));
}

TEST_F(OutOfMemoryInTasks, VerboseLinesAreWrittenLater) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  std::string read;
  const auto work = [&] {
    call().or_throw();
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
    char buffer[65536];
    const ssize_t n = ::read(ends[0], buffer, sizeof buffer);
    if (n > 0) read.append(buffer, static_cast<size_t>(n));
  };
  const Status on = runtime().recording().set_verbose(1);
  fail_others(work, 40);
  // A call also succeeds if it has no memory for its verbose line.
  for (const auto which : kEach)
    for (uint64_t n = 0; n < 20; ++n) {
      FailingAllocations failing(n, which);
      EXPECT_TRUE(call().ok());
      failing.end();
      work();
    }
  read.clear();
  const bool good = base::eventually([&] { return work(), read.find("yard,exec,copy,") == 0; });
  runtime().recording().set_verbose(0).ignore();
  ::dup2(before, STDERR_FILENO);
  for (const int fd : {before, ends[0], ends[1]}) ::close(fd);
  EXPECT_TRUE(on.ok());
  EXPECT_TRUE(good) << read;
}

// The kernel `first` writes nothing, so every check finds a mismatch, and a thread writes a dump.
TEST_F(OutOfMemoryInTasks, CanaryChecksGoOn) {
  yard_kernel_t right = kernel_of("copy", "right", 2, 1);
  right.kind = YARD_KIND_REFERENCE;
  right.run = [](yard_call_t*, const yard_value_t* args, uint32_t) -> int32_t {
    for (int i = 0; i < 4; ++i) static_cast<float*>(args[0].u.tensor->data)[i] = 7;
    return YARD_OK;
  };
  bare_.add(right).or_throw();
  Config config;
  config.canary = {
      {.op = "copy", .kernel = "first", .dump = folder_ / "dumps", .dump_most = 10000}};
  config.settings.breaker.failure_threshold = 10'000;
  config.settings.breaker.failure_percent = 0;
  runtime().rules().set(config).or_throw();
  const auto dumps = [&] {
    size_t n = 0;
    for (const auto& m : runtime().health().canaries().mismatches) n += !m.dump.empty();
    return n;
  };
  const auto work = [&] {
    std::fill(out_.data.begin(), out_.data.end(), 0.0f);
    call().or_throw();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  fail_others(work, 100);
  EXPECT_TRUE(base::eventually([&] {
    for (int i = 0; i < 64; ++i) work();  // as many as the runtime remembers
    return dumps() > 0;
  }));
}

TEST_F(OutOfMemoryInTasks, ARolloutIsJudgedLater) {
  bare_.add(kernel_of("copy", "second", 2, 5)).or_throw();
  runtime().rules().set({}).or_throw();
  Config config;
  DispatchRule rule;
  rule.operation = "copy", rule.kernel = "second";
  config.dispatch_rules.push_back(rule);
  config.rollout.emplace();
  config.rollout->percent = 50, config.rollout->hold_s = 0.02, config.rollout->max_slowdown = 1e6;
  const auto begin = [&] {
    runtime().rules().set({}).or_throw();  // a rollout needs other rules in force
    runtime().rules().set(config).or_throw();
  };
  const auto work = [&] {
    begin();
    for (int i = 0; i < 10; ++i) call().or_throw();
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  };
  fail_others(work, 60);
  begin();
  EXPECT_TRUE(base::eventually([&] {
    call().or_throw();
    return !runtime().rules().config().dispatch_rules.empty();
  }));
}

TEST_F(OutOfMemoryInTasks, LiveControlGoesOn) {
  const auto ask = [&](const std::string& command, const std::string& args = "{}") -> std::string {
    auto client = InspectClient::connect(::getpid(), std::chrono::milliseconds(300));
    if (!client.ok()) return "";
    auto line = client->request(R"({"v": 1, "id": 1, "command": ")" + command + R"(", "args": )" +
                                args + "}");
    return line.ok() ? *line : "";
  };
  const auto answers = [&] { return ask("status").find("\"ok\": true") != std::string::npos; };
  ASSERT_TRUE(base::eventually(answers));
  const std::pair<const char*, const char*> requests[] = {
      {"status", "{}"},
      {"list", "{}"},
      {"events", "{}"},
      {"explain", R"_({"call": "copy(f32[4], by=0)", "labels": {"tenant": "blue"}})_"},
      {"policy.set", R"({"fields": {"per_op": {"copy": ["impl:first"]}, "strict": false}})"},
      {"deny", R"({"kernel": "none", "when": "n=4,by=0"})"},
      {"undo", "{}"},
      {"none", R"({"deep": [[[{"a": [1, "b", {"c": null}]}]]]})"}};
  for (const auto& [command, args] : requests) {
    SCOPED_TRACE(command);
    fail_others([&, c = command, a = args] { ask(c, a); }, 20'000, next_of_many);
    EXPECT_TRUE(base::eventually(answers));
  }
}

TEST_F(OutOfMemoryInTasks, ARecordingIsWrittenLater) {
  const std::string path = folder_ / "calls.txt";
  runtime().recording().to(path).or_throw();
  call().or_throw();
  {
    FailingAllocations failing(0, FailingAllocations::kAllLater, FailingAllocations::kOtherThreads);
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    EXPECT_TRUE(failing.end());
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_TRUE(base::eventually([&] { return std::filesystem::exists(path); }));
}

}  // namespace
}  // namespace yard::testing
