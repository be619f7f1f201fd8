// SPDX-License-Identifier: Apache-2.0
// Tests how plans run: the order of kernels, counters, and the errors of calls.
#include "exec/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "registry/testing.h"

namespace yard::exec {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct NoWhat : std::exception {
  const char* what() const noexcept override { return nullptr; }
};

// Sets what one kernel does, and counts its runs.
struct Actor {
  int32_t code = YARD_OK;
  std::string message;
  int thrown = 0;  // 1 a std::exception, 2 an int, 3 an exception without a text
  int ran = 0;
  static int32_t run(yard_call_t* call, const yard_value_t*, uint32_t) {
    auto& a = *static_cast<Actor*>(call->self);
    ++a.ran;
    if (a.thrown == 1) throw std::runtime_error(a.message);
    if (a.thrown == 2) throw 42;
    if (a.thrown == 3) throw NoWhat();
    if (!a.message.empty()) std::snprintf(call->error, call->error_size, "%s", a.message.c_str());
    return a.code;
  }
};

// A plan of up to three kernels k0, k1, k2.
struct Stage {
  static constexpr size_t kKernels = 3;
  Actor actors[kKernels];
  std::shared_ptr<registry::Kernel> kernels[kKernels];
  KernelStats stats[kKernels];
  std::shared_ptr<const op::Program> program = std::make_shared<const op::Program>(
      op::Program::compile("norm(out!: f32[n], x: f32[n])").value());
  mutable health::CallTable table;
  Request request{"norm", nullptr, nullptr, 0, 0, false, false, nullptr};

