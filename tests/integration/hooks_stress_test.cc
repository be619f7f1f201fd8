// SPDX-License-Identifier: Apache-2.0
// Hooks under many threads: activated, removed, loaded and unloaded while they are called. A call runs one chain as it
// was at one moment, nothing that was removed, and finds everything that was registered all the time.
#include <atomic>
#include <thread>

#include "plugin_files.h"
#include "test_scale.h"

namespace yard::testing {
namespace {

int rounds() { return scaled(fewer(300)); }

// Threads that do something over and over until the end of the block.
class Busy {
 public:
  template <class F>
  Busy(int threads, const F& f) {
    for (int t = 0; t < threads; ++t)
      threads_.emplace_back([this, f, t] {
        do f(t), done_.fetch_add(1, std::memory_order_relaxed);
        while (!stop_.load(std::memory_order_relaxed));
      });
  }
  ~Busy() {
    stop_ = true;
    for (auto& t : threads_) t.join();
    EXPECT_GE(done_.load(), threads_.size());
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> done_{0};
  std::vector<std::thread> threads_;
};

TEST(HooksStress, SwitchingWhileThreadsCall) {
  Runtime runtime(RuntimeSettings{false, 64, false});
  Hooks hooks = runtime.hooks();
  const Hook<std::string()> hook(runtime, "switched");
  // What an implementation holds is checked by the sanitizers when it has gone too early.
  const auto set = [&](const char* name) {
    HookSet s(name);
    s.add(hook,
          [text = std::string(40, name[0])](Next<std::string()> next) { return text[0] + next(); });
    return s;
  };
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(hooks.add(set(name)).ok());
  const HookScope scope = hooks.scope("c").value();
  {
    const Busy callers(4, [&](int t) {
      const auto ask = [&] { return call_or(hook, [] { return std::string("."); }); };
      std::string got;
      if (t == 1) {
        const ScopedHooks in(scope);
        got = ask();
        ASSERT_TRUE(got[0] == 'c' || got.find('c') == got.npos) << got;
      } else if (t == 2) {
        const ScopedDevice on({2, 0});
        got = ask();
      } else if (t == 3) {
        Policy p;
        p.backends["a"] = false;
        const ScopedPolicy in(p);
        got = ask();
        ASSERT_EQ(got.find('a'), got.npos) << got;
      } else {
        got = ask();
      }
      ASSERT_EQ(got.back(), '.');
      for (const char c : {'a', 'b', 'c'})
        ASSERT_LE(std::count(got.begin(), got.end(), c), 1) << got;
    });
    for (int i = 0; i < rounds(); ++i) {
      ASSERT_TRUE(hooks.activate("a").ok());
      ASSERT_TRUE(hooks.activate("b", {2, 0}).ok());
      ASSERT_TRUE(hooks.activate("c").ok());
      auto gone = hooks.remove("a");
      ASSERT_TRUE(gone.ok());
      ASSERT_TRUE(hooks.deactivate("b", {2, 0}).ok());
      ASSERT_TRUE(hooks.add(set("a")).ok());
      if (i % 16 == 0) {
        ASSERT_TRUE(gone->wait(std::chrono::seconds(60)).ok());
      }
      ASSERT_TRUE(hooks.deactivate("c").ok());
      if (i % 8 == 0) hooks.list();
    }
  }
}

// A thread that sees one hook of a set after a change sees no other one before it.
TEST(HooksStress, ASetIsSwitchedAtOneMoment) {
  Runtime runtime(RuntimeSettings{false, 64, false});
  Hooks hooks = runtime.hooks();
  const Hook<int()> first(runtime, "set.first"), second(runtime, "set.second");
  HookSet set("acme");
  set.add(first, [] { return 1; }).add(second, [] { return 1; });
  ASSERT_TRUE(hooks.add(set).ok());
  const auto ask = [](const Hook<int()>& h) { return call_or(h, [] { return 0; }); };
  constexpr int kReaders = 3;
  Policy elsewhere;
  elsewhere.backends["none"] = false;
  const Scope scope(elsewhere);
  std::atomic<int> round{0}, ready{0}, finished{0}, half{0};
  const int most = rounds();
  std::vector<std::thread> readers;
  for (int t = 0; t < kReaders; ++t)
    readers.emplace_back([&, t] {
      for (int r = 1; r <= most; ++r) {
        while (round.load(std::memory_order_acquire) < r) std::this_thread::yield();
        ready.fetch_add(1);
        const int wanted = r % 2;  // 1: being activated
        const Hook<int()>&a = t % 2 == 0 ? first : second, &b = t % 2 == 0 ? second : first;
        for (int one = 0, other = 0; one != wanted || other != wanted;) {
          if (t == 2 && r / 2 % 2 == 0) {
            const ScopedDevice on({2, 0});
            one = ask(a), other = ask(b);
          } else if (t == 2) {
            one = ask(a);
            const ScopedPolicy in(scope);
            other = ask(b);
            if (other == wanted && ask(a) != wanted) half.fetch_add(1);
          } else {
            one = ask(a), other = ask(b);
          }
          if (one == wanted && other != wanted) half.fetch_add(1);
        }
        finished.fetch_add(1);
      }
    });
  for (int r = 1; r <= most; ++r) {
    round.store(r, std::memory_order_release);
    while (ready.load() < kReaders * r) std::this_thread::yield();
    EXPECT_TRUE((r % 2 == 1 ? hooks.activate("acme") : hooks.deactivate("acme")).ok());
    while (finished.load() < kReaders * r) std::this_thread::yield();
  }
  for (std::thread& t : readers) t.join();
  EXPECT_EQ(half.load(), 0);
}

TEST(HooksStress, ConcurrentSwitchesEndInTheLastState) {
  Runtime runtime(RuntimeSettings{false, 64, false});
  Hooks hooks = runtime.hooks();
  const Hook<int()> hook(runtime, "shared");
  std::vector<std::string> names;
  for (int t = 0; t < 4; ++t) {
    names.push_back("backend" + std::to_string(t));
    ASSERT_TRUE(hooks.add(HookSet(names.back()).add(hook, [t] { return t; })).ok());
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < rounds(); ++i) {
        ASSERT_TRUE(hooks.activate(names[static_cast<size_t>(t)]).ok());
        ASSERT_GE(call_or(hook, [] { return -1; }), 0) << "this one is active at least";
        ASSERT_TRUE(hooks.deactivate(names[static_cast<size_t>(t)]).ok());
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(call_or(hook, [] { return -1; }), -1);
  EXPECT_TRUE(hooks.list().activations.empty());
}

TEST(HooksStress, FirstUsesOfManyThreads) {
  for (int i = 0; i < rounds() / 10 + 1; ++i) {
    Runtime runtime(RuntimeSettings{false, 64, false});
    Hooks hooks = runtime.hooks();
    const Hook<int()> hook(runtime, "first");
    ASSERT_TRUE(hooks.add(HookSet("acme").add(hook, [] { return 2; })).ok());
    ASSERT_TRUE(hooks.activate("acme").ok());
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] { EXPECT_EQ(call_or(hook, [] { return 1; }), 2); });
    for (auto& t : threads) t.join();
  }
}

TEST(HooksStress, PluginsComeAndGoWhileTheirHooksAreCalled) {
  Folder folder;
  Runtime runtime(alone());
  const Hook<int64_t(int64_t)> hook(runtime, "plugged");
  const std::string path = folder.put("hooked");
  ASSERT_TRUE(runtime.plugins().load(path).ok());
  ASSERT_TRUE(runtime.hooks().activate("hooked").ok());
  {
    const Busy callers(3, [&](int) {
      const int64_t got = call_or(
          hook, [] { return int64_t{-1}; }, 4);
      ASSERT_TRUE(got == -1 || got == 41 || got == 42) << got;
    });
    for (int i = 0; i < rounds(); ++i) {
      folder.put(i % 2 == 0 ? "hooked_v2" : "hooked", "hooked");
      const auto gone = runtime.plugins().unload("hooked");
      ASSERT_TRUE(gone.ok()) << gone.status().to_string();
      ASSERT_TRUE(gone->wait(std::chrono::seconds(60)).ok());
      ASSERT_EQ(call_or(
                    hook, [] { return int64_t{-1}; }, 4),
                -1);
      ASSERT_TRUE(runtime.plugins().load(path).ok());
      ASSERT_EQ(call_or(
                    hook, [] { return int64_t{-1}; }, 4),
                i % 2 == 0 ? 42 : 41);
    }
  }
}

}  // namespace
}  // namespace yard::testing
