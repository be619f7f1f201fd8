// SPDX-License-Identifier: Apache-2.0
// What is to be done when a forked child first uses the library: threads of the parent that are wanted there,
// too, start again then. Not in the handler of fork: a child that only execs shall have no thread.
#pragma once

#include <functional>

namespace yard::base {

// Registers `then` for as long as this lives. It is called once in each child, by the thread that makes the first
// call, inside of that call and holding no lock of a runtime. What it throws is logged.
class FirstUse {
 public:
  explicit FirstUse(std::function<void()> then);
  // `then` is not running and will not be called when this returns.
  ~FirstUse();
  FirstUse(const FirstUse&) = delete;
  FirstUse& operator=(const FirstUse&) = delete;

 private:
  friend void first_use() noexcept;
  const std::function<void()> then_;
};

// In the child, from the handler of fork.
void expect_first_use() noexcept;
// Someone uses the library. Quick where there is nothing to do.
void first_use() noexcept;

}  // namespace yard::base
