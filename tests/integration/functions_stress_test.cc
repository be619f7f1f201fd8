// SPDX-License-Identifier: Apache-2.0
// Functions with active backends under many threads: backends are activated, removed, loaded and
// unloaded during calls. Each call runs one chain as it was at one moment. The chain has everything
// that was registered throughout the call, and nothing that was removed.
#include <atomic>
#include <thread>

#include "functions_testing.h"
#include "plugin_files.h"
#include "test_scale.h"

namespace yard::testing {
namespace {

int rounds() { return scaled(fewer(300)); }

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

class FunctionsStress : public FunctionTest {
 protected:
  yard::Functions functions = runtime().functions();
};

TEST_F(FunctionsStress, SwitchingWhileThreadsCall) {
  const Function<std::string()> f{"s_group", "switched"};
  // Implementations own memory, so that the sanitizers find them if they are freed too early.
  const auto provide = [&](const char* name) {
    Changes c;
    implement(c, f, name, [text = std::string(40, name[0])](Next<std::string()> next) {
      return text[0] + next();
    });
    runtime().apply(std::move(c)).or_throw();
  };
  for (const char* name : {"a", "b", "c"}) provide(name);
  const Scope scope = Scope().backend("c"), device = Scope().device({2, 0});
  const Scope without(switched("a", false));
  const Busy callers(4, [&](int t) {
    const ScopedPolicy in(t == 1 ? scope : t == 2 ? device : t == 3 ? without : Scope());
    const std::string got = f.call_or([] { return std::string("."); });
    ASSERT_TRUE(t != 1 || got[0] == 'c') << got;
    ASSERT_TRUE(t != 3 || got.find('a') == got.npos) << got;
    ASSERT_EQ(got.back(), '.');
    for (const char c : {'a', 'b', 'c'}) ASSERT_LE(std::count(got.begin(), got.end(), c), 1) << got;
  });
  for (int i = 0; i < rounds(); ++i) {
    ASSERT_TRUE(functions.activate("a").ok());
    ASSERT_TRUE(functions.activate("b", {2, 0}).ok());
    ASSERT_TRUE(functions.activate("c").ok());
    const Ticket gone = remove("a");
    ASSERT_TRUE(functions.deactivate("b", {2, 0}).ok());
    provide("a");
    if (i % 16 == 0) {
      ASSERT_TRUE(gone.wait(std::chrono::seconds(60)).ok());
    }
    ASSERT_TRUE(functions.deactivate("c").ok());
    if (i % 8 == 0) functions.list();
  }
}

// A thread that sees a change in one function of a backend sees it in every other function,
// including functions that no backend served before.
TEST_F(FunctionsStress, ASetIsSwitchedAtOneMoment) {
  const Function<int()> first{"s_group", "first"}, second{"s_group", "second"};
  const auto provide = [&] {
    Changes c;
    implement(c, first, "acme", [] { return 1; });
    implement(c, second, "acme", [] { return 1; });
    runtime().apply(std::move(c)).or_throw();
  };
  provide();
  const auto ask = [](const Function<int()>& f) { return f.call_or([] { return 0; }); };
  constexpr int kReaders = 3;
  const Scope scope(switched("none", false)), device = Scope().device({2, 0});
  std::atomic<int> round{0}, ready{0}, finished{0}, half{0};
  const int most = rounds();
  std::vector<std::thread> readers;
  for (int t = 0; t < kReaders; ++t)
    readers.emplace_back([&, t] {
      for (int r = 1; r <= most; ++r) {
        while (round.load(std::memory_order_acquire) < r) std::this_thread::yield();
        ready.fetch_add(1);
        const int wanted = r % 2;  // 1 to activate, 0 to deactivate
        const Function<int()>&a = t % 2 == 0 ? first : second, &b = t % 2 == 0 ? second : first;
        for (int one = 0, other = 0; one != wanted || other != wanted;) {
          if (t == 2 && r / 2 % 2 == 0) {
            const ScopedPolicy on(device);
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
    EXPECT_TRUE((r % 2 == 1 ? functions.activate("acme") : functions.deactivate("acme")).ok());
    while (finished.load() < kReaders * r) std::this_thread::yield();
  }
  for (std::thread& t : readers) t.join();
  EXPECT_EQ(half.load(), 0);
}

TEST_F(FunctionsStress, PluginsComeAndGoWhileTheirFunctionsAreCalled) {
  Folder folder;
  const Function<int64_t(int64_t)> f{"active_group", "plugged"};
  const std::string path = folder.put("plugged");
  ASSERT_TRUE(runtime().plugins().load(path).ok());
  ASSERT_TRUE(functions.activate("plugged").ok());
  const auto ask = [&] { return f.call_or([] { return int64_t{-1}; }, 4); };
  {
    const Busy callers(3, [&](int) {
      const int64_t got = ask();
      ASSERT_TRUE(got == -1 || got == 41 || got == 42) << got;
    });
    for (int i = 0; i < rounds(); ++i) {
      folder.put(i % 2 == 0 ? "plugged_v2" : "plugged", "plugged");
      const auto gone = runtime().plugins().unload("plugged");
      ASSERT_TRUE(gone.ok()) << gone.status().to_string();
      ASSERT_TRUE(gone->wait(std::chrono::seconds(60)).ok());
      ASSERT_EQ(ask(), -1);
      ASSERT_TRUE(runtime().plugins().load(path).ok());
      ASSERT_EQ(ask(), i % 2 == 0 ? 42 : 41);
    }
  }
  ASSERT_TRUE(runtime().plugins().unload("plugged").value().wait(std::chrono::seconds(60)).ok());
  runtime().plugins().forget(path).ignore();
}

}  // namespace
}  // namespace yard::testing