  explicit Stage(uint32_t flags = 0) {
    for (size_t i = 0; i < kKernels; ++i) {
      const std::string id = "k" + std::to_string(i);
      yard_kernel_t d = registry::testing::kernel_of("norm", id.c_str(), "plain");
      d.run = Actor::run, d.self = &actors[i], d.flags = flags;
      kernels[i] = registry::read_kernel(d, {}).value();
    }
  }
  Plan::Ptr plan(size_t count = kKernels) const {
    std::vector<Attempt> attempts;
    for (size_t i = 0; i < count; ++i) attempts.push_back({kernels[i].get(), &stats[i]});
    auto made = Plan::make(1, {}, attempts);
    const auto call = op::Call::from_spec(*program, op::parse_call_spec("norm(f32[8])").value());
    made->count_in(table.class_of("norm", program, call.value()));
    return made;
  }
  Status run(size_t count = kKernels) const {
    Outcome outcome;
    return execute(base::this_thread(), *plan(count), request, outcome);
  }
  std::vector<int> ran() const { return {actors[0].ran, actors[1].ran, actors[2].ran}; }
  std::vector<uint64_t> calls() const {
    return {table.totals("norm", "k0").calls, table.totals("norm", "k1").calls,
            table.totals("norm", "k2").calls};
  }
  std::vector<uint64_t> failures() const {
    return {table.totals("norm", "k0").failures, table.totals("norm", "k1").failures,
            table.totals("norm", "k2").failures};
  }
};

TEST(Execute, TheFirstKernelRunsAndIsCounted) {
  const Stage s;
  EXPECT_TRUE(s.run().ok());
  EXPECT_TRUE(s.run().ok());
  EXPECT_THAT(s.ran(), ElementsAre(2, 0, 0));
  EXPECT_THAT(s.calls(), ElementsAre(2, 0, 0));
  EXPECT_THAT(s.failures(), ElementsAre(0, 0, 0));
}

TEST(Execute, TheClassDecidesWhetherTheNextOneRuns) {
  const std::pair<int32_t, bool> classes[] = {{YARD_CALLER, false},      {YARD_DECLINED, true},
                                              {YARD_TRANSIENT, true},    {YARD_FAULT, true},
                                              {YARD_DEVICE_LOST, false}, {YARD_FATAL, false}};
  const auto gpu = std::make_shared<registry::Backend>();
  gpu->d.device_type = 2;
  for (const auto& [code, next] : classes) {
    Stage s;
    s.kernels[0]->backend = gpu;
    s.actors[0].code = code, s.actors[0].message = "said so";
    const Status status = s.run();
    EXPECT_THAT(s.ran(), ElementsAre(1, next ? 1 : 0, 0)) << code;
    EXPECT_THAT(s.failures(), ElementsAre(1, 0, 0));
    EXPECT_THAT(s.calls(), ElementsAre(0, next ? 1 : 0, 0));
    EXPECT_EQ(status.ok(), next);
    if (next) continue;
    EXPECT_EQ(status.error_class(), static_cast<ErrorClass>(code));
    EXPECT_EQ(status.code(), code == YARD_CALLER ? Code::kInvalidArgument : Code::kKernelFailed);
    EXPECT_THAT(status.to_string(),
                AllOf(HasSubstr("'k0'"), HasSubstr("'norm'"), HasSubstr("said so")));
  }
}

TEST(Execute, TheHostCannotBeLost) {
  Stage s;
  s.actors[0].code = YARD_DEVICE_LOST, s.actors[0].message = "said so";
  EXPECT_TRUE(s.run().ok());
  EXPECT_THAT(s.ran(), ElementsAre(1, 1, 0));
  s.request.strict = true;
  const Status alone = s.run();
  EXPECT_EQ(alone.error_class(), ErrorClass::kFault);
  EXPECT_THAT(alone.message(), AllOf(HasSubstr("said so"), HasSubstr("the host cannot be lost")));
}

TEST(Execute, FallsBackInOrderAndListsAllThatFailed) {
  Stage s;
  s.actors[0].code = YARD_DECLINED, s.actors[0].message = "too odd";
  s.actors[1].code = YARD_FAULT, s.actors[1].message = "broke";
  EXPECT_TRUE(s.run().ok());
  EXPECT_THAT(s.ran(), ElementsAre(1, 1, 1));
  EXPECT_THAT(s.calls(), ElementsAre(0, 0, 1));
  s.actors[2].code = YARD_TRANSIENT;
  const Status all = s.run();
  EXPECT_EQ(all.code(), Code::kKernelFailed);
  EXPECT_EQ(all.error_class(), ErrorClass::kTransient);  // of the last failure
  EXPECT_THAT(all.message(), HasSubstr("3 kernels were tried and failed"));
  ASSERT_EQ(all.notes().size(), 3u);
  EXPECT_THAT(all.notes()[0],
              AllOf(HasSubstr("'k0'"), HasSubstr("declined"), HasSubstr("too odd")));
  EXPECT_THAT(all.notes()[1], AllOf(HasSubstr("'k1'"), HasSubstr("fault"), HasSubstr("broke")));
  EXPECT_THAT(all.notes()[2], AllOf(HasSubstr("'k2'"), HasSubstr("it left no message")));
  // An error that forbids fallback ends the call. The message lists the kernels before it.
  s.actors[1].code = YARD_FATAL;
  const Status fatal = s.run();
  EXPECT_EQ(fatal.error_class(), ErrorClass::kFatal);
  EXPECT_THAT(fatal.to_string(), AllOf(HasSubstr("another may not be tried"), HasSubstr("'k0'"),
                                       HasSubstr("'k1'"), Not(HasSubstr("'k2'"))));
}

TEST(Execute, StrictMeansTheFirstOrItsError) {
  Stage s;
  s.request.strict = true;
  s.actors[0].code = YARD_DECLINED;
  EXPECT_EQ(s.run().error_class(), ErrorClass::kDeclined);
  EXPECT_THAT(s.ran(), ElementsAre(1, 0, 0));
}

TEST(Execute, NothingIsRetriedOnInputsThatMayBeDamaged) {
  const auto runs_next = [](uint32_t kernel_flags, bool writes_inputs, uint32_t call_flags) {
    Stage s(kernel_flags);
    s.request.writes_inputs = writes_inputs;
    s.request.flags = call_flags;
    s.actors[0].code = YARD_FAULT;
    const Status status = s.run();
    EXPECT_EQ(status.ok(), s.actors[1].ran == 1);
    return s.actors[1].ran == 1;
  };
  EXPECT_TRUE(runs_next(0, false, 0));
  EXPECT_FALSE(runs_next(0, true, 0));                   // `~` arguments
  EXPECT_FALSE(runs_next(0, false, YARD_CALL_ALIASED));  // an output over an input
  EXPECT_TRUE(runs_next(YARD_KERNEL_FAILS_BEFORE_WRITING, true, 0));
  EXPECT_TRUE(runs_next(YARD_KERNEL_FAILS_BEFORE_WRITING, false, YARD_CALL_ALIASED));
  EXPECT_TRUE(runs_next(0, false, YARD_CALL_DETERMINISTIC));
}

TEST(Execute, ExceptionsAreFaultsWithTheirText) {
  Stage s;
  s.actors[0].thrown = 1, s.actors[0].message = "index 9 is out of range";
  s.actors[1].thrown = 2;
  const Status status = s.run(2);
  EXPECT_EQ(status.error_class(), ErrorClass::kFault);
  EXPECT_THAT(status.notes()[0], HasSubstr("index 9 is out of range"));
  EXPECT_THAT(status.notes()[1], HasSubstr("not a std::exception"));
  EXPECT_THAT(s.failures(), ElementsAre(1, 1, 0));
}

TEST(Execute, TextsOfKernelsAreOneLineAndAnExceptionMayHaveNone) {
  Stage s;
  s.actors[0].thrown = 1, s.actors[0].message = "one\ntwo \x1b[31m";
  s.actors[1].code = YARD_FAULT, s.actors[1].message = "left\nforged: \x1b[2J";
  s.actors[2].thrown = 3;
  const Status status = s.run();
  ASSERT_EQ(status.notes().size(), 3u);
  EXPECT_THAT(status.notes()[0], HasSubstr("one; two \\x1b[31m"));
  EXPECT_THAT(status.notes()[1], HasSubstr("left; forged: \\x1b[2J"));
  EXPECT_THAT(status.notes()[2], HasSubstr("without a message"));
}

TEST(Execute, UnknownCodesAreFaults) {
  for (int32_t code : {-1, 7, 1000, INT32_MIN, INT32_MAX}) {
    Stage s;
    s.actors[0].code = code;
    const Status status = s.run(1);
    EXPECT_EQ(status.error_class(), ErrorClass::kFault);
    EXPECT_THAT(status.to_string(), HasSubstr("[it returned " + std::to_string(code) + "]"));
    EXPECT_TRUE(s.run(2).ok());
  }
}

TEST(Execute, ADeadlineKeepsKernelsFromStarting) {
  Stage s;
  Options o;
  ResultRecord record;
  s.request.options = &o;
  o.deadline = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  o.result = &record;
  const Status late = s.run();
  EXPECT_EQ(late.code(), Code::kDeadline);
  EXPECT_EQ(late.error_class(), ErrorClass::kTransient);
  EXPECT_THAT(s.ran(), ElementsAre(0, 0, 0));
  EXPECT_EQ(record.attempts, 0);
  EXPECT_STREQ(record.kernel, "");
  o.deadline = std::chrono::steady_clock::now() + std::chrono::hours(1);
  EXPECT_TRUE(s.run().ok());
  EXPECT_STREQ(record.kernel, "k0");
}

TEST(Execute, ADeadlineAlsoEndsFallbackAndReportsTheFailure) {
  Stage s;
  Options o;
  s.request.options = &o;
  s.actors[0].code = YARD_DECLINED, s.actors[0].message = "slow to say no";
  const auto sleepy = [](yard_call_t* call, const yard_value_t* args, uint32_t n) -> int32_t {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    return Actor::run(call, args, n);
  };
  s.kernels[0]->d.run = sleepy;
  o.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(40);
  const Status status = s.run();
  EXPECT_EQ(status.code(), Code::kDeadline);
  EXPECT_EQ(s.actors[1].ran, 0);
  if (s.actors[0].ran == 1) {  // else the machine was too slow to start even the first
    EXPECT_THAT(status.to_string(), HasSubstr("slow to say no"));
  }
}

TEST(Record, HasTheResult) {
  Stage s;
  Options o;
  ResultRecord record;
  o.result = &record;
  s.request.options = &o;
  ASSERT_TRUE(s.run().ok());
  EXPECT_STREQ(record.kernel, "k0");
  EXPECT_EQ(record.attempts, 1);
  EXPECT_EQ(record.fallback_from, 0);
  EXPECT_GE(record.run_ns, 0);
  record = {};
  s.actors[0].code = YARD_TRANSIENT, s.actors[1].code = YARD_FAULT;
  ASSERT_TRUE(s.run().ok());
  EXPECT_STREQ(record.kernel, "k2");
  EXPECT_EQ(record.attempts, 3);
  EXPECT_EQ(record.fallback_from, YARD_TRANSIENT);  // of the first failure
  record = {};
  s.actors[0].code = YARD_FATAL;
  EXPECT_FALSE(s.run().ok());
  EXPECT_STREQ(record.kernel, "k0");
  EXPECT_EQ(record.attempts, 1);
}

TEST(Record, HasWholeIds) {
  Stage s;
  Options o;
  ResultRecord record;
  o.result = &record;
  s.request.options = &o;
  s.kernels[0]->id = std::string(128, 'b');
  ASSERT_TRUE(s.run().ok());
  EXPECT_EQ(record.kernel, std::string(128, 'b'));
}

// Rejects some attempts, and records which ones were checked.
struct RejectSome final : AdmissionCheck {
  std::vector<size_t> rejected, checked;
  bool admits(size_t attempt) override {
    checked.push_back(attempt);
    return std::find(rejected.begin(), rejected.end(), attempt) == rejected.end();
  }
};

TEST(Admission, IsCheckedBeforeAnAttemptRunsAndSkipsRejectedOnes) {
  Stage s;
  RejectSome check;
  s.request.admission = &check;
  EXPECT_TRUE(s.run().ok());
  EXPECT_THAT(check.checked, ElementsAre(0));
  check.rejected = {0, 2};
  EXPECT_TRUE(s.run().ok());
  EXPECT_THAT(s.ran(), ElementsAre(1, 1, 0));
  s.actors[1].code = YARD_FAULT;
  EXPECT_FALSE(s.run().ok());
  EXPECT_THAT(s.ran(), ElementsAre(1, 2, 0));
  EXPECT_THAT(check.checked, ElementsAre(0, 0, 1, 0, 1, 2));
}

TEST(Admission, DoesNotStopTheLastAttempt) {
  Stage s;
  RejectSome check;
  check.rejected = {0, 1, 2};
  s.request.admission = &check;
  EXPECT_TRUE(s.run().ok());
  EXPECT_THAT(s.ran(), ElementsAre(0, 0, 1));
}

TEST(AfterFailure, RunsTheSecondKernel) {
  Stage s;
  const auto run_next = [&](int32_t code, size_t kernels = Stage::kKernels) {
    Outcome outcome;
    return execute_after_failure(base::this_thread(), *s.plan(kernels), s.request, code,
                                 "the first broke", outcome);
  };
  EXPECT_TRUE(run_next(YARD_FAULT).ok());
  EXPECT_THAT(s.ran(), ElementsAre(0, 1, 0));
  EXPECT_THAT(s.failures(), ElementsAre(1, 0, 0));
  EXPECT_THAT(run_next(YARD_CALLER).to_string(), HasSubstr("the first broke"));
  EXPECT_THAT(s.ran(), ElementsAre(0, 1, 0));
  EXPECT_THAT(run_next(YARD_FAULT, 1).to_string(), HasSubstr("the first broke"));
  s.actors[1].code = s.actors[2].code = YARD_FAULT;
  const Status all = run_next(YARD_FAULT);
  EXPECT_THAT(all.message(), HasSubstr("3 kernels"));
  EXPECT_THAT(all.notes()[0], HasSubstr("the first broke"));
  s.request.strict = true;
  EXPECT_EQ(run_next(YARD_DECLINED).error_class(), ErrorClass::kDeclined);
}

TEST(Failure, AMessageIsReadNoFurtherThanItsBuffer) {
  const Stage s;
  const std::string full(kErrorBytes, 'x');  // no NUL inside the buffer
  std::vector<char> buffer(full.begin(), full.end());
  const Status status = kernel_failure("norm", *s.kernels[0], YARD_FAULT, buffer.data());
  EXPECT_THAT(std::string(status.message()), ::testing::EndsWith(full));
  EXPECT_THAT(kernel_failure("norm", *s.kernels[0], YARD_FAULT, "").to_string(),
              HasSubstr("it left no message"));
}

}  // namespace
}  // namespace yard::exec
