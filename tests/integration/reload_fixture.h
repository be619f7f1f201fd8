// SPDX-License-Identifier: Apache-2.0
// The fixture for tests of changing rules: an op with three kernels, a file to write, and all
// events in order.
#pragma once

#include <mutex>

#include "base/testing_files.h"
#include "testing.h"

namespace yard::testing {

inline constexpr const char* kStep = "step(out!: T[seq_len], x: T[seq_len])";

inline std::string locked(const std::string& kernel, const std::string& more = "") {
  return "version: '1.0'\nkernel_locks: {step: " + kernel + "}\n" + more;
}

class Reload : public ::testing::Test {
 protected:
  Reload() : bare_(kStep), rt_(bare_.runtime), file_(folder_ / "rules.yaml") {
    for (const yard_kernel_t& k :
         {kernel_of("step", "default.a", 1, 30), kernel_of("step", "default.b", 2, 20),
          kernel_of("step", "default.c", 3, 10)})
      bare_.add(k).or_throw();
    rt_.rules().on_change([this](const ConfigEvent& e) {
      const std::lock_guard lock(lock_);
      events_.push_back(e);
    });
  }
  ~Reload() override { rt_.rules().unwatch(); }

  intptr_t ran(int64_t n = 4, const Options& o = {}) {
    std::vector<float> data(2 * static_cast<size_t>(n));
    const TensorView to(data.data(), DType::f32, {n}), x(data.data() + n, DType::f32, {n});
    t_ran = 0;
    return rt_.call("step", {to, x}, o).ok() ? t_ran : -1;
  }
  std::vector<ConfigEvent> events() {
    const std::lock_guard lock(lock_);
    return events_;
  }
  bool told(size_t count) {
    return base::eventually([&] { return events().size() >= count; });
  }
  bool becomes(intptr_t kernel) {
    return base::eventually([&] { return ran() == kernel; });
  }
  static WatchSettings quick() {
    return {std::chrono::milliseconds(20), std::chrono::milliseconds(10)};
  }

  std::mutex lock_;
  std::vector<ConfigEvent> events_;
  base::TempFolder folder_;
  Bare bare_;
  Runtime& rt_;
  const std::string file_;
};

}  // namespace yard::testing
