// SPDX-License-Identifier: Apache-2.0
// Tests options of one call, and what happens when kernels fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fault.h"
#include "testing.h"

namespace yard::testing::options {
namespace {

using ::testing::HasSubstr;
using ::testing::StrEq;

constexpr Op<void(Out, In, int)> copy{"copy"};

class OptionsOf : public ::testing::Test {
 protected:
  OptionsOf() {
    bare_.add(kernel_of("copy", "a", 1, 100)).or_throw();
    bare_.add(kernel_of("copy", "b", 2, 200)).or_throw();
    yard_kernel_t r = kernel_of("copy", "r", 3);
    r.kind = YARD_KIND_REFERENCE, r.flags = YARD_KERNEL_DETERMINISTIC | YARD_KERNEL_CAPTURE_SAFE;
    bare_.add(r).or_throw();
  }
  // Returns the kernel that ran, or the negative code of the failure.
  intptr_t ran(const Options& o = {}) {
    t_ran = 0;
    last_ = copy.on(bare_.runtime).with(o)(out_.view, x_.view, 0);
    return last_.ok() ? t_ran : -static_cast<intptr_t>(last_.code());
  }
  static intptr_t fails(Code c) { return -static_cast<intptr_t>(c); }

  Bare bare_;
  Floats out_{4}, x_{4};
  Status last_;
};

TEST_F(OptionsOf, Force) {
  Options o;
  o.force = "a";
  EXPECT_EQ(ran(o), 1);
  EXPECT_EQ(ran(), 2);
  o.force = "aa";
  EXPECT_EQ(ran(o), fails(Code::kNotFound));
  EXPECT_THAT(last_.to_string(), HasSubstr("a"));
  o.force = "a", o.deny = {"a"};
  EXPECT_EQ(ran(o), fails(Code::kNoKernel));
}

TEST_F(OptionsOf, Deny) {
  Options o;
  o.deny = {"b"};
  EXPECT_EQ(ran(o), 1);
  o.deny = {"[ab]", "?"};
  EXPECT_EQ(ran(o), fails(Code::kNoKernel));
  o.deny = {""};
  EXPECT_EQ(ran(o), fails(Code::kInvalidArgument));
  // A newline does not split a pattern in two.
  o.deny = {"a", "b"};
  EXPECT_EQ(ran(o), 3);
  o.deny = {"a\ndeny b"};
  EXPECT_EQ(ran(o), 2);
}

TEST_F(OptionsOf, PolicyIsStrongerThanTheProcess) {
  Policy p;
  p.prefer = Kind::kReference;
  ASSERT_TRUE(bare_.runtime.set_policy(p).ok());
  EXPECT_EQ(ran(), 3);
  Options o;
  o.policy = Policy();
  o.policy->prefer = Kind::kDefault;
  EXPECT_EQ(ran(o), 2);
  o.policy->deny_kernels = {"b"};
  EXPECT_EQ(ran(o), 1);
  o.policy->per_op["copy"] = {"typo"};
  EXPECT_EQ(ran(o), fails(Code::kInvalidArgument));
  EXPECT_EQ(ran(), 3);
}

TEST_F(OptionsOf, Flags) {
  Options o;
  o.deterministic = true;
  EXPECT_EQ(ran(o), 3);
  o.deterministic = false, o.capturing = true;
  EXPECT_EQ(ran(o), 3);
  yard_kernel_t k = kernel_of("copy", "i", 4, 900);
  k.flags = YARD_KERNEL_INFERENCE_ONLY;
  ASSERT_TRUE(bare_.add(k).ok());
  EXPECT_EQ(ran(), 2);
  o.capturing = false, o.inference = true;
  EXPECT_EQ(ran(o), 4);
}

TEST_F(OptionsOf, CallsWithFlagsHaveTheirOwnMemos) {
  Options o;
  o.deterministic = true;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(ran(), 2);
    EXPECT_EQ(ran(o), 3);
  }
  EXPECT_EQ(bare_.runtime.stats(false).selections, 2u);
}

TEST_F(OptionsOf, CacheOffStoresNothing) {
  Options o;
  o.cache = false;
  const uint64_t before = bare_.runtime.stats(false).selections;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ran(o), 2);
  EXPECT_EQ(bare_.runtime.stats(false).plans, 0u);
  EXPECT_EQ(bare_.runtime.stats(false).selections, before + 3);
}

