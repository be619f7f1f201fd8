// SPDX-License-Identifier: Apache-2.0
// Logs from many threads while sinks and levels change. No message is lost or written twice, and no
// sink is used after its end.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/log.h"

namespace yard::base {
namespace {

TEST(LogThreads, EveryMessageIsWrittenOnce) {
  constexpr int kThreads = 4, kTexts = 50, kRounds = 40;
  std::atomic<int> written{0};
  set_log_sink([&](const LogMessage&) { written.fetch_add(1, std::memory_order_relaxed); });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < kTexts * kRounds; ++i)
        log(LogLevel::kError, "exec", "threads " + std::to_string(i % kTexts));
    });
  for (std::thread& t : threads) t.join();
  set_log_sink({});
  EXPECT_EQ(written.load(), kTexts);
}

TEST(LogThreads, SinksAndLevelsMayChangeAtAnyTime) {
  std::atomic<bool> stop{false};
  set_log_sink([](const LogMessage&) {});
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; !stop.load(std::memory_order_relaxed); ++i)
        log(LogLevel::kError, "verify", std::to_string(t) + ' ' + std::to_string(i));
    });
  threads.emplace_back([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      set_log_level("verify", LogLevel::kInfo).or_throw();
      apply_log_levels("info,verify=debug").or_throw();
    }
  });
  for (int i = 0; i < 100; ++i) {
    const auto alive = std::make_shared<std::atomic<int>>(1);
    set_log_sink([alive, guard = std::shared_ptr<void>(nullptr, [alive](void*) {
                           alive->store(0);
                         })](const LogMessage&) { EXPECT_EQ(alive->load(), 1); });
    std::this_thread::yield();
  }
  stop = true;
  for (std::thread& t : threads) t.join();
  set_log_sink({});
  apply_log_levels("").or_throw();
}

}  // namespace
}  // namespace yard::base
