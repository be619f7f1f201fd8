// SPDX-License-Identifier: Apache-2.0
// Tests canaries as callers see them: results stay right although a kernel is wrong, breakers open,
// and dumps can be replayed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/log.h>
#include <yard/verify.h>

#include <atomic>
#include <filesystem>
#include <limits>
#include <mutex>
#include <thread>

#include "base/testing_files.h"
#include "fault.h"
#include "on_thread.h"
#include "testing.h"

namespace yard::testing {
namespace {

using base::eventually;
using fault::FaultKernel;
using ::testing::HasSubstr;

constexpr Op<void(Out, In, int)> copy{"copy"};
constexpr Op<void(InOut, In)> add{"add"};

std::atomic<bool> g_reference_declines{false};

int32_t real_copy(plugin::Call, plugin::Tensor out, plugin::Tensor x, int64_t) {
  for (int64_t i = 0; i < x.numel(); ++i) out.data<float>()[i] = x.data<float>()[i];
  return YARD_OK;
}
int32_t reference_copy(plugin::Call call, plugin::Tensor out, plugin::Tensor x, int64_t by) {
  return g_reference_declines ? YARD_DECLINED : real_copy(call, out, x, by);
}
int32_t real_add(plugin::Call, plugin::Tensor x, plugin::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] += y.data<float>()[i];
  return YARD_OK;
}

// Each op has a reference kernel and a fault kernel that comes first and fails as told.
class CanaryOf : public ::testing::Test {
 protected:
  CanaryOf() {
    Changes c;
    c.add_backend(backend_.descriptor()).add_op(op_of("add(x~: f32[n], y: f32[n])"));
    c.add_kernel(right_copy_).add_kernel(right_add_);
    c.add_kernel(copy_.descriptor()).add_kernel(add_.descriptor());
    bare_.runtime.apply(std::move(c)).or_throw();
    copy_.set({.delegate = &right_copy_});
    add_.set({.delegate = &right_add_});
  }
  ~CanaryOf() override { EXPECT_TRUE(bare_.runtime.reset().ok()); }

  void watch(std::vector<CanaryRule> rules, int64_t threshold = 5) {
    Config c;
    c.canary = std::move(rules);
    c.settings.breaker.failure_threshold = threshold;
    if (threshold > 5) c.settings.breaker.failure_percent = 0;
    ASSERT_TRUE(runtime().rules().set(c).ok());
  }
  // Makes the results of fault.copy wrong. The first wrong result opens the breaker, and one good
  // probe closes it.
  void watch_a_breaker(CanaryRule rule) {
    Config c;
    c.canary = {std::move(rule)};
    c.settings.breaker.cooldown = std::chrono::milliseconds(10);
    c.settings.breaker.failure_threshold = 1;
    c.settings.breaker.half_open_max_calls = 1;
    c.settings.breaker.success_threshold = 1;
    ASSERT_TRUE(runtime().rules().set(c).ok());
    copy_.set({.wrong_numbers = true, .delegate = &right_copy_});
    runtime().health().on_event([this](const BreakerEvent& e) {
      opened_ += e.kind == BreakerEvent::Kind::kOpened;
      closed_ += e.kind == BreakerEvent::Kind::kClosed;
    });
  }
  // Makes a call and returns whether its result is right.
  bool copies(int64_t n = 4) {
    std::vector<float> to(static_cast<size_t>(n), -1), from(static_cast<size_t>(n));
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
    const Status s = copy.on(runtime())(TensorView(to.data(), DType::f32, {n}),
                                        TensorView(from.data(), DType::f32, {n}), 0);
    return s.ok() && to == from;
  }
  bool is_out() {
    const Explanation e = runtime().explain("copy(f32[4])@cpu").value();
    for (const Candidate& c : e.candidates)
      if (c.id == "fault.copy") return c.reason == "unhealthy";
    return false;
  }
  Runtime& runtime() { return bare_.runtime; }
  CanaryReport::Kernel count(const std::string& kernel) {
    for (const CanaryReport::Kernel& c : runtime().health().canaries().kernels)
      if (c.kernel == kernel) return c;
    return {};
  }