TEST_F(OptionsOf, Modes) {
  Options o;
  o.mode = Mode::kStatic;
  EXPECT_EQ(ran(o), fails(Code::kUnmapped));
  for (Mode m : {Mode::kAuto, Mode::kDynamic, Mode::kConfig, Mode::kHotReload}) {
    o.mode = m;
    EXPECT_EQ(ran(o), 2);
  }
}

TEST_F(OptionsOf, Deadline) {
  Options o;
  o.deadline = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  EXPECT_EQ(ran(o), fails(Code::kDeadline));
  EXPECT_EQ(t_ran, 0);
  o.deadline = std::chrono::steady_clock::now() + std::chrono::hours(1);
  EXPECT_EQ(ran(o), 2);
}

TEST_F(OptionsOf, LabelsAreSeenInExplanationsAndChangeNothing) {
  Options o;
  o.labels = {{"model", "m1"}, {"stage", "a b"}};
  EXPECT_EQ(ran(o), 2);
  EXPECT_EQ(bare_.runtime.stats(false).overlays, 0u);
  EXPECT_THAT(bare_.runtime.explain("copy", {out_.view, x_.view}, o).value().call,
              HasSubstr("model=m1"));
}

TEST_F(OptionsOf, TheResultRecordsWhatHappened) {
  ResultRecord r;
  Options o;
  o.result = &r;
  EXPECT_EQ(ran(o), 2);
  EXPECT_THAT(r.kernel, StrEq("b"));
  EXPECT_FALSE(r.cached);
  EXPECT_EQ(r.attempts, 1);
  EXPECT_EQ(r.fallback_from, 0);
  EXPECT_GT(r.select_ns, 0);
  EXPECT_EQ(ran(o), 2);
  EXPECT_TRUE(r.cached);
  o.force = "nobody";
  EXPECT_LT(ran(o), 0);
  EXPECT_THAT(r.kernel, StrEq(""));
}

TEST_F(OptionsOf, TheResultHasTheWholeIdOfTheKernel) {
  const std::string id = "vendor." + std::string(121, 'x');
  ASSERT_EQ(id.size(), 128u);
  bare_.add(kernel_of("copy", id.c_str(), 3, 900)).or_throw();
  ResultRecord r;
  Options o;
  o.result = &r;
  EXPECT_EQ(ran(o), 3);
  EXPECT_EQ(r.kernel, id);
}

// ---- Many policies ----

TEST_F(OptionsOf, OverlaysAreBounded) {
  size_t most_retired = 0, most_overlays = 0;
  for (int i = 0; i < 10000; ++i) {
    Options o;
    o.policy = Policy();
    o.policy->deny_kernels = {"x" + std::to_string(i), i % 2 == 0 ? "b" : "y"};
    ASSERT_EQ(ran(o), i % 2 == 0 ? 1 : 2);
    const RuntimeStats s = bare_.runtime.stats(false);
    most_retired = std::max(most_retired, s.retired);
    most_overlays = std::max(most_overlays, s.overlays);
  }
  EXPECT_LE(most_overlays, 256u);
  EXPECT_LE(most_retired, 2000u);
  EXPECT_EQ(ran(), 2);
}

// ---- Failures ----

class Failures : public ::testing::Test {
 protected:
  Failures() : kernel_({.op = "copy", .id = "fault.a", .backend = "test", .priority = 900}) {
    bare_.add(kernel_.descriptor()).or_throw();
    bare_.add(kernel_of("copy", "b", 2)).or_throw();
  }
  Status call(const Options& o = {}) {
    t_ran = 0;
    return copy.on(bare_.runtime).with(o)(out_.view, x_.view, 0);
  }
  Bare bare_;
  fault::FaultKernel kernel_;
  Floats out_{4}, x_{4};
};

