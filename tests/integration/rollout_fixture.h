// SPDX-License-Identifier: Apache-2.0
// The fixture for tests of rules in rollout: an old kernel that runs, a new one that the rules
// want, and all events.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "fault.h"
#include "testing.h"

namespace yard::testing::rollout {

using fault::FaultKernel;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

inline constexpr Op<void(Out, In, int)> copy{"copy"};

class RolloutOf : public ::testing::Test {
 protected:
  RolloutOf() {
    Changes c;
    c.add_backend(backend_.descriptor());
    c.add_kernel(new_.descriptor()).add_kernel(kernel_of("copy", "old", 1, 200));
    bare_.runtime.apply(std::move(c)).or_throw();
    bare_.runtime.rules().set({}).or_throw();  // a rollout needs rules in force
    bare_.runtime.rules().on_change([this](const ConfigEvent& e) {
      const std::lock_guard l(lock_);
      events_.push_back(e);
    });
    BreakerSettings off;
    off.enabled = false;  // no breaker may keep the new kernel from failing
    bare_.runtime.health().set_settings(off).or_throw();
  }
  ~RolloutOf() override { EXPECT_TRUE(bare_.runtime.reset().ok()); }

  // Returns rules that send every call to the new kernel.
  Config rules(double percent, double hold_s) {
    Config c;
    DispatchRule r;
    r.operation = "copy", r.kernel = "fault.new";
    c.dispatch_rules.push_back(r);
    c.rollout.emplace();
    c.rollout->percent = percent, c.rollout->hold_s = hold_s;
    return c;
  }
  // Like rules(), but without a bound on the time: the new kernel allocates, and the old one does
  // almost nothing.
  Config patient_rules(double percent, double hold_s) {
    Config c = rules(percent, hold_s);
    c.rollout->max_slowdown = 1e6;
    return c;
  }
  Status try_call(int64_t n = 4) {
    std::vector<float> to(static_cast<size_t>(n)), from(static_cast<size_t>(n));
    return copy.on(bare_.runtime)(TensorView(to.data(), DType::f32, {n}),
                                  TensorView(from.data(), DType::f32, {n}), 0);
  }
  bool call(int64_t n = 4) {
    const uint64_t before = new_.calls();
    EXPECT_TRUE(try_call(n).ok());
    return new_.calls() > before;
  }
  bool saw(ConfigEvent::Kind kind) {
    const std::lock_guard l(lock_);
    for (const ConfigEvent& e : events_)
      if (e.kind == kind) return true;
    return false;
  }
  bool call_until(ConfigEvent::Kind kind, milliseconds patience = milliseconds(20000)) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!saw(kind)) {
      if (std::chrono::steady_clock::now() > end) return false;
      call();
    }
    return true;
  }

  fault::FaultBackend backend_;
  FaultKernel new_{{.op = "copy", .id = "fault.new", .priority = 100}, {.rate = 0}};
  std::mutex lock_;
  std::vector<ConfigEvent> events_;
  Bare bare_;  // destroyed first, because its threads send events until then
};

}  // namespace yard::testing::rollout
