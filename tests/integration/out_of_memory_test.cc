// SPDX-License-Identifier: Apache-2.0
// Without memory a change or a call returns out_of_memory, throws nothing, and leaves a state that
// works. A background task logs a text and goes on. Every allocation fails once, alone and with all
// later ones.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yard/bound.h>
#include <yard/c.h>
#include <yard/policy.h>

#include <functional>

#include "base/results.h"
#include "base/testing_allocations.h"
#include "base/testing_files.h"
#include "plugin_files.h"
#include "testing.h"

namespace yard::testing {
namespace {

using base::FailingAllocations;

constexpr Op<void(Out, In, int)> copy{"copy"};
constexpr FailingAllocations::Which kEach[] = {FailingAllocations::kOne,
                                               FailingAllocations::kAllLater};

#if defined(YARD_UNDER_ASAN) || defined(YARD_UNDER_TSAN)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

class OutOfMemory : public ::testing::Test {
 protected:
  OutOfMemory() {
    set_log_level(LogLevel::kOff);
    bare_.add(kernel_of("copy", "first", 1, 10)).or_throw();
    EXPECT_TRUE(call().ok());
  }
  Runtime& runtime() { return bare_.runtime; }
  Status call() { return copy.on(bare_.runtime)(out_.view, x_.view, 0); }
  Status call_by_name() { return bare_.runtime.call("copy", {out_.view, x_.view}); }

  // Calls `boundary` while allocation n fails, for n = 0, 1, ... until it makes fewer.
  void fail(
      const std::function<Status()>& boundary, const std::function<void()>& prepare = [] {}) {
    for (const auto which : kEach) {
      bool refused = false, failed = true;
      for (uint64_t n = 0; failed; ++n) {
        SCOPED_TRACE(n);
        prepare();
        FailingAllocations failing(n, which);
        Status got;
        ASSERT_NO_THROW(got = boundary());
        failed = failing.end();
        if (!got.ok()) {
          EXPECT_EQ(got.code(), Code::kOutOfMemory) << got.to_string();
          EXPECT_TRUE(failed);
        }
        refused |= !got.ok();
        ASSERT_TRUE(call().ok());
        ASSERT_LT(n, 100000u);
      }
      EXPECT_TRUE(refused);
    }
  }

  // The same in a child, from before the fork on: also what the child does to begin again fails.
  void fail_in_child(const std::function<Status()>& boundary) {
    for (const auto which : kEach) {
      bool failed = true;
      for (uint64_t n = 0; failed; ++n) {
        SCOPED_TRACE(n);
        FailingAllocations failing(n, which);
        const pid_t child = ::fork();
        if (child == 0) {
          ::alarm(60);
          const Status got = boundary();
          const bool reached = failing.end();
          const bool good = got.ok() || (reached && got.code() == Code::kOutOfMemory);
          ::_exit(!good ? 3 : !boundary().ok() || !call().ok() ? 2 : reached ? 1 : 0);
        }
        failing.end();
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
        ASSERT_LE(WEXITSTATUS(status), 1);
        failed = WEXITSTATUS(status) == 1;
        ASSERT_LT(n, 10000u);
      }
    }
  }