TEST_F(Failures, TheClassDecidesWhatFollows) {
  const struct {
    yard_code_t code;
    bool next;
  } cases[] = {{YARD_CALLER, false}, {YARD_DECLINED, true},    {YARD_TRANSIENT, true},
               {YARD_FAULT, true},   {YARD_DEVICE_LOST, true}, {YARD_FATAL, false}};
  for (const auto& c : cases) {
    kernel_.set({.code = c.code, .message = "because"});
    ResultRecord r;
    Options o;
    o.result = &r;
    const Status with = call(o);
    const Status plain = copy.on(bare_.runtime)(out_.view, x_.view, 0);
    EXPECT_EQ(with.ok(), c.next);
    EXPECT_EQ(plain.ok(), c.next);
    EXPECT_EQ(r.attempts, c.next ? 2 : 1);
    // The host device cannot be lost, so this counts as a fault.
    EXPECT_EQ(r.fallback_from, c.code == YARD_DEVICE_LOST ? YARD_FAULT : c.code);
    if (c.next) {
      EXPECT_EQ(t_ran, 2);
      EXPECT_THAT(r.kernel, StrEq("b"));
      continue;
    }
    EXPECT_EQ(with.error_class(), static_cast<ErrorClass>(c.code));
    EXPECT_EQ(plain.error_class(), static_cast<ErrorClass>(c.code));
    EXPECT_THAT(plain.to_string(), HasSubstr("because"));
    EXPECT_THAT(plain.to_string(), HasSubstr("fault.a"));
  }
}

// A kernel that has written its message may call ops before it returns. Its message survives
// whatever those calls do, and so do the messages of the caller's earlier calls.
TEST_F(Failures, NestedCallsDoNotOverwriteTheMessage) {
  Changes more;
  fault::FaultKernel inner({.op = "inner", .id = "fault.inner", .backend = "test"});
  more.add_op(op_of("inner(out!: T[n], x: T[n], by: int = 0)")).add_kernel(inner.descriptor());
  ASSERT_TRUE(bare_.runtime.apply(std::move(more)).ok());
  constexpr Op<void(Out, In, int)> inner_op{"inner"};
  Policy strict;
  strict.strict = true;
  ASSERT_TRUE(bare_.runtime.set_policy(strict).ok());
  const auto outer = copy.on(bare_.runtime), in = inner_op.on(bare_.runtime);
  const auto bound = bind(outer, out_.view, x_.view).value();
  const auto bound_in = bind(in, out_.view, x_.view).value();
  // Both kernels have succeeded before, so calls take the shortest path.
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(outer(out_.view, x_.view, 0).ok() && in(out_.view, x_.view, 0).ok());
    ASSERT_TRUE(bound(0).ok() && bound_in(0).ok());
  }
  for (const bool inner_fails : {false, true}) {
    Status first, second;
    kernel_.set({.callback = [&](yard_call_t* call, const yard_value_t*, uint32_t) -> int32_t {
      std::snprintf(call->error, call->error_size, "outer text");
      inner.set({.rate = inner_fails ? 1.0 : 0.0, .code = YARD_FAULT, .message = "inner text"});
      first = in(out_.view, x_.view, 0);
      second = bound_in(0);
      return YARD_FAULT;
    }});
    const Status one = outer(out_.view, x_.view, 0), two = bound(0);
    for (const Status* s : {&one, &two}) {
      EXPECT_THAT(s->to_string(), HasSubstr("outer text"));
      EXPECT_THAT(s->to_string(), Not(HasSubstr("inner text")));
    }
    EXPECT_EQ(first.ok(), !inner_fails);
    if (inner_fails) {
      EXPECT_THAT(first.to_string(), HasSubstr("inner text"));
      EXPECT_THAT(second.to_string(), HasSubstr("inner text"));
    }
    kernel_.set({.rate = 0});
    inner.set({.rate = 0});
    for (int i = 0; i < 3; ++i)
      ASSERT_TRUE(outer(out_.view, x_.view, 0).ok() && in(out_.view, x_.view, 0).ok());
    ASSERT_TRUE(bound(0).ok() && bound_in(0).ok());
  }
  Changes gone;
  gone.remove_op("inner");
  ASSERT_TRUE(bare_.runtime.apply(std::move(gone)).ok());
}

