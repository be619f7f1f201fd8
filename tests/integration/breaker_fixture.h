// SPDX-License-Identifier: Apache-2.0
// The fixture for tests of breakers: an op with a bad kernel that comes first and a good kernel
// behind it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "base/testing_files.h"
#include "fault.h"
#include "testing.h"

namespace yard::testing {

using fault::FaultKernel;
using std::chrono::milliseconds;

inline constexpr Op<void(Out, In, int)> copy{"copy"};

// Waits for work that the runtime does on its own threads.
inline bool soon(const std::function<bool()>& f, milliseconds patience = milliseconds(20000)) {
  return base::eventually(f, patience);
}

class HealthOf : public ::testing::Test {
 protected:
  HealthOf() {
    Changes c;
    c.add_backend(backend_.descriptor());
    c.add_kernel(bad_.descriptor()).add_kernel(kernel_of("copy", "good", 1, 100));
    bare_.runtime.apply(std::move(c)).or_throw();
    bare_.runtime.health().on_event([this](const BreakerEvent& e) {
      opened_ += e.kind == BreakerEvent::Kind::kOpened;
      half_opened_ += e.kind == BreakerEvent::Kind::kHalfOpen;
    });
  }
  ~HealthOf() override { EXPECT_TRUE(bare_.runtime.reset().ok()); }

  Status call(int64_t n = 4) {
    std::vector<float> to(static_cast<size_t>(n)), from(static_cast<size_t>(n));
    return copy.on(bare_.runtime)(TensorView(to.data(), DType::f32, {n}),
                                  TensorView(from.data(), DType::f32, {n}), 0);
  }
  bool is_out(int64_t n = 4) {
    const auto e = bare_.runtime.explain("copy(f32[" + std::to_string(n) + "])@cpu").value();
    for (const Candidate& c : e.candidates)
      if (c.id == "fault.bad") return c.reason == "unhealthy";
    return false;
  }
  std::string why_out(int64_t n = 4) {
    const auto e = bare_.runtime.explain("copy(f32[" + std::to_string(n) + "])@cpu").value();
    for (const Candidate& c : e.candidates)
      if (c.id == "fault.bad") return c.detail;
    return "";
  }
  void set(uint32_t threshold, milliseconds cooldown) {
    BreakerSettings s;
    s.failure_threshold = threshold, s.cooldown = cooldown;
    s.cooldown_cap = std::max<std::chrono::nanoseconds>(s.cooldown_cap, s.cooldown);
    ASSERT_TRUE(bare_.runtime.health().set_settings(s).ok());
  }
  void open_by_faults(int64_t n = 4) {
    const int before = opened_;
    bad_.set({.code = YARD_FAULT, .message = "smoke"});
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(call(n).ok());
    ASSERT_TRUE(soon([&] { return opened_ > before || is_out(n); }));
  }

  // These count events rather than states, because a short cooldown may be over before the test
  // looks.
  std::atomic<int> opened_{0}, half_opened_{0};

  fault::FaultBackend backend_;
  FaultKernel bad_{{.op = "copy", .id = "fault.bad", .priority = 200}};
  Bare bare_;
};

}  // namespace yard::testing
