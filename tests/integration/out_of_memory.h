// SPDX-License-Identifier: Apache-2.0
// The fixture for tests without memory: every allocation fails once, alone and together with all
// later ones.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yard/yard.h>

#include <functional>

#include "base/results.h"
#include "base/testing_allocations.h"
#include "base/testing_files.h"
#include "testing.h"

namespace yard::testing {

using base::FailingAllocations;

inline constexpr Op<void(Out, In, int)> copy{"copy"};
// What kOne leaves behind could serve kAllLater, so kAllLater comes first.
inline constexpr FailingAllocations::Which kEach[] = {FailingAllocations::kAllLater,
                                                      FailingAllocations::kOne};

#if defined(YARD_UNDER_ASAN) || defined(YARD_UNDER_TSAN)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Returns the number of the allocation that fails next. next_of_many() skips more and more numbers,
// for work with thousands of allocations.
using Next = uint64_t (*)(uint64_t);
inline uint64_t next_one(uint64_t n) { return n + 1; }
inline uint64_t next_of_many(uint64_t n) { return n + 1 + n / 16; }

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

  // Calls `boundary` while allocation n fails, for n = 0, 1, ..., until `boundary` makes no more
  // than n.
  void fail(
      const std::function<Status()>& boundary, const std::function<void()>& prepare = [] {},
      Next next = next_one) {
    for (const auto which : kEach) {
      bool refused = false, failed = true;
      for (uint64_t n = 0; failed; n = next(n)) {
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

  // Does the same in a child. Allocations already fail during the fork, so those of the child's
  // restart fail, too.
  void fail_in_child(const std::function<Status()>& boundary, Next next = next_one) {
    for (const auto which : kEach) {
      bool failed = true;
      for (uint64_t n = 0; failed; n = next(n)) {
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
        ASSERT_LT(n, 100000u);
      }
    }
  }

  base::TempFolder folder_;
  Bare bare_;
  Floats out_{4}, x_{4};
};

}  // namespace yard::testing