  base::TempFolder folder_;
  Bare bare_;
  Floats out_{4}, x_{4};
};

TEST_F(OutOfMemory, AChangeOfTheRegistryIsRefused) {
  Changes c;
  fail([&] { return runtime().apply(std::move(c)).status(); },
       [&] {
         c = Changes();
         c.add_kernel(kernel_of("copy", "second", 2, 5)).remove_kernel("copy", "second");
       });
}

TEST_F(OutOfMemory, AChangeOfThePolicyIsRefused) {
  fail([&] {
    Policy p;
    p.strict = true;
    return runtime().set_policy(p);
  });
}

TEST_F(OutOfMemory, ACallOfAnotherShapeIsRefused) {
  Options o;
  o.labels["tenant"] = "blue";
  const auto forget = [&] { runtime().set_policy({}).or_throw(); };  // so that there is no plan
  fail([&] { return copy.on(runtime()).with(o)(out_.view, x_.view, 0); }, forget);
  fail([&] { return call(); }, forget);
  fail([&] { return call_by_name(); }, forget);
  fail([&] { return bind(copy.on(runtime()), out_.view, x_.view).status(); }, forget);
  fail([&] { return freeze(copy.on(runtime()), out_.view, x_.view).status(); }, forget);
  auto bound = bind(copy.on(runtime()), out_.view, x_.view).value();
  fail([&] { return bound(0); }, forget);
}

TEST_F(OutOfMemory, AFirstCallOfAThreadIsRefused) {
  for (const auto which : kEach) {
    bool failed = true;
    for (uint64_t n = 0; failed; ++n)
      std::thread([&] {
        FailingAllocations failing(n, which);
        const Status got = call();
        failed = failing.end();
        EXPECT_TRUE(got.ok() || (failed && got.code() == Code::kOutOfMemory)) << got.to_string();
        EXPECT_TRUE(call().ok());
      }).join();
  }
}

TEST_F(OutOfMemory, QuestionsAreRefused) {
  fail([&] { return runtime().explain("copy(f32[4], by=0)").status(); });
  fail([&] { return runtime().resolve("copy(f32[5], by=0)").status(); });
  fail([&] { return runtime().explain("copy", {out_.view, x_.view}).status(); });
}

TEST_F(OutOfMemory, ObserversAreRefused) {
  Recording recording = runtime().recording();
  const std::string path = folder_ / "calls.txt";
  fail([&] { return recording.to(path); }, [&] { recording.stop().ignore(); });
  fail([&] { return recording.stop(); }, [&] { recording.to(path).or_throw(), call().or_throw(); });
  recording.stop().or_throw();
  fail([&] { return recording.start_trace(100); },
       [&] { recording.stop_trace().status().ignore(); });
  fail([&] { return recording.stop_trace().status(); },
       [&] { recording.start_trace(100).ignore(), call().or_throw(); });
}

TEST_F(OutOfMemory, AChangeOfTheRulesIsRefused) {
  Rules rules = runtime().rules();
  const std::string path = folder_ / "rules.yaml";
  base::write_in_place(path, "version: \"1.0\"\nkernel_locks: {copy: first}\n");
  const auto reset = [&] { rules.set({}).or_throw(); };
  fail([&] { return rules.load(path); }, reset);
  Config config;
  fail([&] { return rules.set(std::move(config)); },
       [&] {
         reset();
         config = Config();
         config.kernel_denies = {{"second", true, {}}};
       });
}

TEST_F(OutOfMemory, LoadingAPluginIsRefused) {
  Folder folder;
  const std::string path = folder.put("answer");
  Plugins plugins = runtime().plugins();
  const auto load = [&] {
    Status s = plugins.load(path);
    // The dynamic linker has errors of its own.
    const bool by_linker = s.message().find("cannot_open") != s.message().npos;
    return by_linker ? Status::out_of_memory() : std::move(s);
  };
  fail(load, [&] { plugins.unload("answer").status().ignore(); });
}

TEST_F(OutOfMemory, ARuntimeBeginsAndEnds) {
  for (const auto which : kEach) {
    bool failed = true;
    for (uint64_t n = 0; failed; ++n) {
      SCOPED_TRACE(n);
      FailingAllocations failing(n, which);
      try {
        Runtime made(Bare::settings(16));
      } catch (const std::bad_alloc&) {
      }
      failed = failing.end();
    }
    failed = true;
    for (uint64_t n = 0; failed; ++n) {
      SCOPED_TRACE(n);
      auto ends = std::make_unique<Bare>();
      ends->add(kernel_of("copy", "first", 1)).or_throw();
      copy.on(ends->runtime)(out_.view, x_.view, 0).or_throw();
      ends->runtime.recording().to(folder_ / "end.txt").or_throw();
      copy.on(ends->runtime)(out_.view, x_.view, 0).or_throw();
      FailingAllocations failing(n, which);
      ends = nullptr;
      failed = failing.end();
    }
  }
  EXPECT_TRUE(call().ok());
}

TEST_F(OutOfMemory, ACallOfAForkedChildIsRefused) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's allocator does not survive a fork";
  fail_in_child([&] { return call(); });
  fail_in_child([&] { return call_by_name(); });
}

TEST_F(OutOfMemory, ChangesOfAForkedChildAreRefused) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's allocator does not survive a fork";
  fail_in_child([&] { return runtime().recording().set_verbose(2); });
  fail_in_child([&] { return runtime().set_policy({}); });
  runtime().recording().to(folder_ / "calls.txt").or_throw();
  call().or_throw();
  fail_in_child([&] {
    const Status told = base::or_out_of_memory([&] { runtime().recording().stats(); });
    return told.ok() ? call() : told;
  });
}

// ---- Background tasks ----

class OutOfMemoryInTasks : public OutOfMemory {
 protected:
  // Lets each allocation of other threads fail while `work` runs, as long as it makes one.
  void fail_others(const std::function<void()>& work, uint64_t most) {
    for (const auto which : kEach) {
      bool failed = true;
      for (uint64_t n = 0; failed && n < most; ++n) {
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

TEST_F(OutOfMemoryInTasks, ARecordingIsWrittenLater) {
  const std::string path = folder_ / "calls.txt";
  runtime().recording().to(path).or_throw();
  call().or_throw();
  {
    FailingAllocations failing(0, FailingAllocations::kAllLater, FailingAllocations::kOtherThreads);
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    EXPECT_TRUE(failing.end());
    EXPECT_FALSE(fs::exists(path));
  }
  EXPECT_TRUE(base::eventually([&] { return fs::exists(path); }));
}

}  // namespace
}  // namespace yard::testing
