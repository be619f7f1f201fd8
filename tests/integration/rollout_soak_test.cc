// SPDX-License-Identifier: Apache-2.0
// Threads call while kernels turn bad and good again under a sampled canary. Breakers open and
// close, and every rollout that moves calls to a bad kernel is aborted.
#include <yard/verify.h>

#include <atomic>
#include <limits>
#include <thread>

#include "rollout_fixture.h"
#include "test_scale.h"

namespace yard::testing::rollout {
namespace {

using Kind = ConfigEvent::Kind;

int32_t plain_copy(plugin::Call, plugin::Tensor out, plugin::Tensor x, int64_t) {
  for (int64_t i = 0; i < x.numel(); ++i) out.data<float>()[i] = x.data<float>()[i];
  return YARD_OK;
}

class RolloutSoak : public RolloutOf {
 protected:
  RolloutSoak() {
    bare_.add(right_).or_throw();
    bare_.runtime.health().on_event([this](const BreakerEvent& e) {
      if (e.kernel != "fault.new") return;
      opened_ += e.kind == BreakerEvent::Kind::kOpened;
      closed_ += e.kind == BreakerEvent::Kind::kClosed;
    });
    for (int t = 0; t < 3; ++t)
      threads_.emplace_back([this] {
        // Both sizes have the same breaker key.
        while (!stop_.load()) wrong_ += !try_call(5).ok() || !try_call(6).ok();
      });
  }
  ~RolloutSoak() override {
    stop_ = true;
    for (std::thread& t : threads_) t.join();
    EXPECT_EQ(wrong_.load(), 0u) << "calls failed";
  }

  template <class F>
  static bool soon(const F& f) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!f()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }
  static CanaryRule canary() { return {.op = "*", .one_in = 3}; }
  static bool six(const yard_value_t* args, uint32_t) { return args[0].u.tensor->shape[0] == 6; }

  yard_kernel_t right_ = plugin::Kernel::of<plain_copy>("copy", "reference.cpp")
                             .backend("test")
                             .kind(YARD_KIND_REFERENCE)
                             .d;
  std::atomic<int> opened_{0}, closed_{0};
  std::atomic<uint64_t> wrong_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

TEST_F(RolloutSoak, BreakersOpenAndCloseUnderASampledCanary) {
  Config c = rules(100, 1);
  c.rollout.reset();
  c.canary = {canary()};
  c.settings.breaker.enabled = true;
  c.settings.breaker.cooldown = milliseconds(5);
  c.settings.breaker.cooldown_growth = 1;
  bare_.runtime.rules().set(c).or_throw();
  const fault::Behaviour bad[] = {
      {.wrong_numbers = true, .delegate = &right_},
      {.when = six, .wrong_numbers = true, .delegate = &right_},
      {.when = six, .code = YARD_FAULT, .delegate = &right_},
      {.rate = 0.7, .code = YARD_FAULT, .delegate = &right_},
  };
  for (int round = 0; round < scaled(8); ++round) {
    const int opened = opened_, closed = closed_;
    new_.set(bad[round % 4]);
    ASSERT_TRUE(soon([&] { return opened_ > opened; })) << round;
    new_.set({.delegate = &right_});
    ASSERT_TRUE(soon([&] { return closed_ > closed; })) << round;
  }
}

TEST_F(RolloutSoak, RulesForABadKernelAreAlwaysRolledBack) {
  for (int round = 0; round < scaled(6); ++round) {
    const bool nan = round % 2 == 0;
    new_.set({.when = nan ? fault::Arguments() : six,
              .wrong_numbers = true,
              .offset = nan ? std::numeric_limits<double>::quiet_NaN() : 1,
              .delegate = &right_});
    {
      const std::lock_guard l(lock_);
      events_.clear();
    }
    Config c = patient_rules(30, 5);
    c.canary = {canary()};
    bare_.runtime.rules().set(c).or_throw();
    ASSERT_TRUE(soon([&] { return saw(Kind::kAborted); })) << round;
    EXPECT_FALSE(saw(Kind::kReloaded));
  }
}

}  // namespace
}  // namespace yard::testing::rollout