TEST_F(Failures, StrictMeansTheFirstOrItsError) {
  kernel_.set({.code = YARD_FAULT});
  Options o;
  o.policy = Policy();
  o.policy->strict = true;
  EXPECT_EQ(call(o).code(), Code::kKernelFailed);
  ASSERT_TRUE(bare_.runtime.set_policy(*o.policy).ok());
  EXPECT_EQ(copy.on(bare_.runtime)(out_.view, x_.view, 0).code(), Code::kKernelFailed);
}

TEST_F(Failures, ExceptionsAreFaults) {
  for (fault::Throws t : {fault::Throws::kStandard, fault::Throws::kForeign}) {
    kernel_.set({.throws = t, .message = "thrown"});
    EXPECT_TRUE(call().ok());
    EXPECT_EQ(t_ran, 2);
    Options o;
    o.force = "fault.a";
    const Status s = call(o);
    EXPECT_EQ(s.error_class(), ErrorClass::kFault);
    const bool told = s.to_string().find("thrown") != std::string::npos;
    EXPECT_EQ(told, t == fault::Throws::kStandard);
  }
}

TEST_F(Failures, AllThatFailedAreNamed) {
  kernel_.set({.code = YARD_FAULT, .message = "first"});
  fault::FaultKernel second({.op = "copy", .id = "fault.b", .backend = "test", .priority = 800},
                            {.code = YARD_DECLINED, .message = "second"});
  ASSERT_TRUE(bare_.add(second.descriptor()).ok());
  ASSERT_TRUE(bare_.remove("copy", "b").ok());
  const Status s = copy.on(bare_.runtime)(out_.view, x_.view, 0);
  EXPECT_EQ(s.code(), Code::kKernelFailed);
  EXPECT_THAT(s.to_string(), HasSubstr("first"));
  EXPECT_THAT(s.to_string(), HasSubstr("second"));
}

// If the output is the input, a failed kernel may have changed it. No other kernel is tried, unless
// the kernel promises to fail before it writes.
TEST_F(Failures, ChangedInputsAreNotRetried) {
  kernel_.set({.after_writing = true, .code = YARD_FAULT});
  const auto on = copy.on(bare_.runtime);
  EXPECT_FALSE(on(x_.view, x_.view, 0).ok());
  EXPECT_TRUE(on(out_.view, x_.view, 0).ok());
  fault::FaultKernel careful({.op = "copy",
                              .id = "fault.a",
                              .backend = "test",
                              .priority = 900,
                              .flags = YARD_KERNEL_FAILS_BEFORE_WRITING},
                             {.code = YARD_FAULT});
  Changes c;
  c.replace_kernel(careful.descriptor());
  ASSERT_TRUE(bare_.runtime.apply(std::move(c)).ok());
  EXPECT_TRUE(on(x_.view, x_.view, 0).ok());
  EXPECT_EQ(t_ran, 2);
  Changes none;
  none.remove_kernel("copy", "fault.a");
  ASSERT_TRUE(bare_.runtime.apply(std::move(none)).ok());
}

TEST_F(Failures, ADeadlineIsAlsoKeptBetweenKernels) {
  kernel_.set({.delay = std::chrono::milliseconds(50), .code = YARD_FAULT, .message = "late"});
  Options o;
  o.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
  const Status s = call(o);
  EXPECT_EQ(s.code(), Code::kDeadline);
  EXPECT_EQ(t_ran, 0);
}

TEST_F(Failures, OrThrowThrowsTheStatus) {
  kernel_.set({.code = YARD_FATAL, .message = "broken"});
  try {
    call().or_throw();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status().error_class(), ErrorClass::kFatal);
    EXPECT_THAT(e.what(), HasSubstr("broken"));
  }
}

}  // namespace
}  // namespace yard::testing::options
