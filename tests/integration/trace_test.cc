// SPDX-License-Identifier: Apache-2.0
// Inside a TraceScope, calls are checked, shaped and recorded instead of run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/trace.h>

#include <thread>

#include "testing.h"

namespace yard::testing::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Op<void(Out, In, int64_t)> copy{"copy"};

class Trace : public ::testing::Test {
 protected:
  Trace() {
    yard_kernel_t slow = kernel_of("copy", "reference.r", 2);
    slow.kind = YARD_KIND_REFERENCE;
    bare_.add(kernel_of("copy", "default.a", 1)).or_throw();
    bare_.add(slow).or_throw();
    t_ran = 0;
  }
  Status call(const TensorView& out, const TensorView& x, int64_t by = 0) {
    return copy.on(bare_.runtime)(out, x, by);
  }
  Bare bare_;
  Floats a_{8}, b_{8}, c_{8};
};

TEST_F(Trace, RecordsInsteadOfRunning) {
  ASSERT_TRUE(call(b_.view, a_.view).ok());  // makes a memo of such calls
  t_ran = 0;
  TraceScope trace;
  ASSERT_TRUE(call(b_.view, a_.view, 7).ok());
  ASSERT_TRUE(call(c_.view, b_.view).ok());
  ASSERT_TRUE(call(b_.view, b_.view).ok());
  ASSERT_TRUE(call(c_.view, b_.view).ok());
  EXPECT_EQ(t_ran, 0);

  const auto nodes = trace.nodes();
  ASSERT_EQ(nodes.size(), 4u);
  EXPECT_EQ(nodes[0].op, "copy");
  EXPECT_EQ(nodes[0].kernel, "default.a");
  EXPECT_THAT(nodes[0].call, HasSubstr("by=7"));
  ASSERT_EQ(nodes[0].args.size(), 3u);
  EXPECT_EQ(nodes[0].args[0].name, "out");
  EXPECT_EQ(nodes[0].args[0].text, "f32[8]");
  EXPECT_EQ(nodes[0].args[2].text, "7");
  EXPECT_EQ(trace.to_text(),
            "%1: f32[8] = copy(x=%0, by=7)  [default.a]\n"
            "%2: f32[8] = copy(x=%1, by=0)  [default.a]\n"
            "%3: f32[8] = copy(x=%1, by=0)  [default.a]\n"
            "%4: f32[8] = copy(x=%3, by=0)  [default.a]\n");
  EXPECT_THAT(trace.to_json(),
              HasSubstr(R"({"name": "out", "text": "f32[8]", "reads": null, "writes": 1})"));
}

TEST_F(Trace, EndsWithItsBlock) {
  {
    TraceScope trace;
    ASSERT_TRUE(call(b_.view, a_.view).ok());
    ASSERT_TRUE(call(b_.view, a_.view).ok());
    EXPECT_EQ(t_ran, 0);
  }
  ASSERT_TRUE(call(b_.view, a_.view).ok());
  EXPECT_EQ(t_ran, 1);
}

TEST_F(Trace, NeedsNoData) {
  const TensorView out(nullptr, DType::f32, {8}), x(nullptr, DType::f32, {8});
  EXPECT_FALSE(call(out, x).ok());
  TraceScope trace;
  ASSERT_TRUE(call(out, x).ok());
  EXPECT_EQ(trace.nodes().size(), 1u);
}

TEST_F(Trace, RefusesInvalidCalls) {
  TraceScope trace;
  Floats short_one(7);
  const Status wrong = call(b_.view, short_one.view);
  EXPECT_EQ(wrong.code(), Code::kInvalidArgument);
  const ScopedPolicy none(Scope().allow_kernels({"nobody"}));
  EXPECT_EQ(call(b_.view, a_.view).code(), Code::kNoKernel);
  EXPECT_TRUE(trace.nodes().empty());
}

TEST_F(Trace, FollowsScopesAroundAndInside) {
  const ScopedPolicy outer(Scope().prefer(Kind::kReference));
  TraceScope trace;
  ASSERT_TRUE(call(b_.view, a_.view).ok());
  {
    const ScopedPolicy inner(Scope().prefer(Kind::kDefault));
    ASSERT_TRUE(call(b_.view, a_.view).ok());
  }
  Options forced;
  forced.force = "default.a";
  ResultRecord record;
  forced.result = &record;
  ASSERT_TRUE(copy.on(bare_.runtime).with(forced)(b_.view, a_.view, 0).ok());
  EXPECT_STREQ(record.kernel, "default.a");
  EXPECT_EQ(record.attempts, 0);
  std::vector<std::string> kernels;
  for (const TraceNode& n : trace.nodes()) kernels.push_back(n.kernel);
  EXPECT_THAT(kernels, ElementsAre("reference.r", "default.a", "default.a"));
  EXPECT_EQ(t_ran, 0);
}

TEST_F(Trace, DoesNotAffectOtherThreads) {
  TraceScope trace;
  intptr_t there = 0;
  std::thread([&] {
    ASSERT_TRUE(call(b_.view, a_.view).ok());
    there = t_ran;
  }).join();
  EXPECT_EQ(there, 1);
  EXPECT_TRUE(trace.nodes().empty());
}

TEST_F(Trace, RecordsBoundAndPackedCalls) {
  Floats w(8);
  constexpr Op<void(Out, In, In, float)> rms_norm{"rms_norm"};  // on the shared runtime
  const auto bound = bind(rms_norm, b_.view, a_.view, w.view).value();
  TraceScope trace;
  ASSERT_TRUE(bound(b_.view, a_.view, w.view, 1e-6f).ok());
  ASSERT_TRUE(bound(1e-6f).ok());
  ASSERT_TRUE(bare_.runtime.call("copy", {b_.view, a_.view}).ok());
  EXPECT_EQ(t_ran, 0);
  ASSERT_EQ(trace.nodes().size(), 3u);
  EXPECT_THAT(trace.nodes()[0].call, HasSubstr("eps=1e-6"));
  EXPECT_THAT(trace.to_text(), HasSubstr("eps=1e-6)"));
}

TEST_F(Trace, AddsTheNoteOfTheKernel) {
  yard_kernel_t k = kernel_of("copy", "default.noted", 3, 900);
  k.trace = [](yard_call_t* call, const yard_value_t* args, uint32_t count) -> int32_t {
    EXPECT_EQ(count, 3u);
    if (args[2].u.i == 9) return plugin::Call(call).fail(YARD_DECLINED, "not by nine");
    std::snprintf(call->error, call->error_size, "by %d", static_cast<int>(args[2].u.i));
    return YARD_OK;
  };
  bare_.add(k).or_throw();
  TraceScope trace;
  ASSERT_TRUE(call(b_.view, a_.view, 4).ok());
  EXPECT_THAT(call(b_.view, a_.view, 9).to_string(), HasSubstr("not by nine"));
  ASSERT_EQ(trace.nodes().size(), 1u);
  EXPECT_EQ(trace.nodes()[0].note, "by 4");
}

TEST_F(Trace, CallsInANestedTraceBelongToTheInnerOne) {
  TraceScope outer;
  ASSERT_TRUE(call(b_.view, a_.view).ok());
  {
    TraceScope inner;
    ASSERT_TRUE(call(b_.view, a_.view).ok());
    EXPECT_EQ(inner.nodes().size(), 1u);
  }
  ASSERT_TRUE(call(b_.view, a_.view).ok());
  EXPECT_EQ(outer.nodes().size(), 2u);
}

}  // namespace
}  // namespace yard::testing::trace
