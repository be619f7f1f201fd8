// SPDX-License-Identifier: Apache-2.0
// Without memory a change or a call returns out_of_memory, throws nothing, and leaves a state that works.
#include <gtest/gtest.h>
#include <yard/bound.h>
#include <yard/policy.h>

#include <functional>

#include "base/testing_allocations.h"
#include "testing.h"

namespace yard::testing {
namespace {

using base::FailingAllocations;

constexpr Op<void(Out, In, int)> copy{"copy"};

class OutOfMemory : public ::testing::Test {
 protected:
  OutOfMemory() {
    bare_.add(kernel_of("copy", "first", 1, 10)).or_throw();
    EXPECT_TRUE(call().ok());
  }
  Status call() { return copy.on(bare_.runtime)(out_.view, x_.view, 0); }

  // Calls `boundary` with the first allocations succeeding, for a growing number of them, until it succeeds.
  void fail(
      const std::function<Status()>& boundary, const std::function<void()>& prepare = [] {}) {
    bool refused = false, failed = true;
    for (uint64_t n = 0; failed; ++n) {
      SCOPED_TRACE(n);
      prepare();
      FailingAllocations failing(n, FailingAllocations::kAllLater);
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

  Bare bare_;
  Floats out_{4}, x_{4};
};

TEST_F(OutOfMemory, AChangeOfTheRegistryIsRefused) {
  Changes c;
  fail([&] { return bare_.runtime.apply(std::move(c)).status(); },
       [&] {
         c = Changes();
         c.add_kernel(kernel_of("copy", "second", 2, 5)).remove_kernel("copy", "second");
       });
}

TEST_F(OutOfMemory, AChangeOfThePolicyIsRefused) {
  fail([&] {
    Policy p;
    p.strict = true;
    return bare_.runtime.set_policy(p);
  });
}

TEST_F(OutOfMemory, ACallOfAnotherShapeIsRefused) {
  Options o;
  o.labels["tenant"] = "blue";
  fail([&] {
    bare_.runtime.set_policy({}).ignore();  // so that there is no plan
    return copy.on(bare_.runtime).with(o)(out_.view, x_.view, 0);
  });
  fail([&] {
    bare_.runtime.set_policy({}).ignore();
    return bare_.runtime.call("copy", {out_.view, x_.view});
  });
}

}  // namespace
}  // namespace yard::testing