  static yard_kernel_t reference(plugin::Kernel k) {
    return k.backend("test").kind(YARD_KIND_REFERENCE).d;
  }
  yard_kernel_t right_copy_ =
      reference(plugin::Kernel::of<reference_copy>("copy", "reference.cpp"));
  yard_kernel_t right_add_ = reference(plugin::Kernel::of<real_add>("add", "reference.cpp"));
  fault::FaultBackend backend_;
  FaultKernel copy_{{.op = "copy", .id = "fault.copy", .priority = 100}};
  FaultKernel add_{{.op = "add", .id = "fault.add", .priority = 100}};
  std::atomic<int> opened_{0}, closed_{0};
  Bare bare_;
};

TEST_F(CanaryOf, CallersGetRightResultsAndTheBreakerOpens) {
  watch({{.op = "copy"}});
  copy_.set({.wrong_numbers = true, .delegate = &right_copy_});
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(copies()) << i;
  EXPECT_TRUE(eventually([&] { return is_out(); }));
  Health health = runtime().health();
  health.set_settings(health.settings()).or_throw();  // returns after pending changes are published
  const uint64_t ran = copy_.calls();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(copies()) << i;
  EXPECT_EQ(copy_.calls(), ran);
  const CanaryReport report = runtime().health().canaries();
  ASSERT_EQ(report.mismatches.size(), 5u);
  const CanaryReport::Mismatch& m = report.mismatches[0];
  EXPECT_EQ(m.op, "copy");
  EXPECT_EQ(m.kernel, "fault.copy");
  EXPECT_EQ(m.against, "reference.cpp");
  EXPECT_EQ(m.found, m.expected + 1);
  EXPECT_THAT(m.call, HasSubstr("copy(f32[4]"));
  EXPECT_EQ(count("fault.copy").mismatches, 5u);
}

TEST_F(CanaryOf, TensorsWithoutStridesAreCopied) {
  watch({{.op = "copy"}});
  copy_.set({.wrong_numbers = true, .delegate = &right_copy_});
  float to[4] = {}, from[4] = {1, 2, 3, 4};
  int64_t shape[] = {4};
  yard_tensor_t out = TensorView(to, DType::f32, shape).c();
  yard_tensor_t x = TensorView(from, DType::f32, shape).c();
  out.shape = x.shape = shape, out.strides = x.strides = nullptr;
  yard_value_t out_value{}, x_value{};
  out_value.tag = x_value.tag = YARD_TAG_TENSOR;
  out_value.u.tensor = &out, x_value.u.tensor = &x;
  EXPECT_TRUE(runtime().call("copy", {{"out", Value(out_value)}, {"x", Value(x_value)}}).ok());
  EXPECT_EQ(to[3], 4);
  EXPECT_EQ(count("fault.copy").mismatches, 1u);
}

TEST_F(CanaryOf, CallsThatAreNotSampledAreNotRepaired) {
  watch({{.op = "add"}});
  copy_.set({.wrong_numbers = true, .delegate = &right_copy_});
  EXPECT_FALSE(copies());
}

TEST_F(CanaryOf, OneInNCallsIsChecked) {
  watch({{.op = "copy", .one_in = 10}}, 10'000);
  copy_.set({.wrong_numbers = true, .delegate = &right_copy_});
  int right = 0;
  for (int i = 0; i < 900; ++i) right += copies();
  EXPECT_NEAR(right, 90, 60);  // six standard deviations
  EXPECT_EQ(count("fault.copy").calls, 900u);
}

// All checked results are wrong. Calls that are not checked must not count as right.
TEST_F(CanaryOf, ABreakerOpensUnderASampledCanary) {
  for (const int64_t one_in : {2, 10}) {
    ASSERT_TRUE(runtime().health().reset("copy", "fault.copy").ok());
    watch({{.op = "copy", .one_in = one_in}});
    copy_.set({.wrong_numbers = true, .delegate = &right_copy_});
    EXPECT_TRUE(eventually([&] { return copies(), is_out(); })) << "one in " << one_in;
  }
}

// Right and wrong sizes share a breaker key, and the canary checks only some calls.
TEST_F(CanaryOf, AShareOfWrongResultsOpensTheBreaker) {
  watch({{.op = "copy", .one_in = 4}});
  copy_.set(
      {.when = [](const yard_value_t* args, uint32_t) { return args[0].u.tensor->shape[0] == 5; },
       .wrong_numbers = true,
       .delegate = &right_copy_});
  EXPECT_TRUE(eventually([&] { return copies(4), copies(5), is_out(); }));
  for (const KernelHealth& k : runtime().health().report().kernels) {
    if (k.kernel != "fault.copy") continue;
    ASSERT_EQ(k.failed_calls.size(), 1u);
    EXPECT_EQ(k.failed_calls[0].call, "copy(f32[5], by=0)@cpu");
  }
}

// An unchecked result says nothing about a probe, so probes are always checked.
TEST_F(CanaryOf, ProbesAreAlwaysChecked) {
  watch_a_breaker({.op = "copy", .one_in = 50});
  const auto call_some = [&] {
    for (int i = 0; i < 20; ++i) copies();
  };
  EXPECT_TRUE(eventually([&] { return call_some(), opened_ >= 4; }));
  EXPECT_EQ(closed_, 0);
  copy_.set({.delegate = &right_copy_});
  EXPECT_TRUE(eventually([&] { return call_some(), closed_ > 0; }));
}

// The reference kernel cannot serve the calls, so the canary cannot judge their results.
TEST_F(CanaryOf, AProbeThatCannotBeJudgedDoesNotCloseABreakerOfWrongResults) {
  watch_a_breaker({.op = "copy"});
  EXPECT_TRUE(eventually([&] { return copies(), opened_ > 0; }));
  const yard_kernel_t wrong = plugin::Kernel::of<real_copy>("copy", "wrong").d;
  copy_.set({.wrong_numbers = true, .delegate = &wrong});
  g_reference_declines = true;
  const uint64_t ran = copy_.calls();
  EXPECT_TRUE(eventually([&] { return copies(), copy_.calls() > ran + 5; }));  // probes
  EXPECT_EQ(closed_, 0);
  g_reference_declines = false;
  copy_.set({.delegate = &right_copy_});
  EXPECT_TRUE(eventually([&] { return copies(), closed_ > 0; }));
}

// The loop of layers has the period of the sampling. The wrong layer must still be found, on every
// thread.
TEST_F(CanaryOf, ALoopWithThePeriodOfTheSamplingIsChecked) {
  watch({{.op = "copy", .one_in = 8}}, 10'000);
  runtime().health().set_settings({.enabled = false}).or_throw();
  copy_.set(
      {.when = [](const yard_value_t* args, uint32_t) { return args[0].u.tensor->shape[0] == 3; },
       .wrong_numbers = true,
       .delegate = &right_copy_});
  for (int run = 0; run < 8; ++run) {
    const uint64_t before = count("fault.copy").mismatches;
    std::thread([&] {
      for (int i = 0; i < 400; ++i)
        for (int64_t layer = 1; layer <= 8; ++layer) copies(layer);
    }).join();
    EXPECT_GT(count("fault.copy").mismatches, before) << run;
  }
}

TEST_F(CanaryOf, LabelsAreInTheLogAndInDumps) {
  const base::TempFolder folder;
  std::mutex lock;
  std::string log;
  set_log_sink([&](const LogMessage& m) {
    const std::lock_guard l(lock);
    log += std::string(m.text) + "\n";
  });
  watch({{.op = "copy", .dump = folder / "dumps"}}, 1000);
  copy_.set({.wrong_numbers = true, .delegate = &right_copy_});
  Floats out(4), x(4);
  // A message is logged once, so each run uses another label.
  static int runs = 0;
  const std::string tenant = "B" + std::to_string(++runs);
  Options options;
  options.labels["tenant"] = tenant;
  ASSERT_TRUE(copy.on(runtime()).with(options)(out.view, x.view, 0).ok());
  {
    const ScopedPolicy in(Scope().label("tenant", "C"));
    ASSERT_TRUE(copies());
  }
  set_log_sink({});
  EXPECT_THAT(log, HasSubstr("tenant=" + tenant));
  const auto mismatches = [&] { return runtime().health().canaries().mismatches; };
  ASSERT_TRUE(eventually([&] { return !mismatches().at(1).dump.empty(); }));
  EXPECT_THAT(read_canary_dump(mismatches()[0].dump)->mismatch.call, HasSubstr("tenant=" + tenant));
  const CanaryDump dump = read_canary_dump(mismatches()[1].dump).value();
  EXPECT_THAT(dump.mismatch.call, HasSubstr("tenant=C"));
  EXPECT_FALSE(replay(runtime(), dump)->ok()) << "labels do not prevent it";
}

TEST_F(CanaryOf, AnOpInPlaceIsRepairedFromItsOriginalInputs) {
  watch({{.op = "add"}});
  add_.set({.wrong_numbers = true, .offset = 7, .delegate = &right_add_});
  Floats x(2), y(2);
  x.data = {1, 2}, y.data = {10, 20};
  EXPECT_TRUE(add.on(runtime())(x.view, y.view).ok());
  EXPECT_EQ(x.data, (std::vector<float>{11, 22}));
  EXPECT_EQ(runtime().health().canaries().mismatches.size(), 1u);
}

TEST_F(CanaryOf, StrictCallsAreRepairedToo) {
  watch({{.op = "copy"}});
  Policy strict;
  strict.strict = true;
  ASSERT_TRUE(runtime().set_policy(strict).ok());
  copy_.set({.wrong_numbers = true, .delegate = &right_copy_});
  EXPECT_TRUE(copies());
}

TEST_F(CanaryOf, OutputsThatAreNotFiniteGoToTheNextKernel) {
  watch({{.op = "*", .check = CanaryRule::Check::kFinite}});
  copy_.set({.wrong_numbers = true,
             .offset = std::numeric_limits<double>::infinity(),
             .delegate = &right_copy_});
  EXPECT_TRUE(copies());
  EXPECT_EQ(runtime().health().canaries().mismatches.at(0).against, "");
  // Without saved inputs the canary cannot retry the call.
  add_.set({.wrong_numbers = true,
            .offset = std::numeric_limits<double>::infinity(),
            .delegate = &right_add_});
  Floats x(2), y(2);
  const Status s = add.on(runtime())(x.view, y.view);
  EXPECT_THAT(s.to_string(), HasSubstr("x[0] is inf, and all inputs are finite"));
}

TEST_F(CanaryOf, APromiseToFailBeforeWritingDoesNotCoverWrongResults) {
  FaultKernel promises{{.op = "add",
                        .id = "fault.promises",
                        .priority = 200,
                        .flags = YARD_KERNEL_FAILS_BEFORE_WRITING},
                       {.wrong_numbers = true,
                        .offset = std::numeric_limits<double>::infinity(),
                        .delegate = &right_add_}};
  ASSERT_TRUE(bare_.add(promises.descriptor()).ok());
  watch({{.op = "*", .check = CanaryRule::Check::kFinite}}, 1000);
  Floats x(2), y(2);
  const auto adds = [&] {
    x.data = {1, 2}, y.data = {10, 20};
    return add.on(runtime())(x.view, y.view);
  };
  EXPECT_THAT(adds().to_string(), HasSubstr("x[0] is inf, and all inputs are finite"));
  EXPECT_EQ(add_.calls(), 0u);
  Policy saves;
  saves.retry_inplace = Policy::RetryInplace::kSave;
  ASSERT_TRUE(runtime().set_policy(saves).ok());
  EXPECT_TRUE(adds().ok());
  EXPECT_EQ(x.data, (std::vector<float>{11, 22}));
  EXPECT_EQ(promises.calls(), 2u);
  EXPECT_EQ(add_.calls(), 1u);
  // With `against`, the call returns the results of the other kernel without a retry.
  ASSERT_TRUE(runtime().set_policy({}).ok());
  watch({{.op = "add", .kernel = "fault.promises"}}, 1000);
  EXPECT_TRUE(adds().ok());
  EXPECT_EQ(x.data, (std::vector<float>{11, 22}));
  EXPECT_EQ(add_.calls(), 1u);
  ASSERT_TRUE(bare_.remove("add", "fault.promises").ok());
}

TEST_F(CanaryOf, ChangesOfHealthDoNotResetTheCount) {
  watch({{.op = "copy", .one_in = 4}}, 1);
  copy_.set({.wrong_numbers = true, .delegate = &right_copy_});
  uint64_t calls = 0;
  for (; copy_.corrupted() == 0 || count("fault.copy").mismatches == 0; ++calls) copies();
  ASSERT_TRUE(eventually([&] { return is_out(); }));
  ASSERT_TRUE(runtime().health().reset("copy", "fault.copy").ok());
  copy_.set({.delegate = &right_copy_});
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(copies());
  EXPECT_EQ(count("fault.copy").calls, calls + 40);
  EXPECT_GE(count("fault.copy").checked, 1u);
}

TEST_F(CanaryOf, ACanaryRunIsNotCheckedItself) {
  // The reference kernel calls another op that has a canary.
  static Runtime* nested = nullptr;
  nested = &runtime();
  const auto calls_add = +[](yard_call_t*, const yard_value_t* args, uint32_t) -> int32_t {
    Floats x(1), y(1);
    if (!add.on(*nested)(x.view, y.view).ok()) return YARD_FAULT;
    const plugin::Tensor out(args[0].u.tensor), in(args[1].u.tensor);
    for (int64_t i = 0; i < in.numel(); ++i) out.data<float>()[i] = in.data<float>()[i];
    return YARD_OK;
  };
  yard_kernel_t deep = kernel_of("copy", "deep", 0);
  deep.kind = YARD_KIND_REFERENCE, deep.run = calls_add;
  ASSERT_TRUE(bare_.add(deep).ok());
  watch({{.op = "copy", .kernel = "fault.*", .against = "deep"}, {.op = "add"}});
  EXPECT_TRUE(copies());
  EXPECT_EQ(count("fault.copy").checked, 1u);
  EXPECT_EQ(count("fault.add").calls, 0u);
  EXPECT_EQ(add_.calls(), 1u);
}

TEST_F(CanaryOf, CanariesEndWithTheirRules) {
  watch({{.op = "copy"}});
  EXPECT_TRUE(copies());
  ASSERT_TRUE(runtime().rules().set({}).ok());
  EXPECT_TRUE(copies());
  EXPECT_EQ(count("fault.copy").calls, 1u);
}

TEST_F(CanaryOf, ManyThreadsGetRightResults) {
  watch({{.op = "copy"}}, 10'000);
  copy_.set({.rate = 0.3, .wrong_numbers = true, .delegate = &right_copy_});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) wrong += !copies(1 + (i + t) % 9);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(count("fault.copy").checked, count("fault.copy").calls);
  EXPECT_EQ(count("fault.copy").mismatches, copy_.corrupted());
}

TEST_F(CanaryOf, ADumpCanBeReplayed) {
  const base::TempFolder folder;
  watch({{.op = "add", .dump = folder / "dumps", .dump_most = 2}}, 1000);
  add_.set({.wrong_numbers = true, .offset = 7, .delegate = &right_add_});
  for (int i = 0; i < 5; ++i) {
    Floats x(3), y(3);
    x.data = {1, 2, static_cast<float>(i)};
    ASSERT_TRUE(add.on(runtime())(x.view, y.view).ok());
    if (i >= 2) continue;
    ASSERT_TRUE(
        eventually([&] { return !runtime().health().canaries().mismatches.back().dump.empty(); }));
  }
  int files = 0;
  for (const auto& e : std::filesystem::directory_iterator(folder / "dumps")) files += e.exists();
  EXPECT_EQ(files, 2);
  // The first dumps are kept, later ones are not written.
  EXPECT_EQ(runtime().health().canaries().mismatches.back().dump, "");
  const CanaryDump dump =
      read_canary_dump(runtime().health().canaries().mismatches.at(1).dump).value();
  // A replay runs without the canary.
  const CanaryReplay wrong = replay(runtime(), dump).value();
  EXPECT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.kernel, "fault.add");
  EXPECT_EQ(wrong.difference.worst_found, wrong.difference.worst_expected + 7);
  EXPECT_TRUE(replay(runtime(), dump, "reference.cpp").value().ok());
  add_.set({.delegate = &right_add_});
  EXPECT_TRUE(replay(runtime(), dump).value().ok());
  EXPECT_THAT(replay(runtime(), dump, "nobody").status().to_string(), HasSubstr("has no kernel"));
}

TEST_F(CanaryOf, ADumpWithOtherInputsThanItsCallsIsRefused) {
  CanaryDump dump;
  dump.mismatch.op = "add", dump.mismatch.kernel = "fault.add";
  dump.mismatch.call = "add(f32[2], f32[2])@cpu";
  const std::string two(8, '\0');
  const auto said = [&] { return replay(runtime(), dump).status().to_string(); };
  dump.inputs = {{"x", two}};
  EXPECT_THAT(said(), HasSubstr("the contents of 'y' are missing"));
  dump.inputs = {{"x", two}, {"y", two + "a"}};
  EXPECT_THAT(said(), HasSubstr("invalid contents of 'y': expected 8 bytes, got 9"));
  dump.inputs = {{"x", two}, {"y", two}, {"z", two}};
  EXPECT_THAT(said(), HasSubstr("the call reads no tensor \"z\""));
  dump.inputs = {{"x", two}, {"y", two}, {"y", two}};
  EXPECT_THAT(said(), HasSubstr("the contents of 'y' are given twice"));
  dump.inputs = {{"x", two}, {"y", two}};
  EXPECT_TRUE(replay(runtime(), dump).ok());
  dump.mismatch.call = "add(f32[2], f32[2])@cuda";
  EXPECT_FALSE(replay(runtime(), dump).ok());
  dump.mismatch.call = "add(f32[1000000000000], f32[1000000000000])@cpu";
  EXPECT_FALSE(replay(runtime(), dump).ok());
}

}  // namespace
}  // namespace yard::testing
