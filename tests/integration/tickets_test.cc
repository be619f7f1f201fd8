// SPDX-License-Identifier: Apache-2.0
// Tickets tell when removed objects are released. Waiting inside a kernel is an error.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "fault.h"
#include "testing.h"

namespace yard::testing::tickets {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Op<void(Out, In, int)> copy{"copy"};

class Tickets : public ::testing::Test {
 protected:
  Tickets() : kernel_({.op = "copy", .id = "fault.a", .backend = "test"}) {}
  Ticket remove(const char* id) {
    Changes c;
    c.remove_kernel("copy", id);
    return bare_.runtime.apply(std::move(c)).value();
  }
  Bare bare_;
  fault::FaultKernel kernel_;
  Floats out_{4}, x_{4};
};

TEST_F(Tickets, AreDoneAtOnceWithoutCallsInFlight) {
  auto keep = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = keep;
  ASSERT_TRUE(bare_.add(kernel_.descriptor(), std::move(keep)).ok());
  ASSERT_TRUE(copy.on(bare_.runtime)(out_.view, x_.view, 0).ok());
  const Ticket t = remove("fault.a");
  EXPECT_TRUE(t.done());
  EXPECT_TRUE(t.wait().ok());
  EXPECT_TRUE(watch.expired());
  EXPECT_TRUE(Ticket().done());
  EXPECT_TRUE(Ticket().wait().ok());
}

TEST_F(Tickets, OnlyTicketsWaitForCallsInFlight) {
  auto keep = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = keep;
  ASSERT_TRUE(bare_.add(kernel_.descriptor(), std::move(keep)).ok());
  kernel_.set({.blocks = true});
  std::thread caller([&] { EXPECT_TRUE(copy.on(bare_.runtime)(out_.view, x_.view, 0).ok()); });
  ASSERT_TRUE(kernel_.wait_for_waiters(1, milliseconds(20000)));
  const Ticket t = remove("fault.a");  // returns although the kernel runs
  EXPECT_FALSE(t.done());
  EXPECT_EQ(t.wait(milliseconds(5)).code(), Code::kDeadline);
  EXPECT_FALSE(watch.expired());
  // A blocked kernel delays only changes to what it uses, so a later change has nothing to wait
  // for.
  ASSERT_TRUE(bare_.add(kernel_of("copy", "b", 2)).ok());
  EXPECT_TRUE(remove("b").wait(seconds(10)).ok());
  kernel_.release();
  caller.join();
  EXPECT_TRUE(t.wait(seconds(10)).ok());
  EXPECT_TRUE(watch.expired());
}

TEST_F(Tickets, CannotBeWaitedForInsideAKernel) {
  ASSERT_TRUE(bare_.add(kernel_.descriptor()).ok());
  Status waited;
  bool done = true;
  Ticket t;
  kernel_.set({.callback = [&](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t {
    t = remove("fault.a");  // a kernel may remove itself
    done = t.done();
    waited = t.wait(seconds(5));
    return YARD_OK;
  }});
  ASSERT_TRUE(copy.on(bare_.runtime)(out_.view, x_.view, 0).ok());
  EXPECT_FALSE(done);
  EXPECT_EQ(waited.code(), Code::kWouldDeadlock);
  EXPECT_TRUE(t.wait(seconds(10)).ok());
}

TEST_F(Tickets, CannotBeWaitedForInsideAVerifier) {
  static std::function<void()> then;
  yard_kernel_t k = kernel_of("copy", "b", 2, 900);
  k.verify = [](const yard_query_t*, yard_verdict_t*) -> int32_t { return then(), YARD_OK; };
  ASSERT_TRUE(bare_.add(kernel_.descriptor()).ok());
  ASSERT_TRUE(bare_.add(k).ok());
  kernel_.set({.blocks = true});
  Options o;
  o.force = "fault.a";
  then = [] {};
  std::thread caller([&] { copy.on(bare_.runtime).with(o)(out_.view, x_.view, 0).ignore(); });
  ASSERT_TRUE(kernel_.wait_for_waiters(1, milliseconds(20000)));
  const Ticket t = remove("fault.a");
  Status waited;
  then = [&] { waited = t.wait(seconds(5)); };
  ASSERT_TRUE(copy.on(bare_.runtime)(out_.view, x_.view, 0).ok());
  EXPECT_EQ(waited.code(), Code::kWouldDeadlock);
  kernel_.release();
  caller.join();
  EXPECT_TRUE(t.wait(seconds(10)).ok());
}

TEST_F(Tickets, CoverEverythingThatABatchRemoved) {
  auto keep = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = keep;
  ASSERT_TRUE(bare_.add(kernel_.descriptor(), keep).ok());
  ASSERT_TRUE(bare_.add(kernel_of("copy", "b", 2), std::move(keep)).ok());
  Changes c;
  c.remove_op("copy").remove_backend("test");
  EXPECT_TRUE(bare_.runtime.apply(std::move(c)).value().wait(seconds(10)).ok());
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace yard::testing::tickets
