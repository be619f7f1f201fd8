// SPDX-License-Identifier: Apache-2.0
// Tests which calls canaries check, and what they find. The test plays the kernel: between begin()
// and judge() it writes what a kernel would have written.
#include "verify/canary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/plugin.hpp>

#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "base/testing_files.h"
#include "registry/testing.h"
#include "verify/testing.h"

namespace yard::verification {
namespace {

using registry::testing::backend_of;
using registry::testing::kernel_of;
using registry::testing::op_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The ops are x += y and a list of copies.
constexpr const char* kAdd = "add(x~: f32[n], y: f32[n])";
constexpr const char* kSpread = "spread(outs!: f32[n][], x: f32[n])";

void add(plugin::Call, plugin::Tensor x, plugin::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] += y.data<float>()[i];
}
void spread(plugin::Call, plugin::TensorList outs, plugin::Tensor x) {
  for (const yard_tensor_t* out : outs)
    for (int64_t i = 0; i < x.numel(); ++i)
      plugin::Tensor(out).data<float>()[i] = x.data<float>()[i];
}

// Rounding may leave a remainder of 1000 * x - 1000 * x. The magnitude is the size of its terms.
void leave(plugin::Call, plugin::Tensor out, plugin::Tensor x) {
  testing::copy_with(out, x, [](double v) { return 1000 * v - 1000 * v; });
}
void leave_magnitude(plugin::Call, plugin::Tensor out, plugin::Tensor x) {
  testing::copy_with(out, x, [](double v) { return std::fabs(2000 * v); });
}

class CanaryTest : public ::testing::Test {
 protected:
  CanaryTest() {
    shelf_.put(plugin::OpDef("leave(out!: f32[n], x: f32[n])").magnitude<leave_magnitude>().d,
               backend_of("plain"), reference(plugin::Kernel::of<leave>("leave", "reference.cpp")),
               kernel_of("leave", "quick", "plain"));
    shelf_.put(op_of(testing::kCopy), op_of(kAdd), op_of(kSpread));
    shelf_.put(reference(plugin::Kernel::of<testing::copy>("copy", "reference.cpp")),
               reference(plugin::Kernel::of<add>("add", "reference.cpp")),
               reference(plugin::Kernel::of<spread>("spread", "reference.cpp")));
    for (const char* op : {"copy", "add", "spread"}) shelf_.put(kernel_of(op, "quick", "plain"));
  }

  static yard_kernel_t reference(plugin::Kernel k) {
    return k.backend("plain").kind(YARD_KIND_REFERENCE).d;
  }

  void watch(const std::string& op, CanaryRule rule = {}) {
    rule.op = op;
    record_ = shelf_.op_record(op);
    canary_ = make_canary({rule}, record_, {}, state_);
  }
  std::unique_ptr<registry::ResultCheck> begin(const std::vector<yard_value_t>& args,
                                               uint32_t flags = 0, const char* kernel = "quick") {
    return canary_->begin(
        {*record_->kernels.find(kernel)->second, *record_->op->program, args.data(), flags});
  }
  CanaryReport::Kernel count() { return state_->report().kernels.at(0); }

  registry::testing::Shelf shelf_;
  std::shared_ptr<const registry::OpRecord> record_;
  std::shared_ptr<CanaryState> state_ = std::make_shared<CanaryState>();
  std::shared_ptr<registry::ResultChecker> canary_;
};

struct Floats {
  Floats(std::initializer_list<float> v) : data(v) {}
  TensorView view() {
    return TensorView(data.data(), DType::f32, {static_cast<int64_t>(data.size())});
  }
  std::vector<float> data;
};

// A loop over layers makes calls with a period. Each of its calls must be checked at times, on
// every thread.
TEST_F(CanaryTest, SamplesAtRandom) {
  constexpr int kPeriod = 8, kRounds = 1000;
  watch("copy", {.one_in = kPeriod});
  Floats x{1}, out{0};
  const TensorView xv = x.view(), ov = out.view();
  const auto looked = [&] {
    std::vector<int> n(kPeriod);
    for (int i = 0; i < kPeriod * kRounds; ++i)
      n[static_cast<size_t>(i % kPeriod)] += begin({Value(ov).c(), Value(xv).c()}) != nullptr;
    return n;
  };
  std::vector<std::vector<int>> found(3);
  for (auto& to : found) std::thread([&] { to = looked(); }).join();
  // Each count is expected to be 125, with a standard deviation of about 10.
  for (const auto& of_thread : found)
    for (const int n : of_thread) EXPECT_NEAR(n, kRounds / kPeriod, 75);
  EXPECT_NE(found[0], found[1]);
  EXPECT_EQ(count().calls, 3u * kPeriod * kRounds);
}

TEST_F(CanaryTest, ACallCanBeCheckedAlways) {
  watch("copy", {.one_in = int64_t{1} << 40});
  Floats x{1}, out{0};
  const TensorView xv = x.view(), ov = out.view();
  const std::vector<yard_value_t> args = {Value(ov).c(), Value(xv).c()};
  registry::CheckedCall call{*record_->kernels.find("quick")->second, *record_->op->program,
                             args.data(), 0};
  EXPECT_EQ(canary_->begin(call), nullptr);
  call.always = true;
  for (int i = 0; i < 10; ++i) EXPECT_NE(canary_->begin(call), nullptr);
}

TEST_F(CanaryTest, ErrorsAreRelativeToTheTermsThatTheOpStates) {
  watch("leave");
  Floats x{1, 2}, out{0, 0};
  const TensorView xv = x.view(), ov = out.view();
  const auto found = [&](float first, float second) {
    auto look = begin({Value(ov).c(), Value(xv).c()});
    out.data = {first, second};
    bool repaired = false;
    return look->judge(repaired).ok();
  };
  EXPECT_TRUE(found(0.015f, 0.03f));
  EXPECT_FALSE(found(0.015f, 0.05f));
  EXPECT_FALSE(found(0.03f, 0.03f));
}

TEST_F(CanaryTest, LabelsArePartOfTheCall) {
  watch("copy");
  Floats x{1}, out{0};
  const TensorView xv = x.view(), ov = out.view();
  const std::vector<yard_value_t> args = {Value(ov).c(), Value(xv).c()};
  const op::Labels of_process = {{"region", "eu"}, {"tenant", "A"}};
  Options options;
  options.labels["tenant"] = "B";
  auto look = canary_->begin({*record_->kernels.find("quick")->second, *record_->op->program,
                              args.data(), 0, &of_process, &options});
  ASSERT_NE(look, nullptr);
  out.data = {2};
  bool repaired = false;
  const Status s = look->judge(repaired);
  EXPECT_THAT(std::string(s.message()), HasSubstr("{region=eu, tenant=B}"));
  EXPECT_TRUE(look->judged());
  EXPECT_THAT(state_->report().mismatches.at(0).call, HasSubstr("{region=eu, tenant=B}"));
}

TEST_F(CanaryTest, ThreadsWithFewCallsAreSampledToo) {
  watch("copy", {.one_in = 100});
  Floats x{1}, out{0};
  const TensorView xv = x.view(), ov = out.view();
  int looked = 0;
  for (int t = 0; t < 200; ++t)
    std::thread([&] {
      for (int i = 0; i < 50; ++i) looked += begin({Value(ov).c(), Value(xv).c()}) != nullptr;
    }).join();
  // 100 calls are expected. The odds of a count outside these limits are less than one in a
  // billion.
  EXPECT_GT(looked, 50);
  EXPECT_LT(looked, 150);
}

TEST_F(CanaryTest, AChangeOfTheOpKeepsTheCounters) {
  Floats x{1}, out{0};
  const TensorView xv = x.view(), ov = out.view();
  for (int i = 0; i < 30; ++i) {
    watch("copy", {.one_in = 10});
    begin({Value(ov).c(), Value(xv).c()});
  }
  EXPECT_EQ(count().calls, 30u);
}

TEST_F(CanaryTest, WrongResultsAreReportedAndRepaired) {
  watch("copy");
  Floats x{1, 2, 3}, out{0, 0, 0};
  const TensorView xv = x.view(), ov = out.view();
  auto look = begin({Value(ov).c(), Value(xv).c()});
  ASSERT_NE(look, nullptr);
  out.data = {1, 2.5, 3};
  bool repaired = false;
  const Status s = look->judge(repaired);
  EXPECT_EQ(s.error_class(), ErrorClass::kFault);
  EXPECT_THAT(std::string(s.message()),
              AllOf(HasSubstr("canary: out[1] is 2.5 where reference.cpp has 2"),
                    HasSubstr("in copy(f32[3]")));
  EXPECT_TRUE(repaired);
  EXPECT_EQ(out.data, x.data);
  const CanaryReport::Mismatch m = state_->report().mismatches.at(0);
  EXPECT_EQ(m.kernel, "quick");
  EXPECT_EQ(m.worst, "out[1]");
  EXPECT_EQ(m.found, 2.5);
  EXPECT_EQ(m.expected, 2);
  EXPECT_GT(m.error, 1);
  EXPECT_THAT(m.call, HasSubstr("copy(f32[3]"));
  EXPECT_EQ(m.dump, "");
  EXPECT_EQ(count().mismatches, 1u);
}

TEST_F(CanaryTest, RightResultsAreUnchanged) {
  watch("copy");
  Floats x{1, NAN, -HUGE_VALF}, out{0, 0, 0};
  const TensorView xv = x.view(), ov = out.view();
  auto look = begin({Value(ov).c(), Value(xv).c()});
  out.data = {1.000001f, NAN, -HUGE_VALF};  // the reference has NaN, too
  bool repaired = false;
  EXPECT_TRUE(look->judge(repaired).ok());
  EXPECT_FALSE(repaired);
  EXPECT_EQ(out.data[0], 1.000001f);
  EXPECT_EQ(count().checked, 1u);
  EXPECT_EQ(count().mismatches, 0u);
}

TEST_F(CanaryTest, NanWhereTheReferenceHasANumberIsWrong) {
  watch("copy");
  Floats x{1, 2}, out{0, 0};
  const TensorView xv = x.view(), ov = out.view();
  auto look = begin({Value(ov).c(), Value(xv).c()});
  out.data = {NAN, 2};
  bool repaired = false;
  EXPECT_FALSE(look->judge(repaired).ok());
  EXPECT_EQ(out.data, x.data);
}

TEST_F(CanaryTest, TheToleranceOfTheRuleApplies) {
  for (const double rtol : {0.5, 0.01}) {
    watch("copy", {.tolerance = {.rtol = rtol}});
    Floats x{1, 2}, out{0, 0};
    const TensorView xv = x.view(), ov = out.view();
    auto look = begin({Value(ov).c(), Value(xv).c()});
    out.data = {1.1f, 2};
    bool repaired = false;
    EXPECT_EQ(look->judge(repaired).ok(), rtol == 0.5);
  }
}

TEST_F(CanaryTest, StridesAreRespectedAndGapsUnchanged) {
  watch("copy");
  std::vector<float> x(12), out(24, -7.f);
  std::iota(x.begin(), x.end(), 1.f);
  const TensorView xv(x.data() + 8, DType::f32, {3, 4}, {-4, 1});
  const TensorView ov(out.data(), DType::f32, {3, 4}, {8, 2});
  auto look = begin({Value(ov).c(), Value(xv).c()});
  for (int i = 0; i < 24; i += 2) out[static_cast<size_t>(i)] = 99;
  bool repaired = false;
  EXPECT_FALSE(look->judge(repaired).ok());
  for (size_t r = 0; r < 3; ++r)
    for (size_t c = 0; c < 4; ++c) {
      EXPECT_EQ(out[8 * r + 2 * c], x[8 - 4 * r + c]);
      EXPECT_EQ(out[8 * r + 2 * c + 1], -7.f);
    }
}

TEST_F(CanaryTest, InPlaceResultsAreComputedFromTheSavedInputs) {
  watch("add");
  Floats x{1, 2}, y{10, 20};
  const TensorView xv = x.view(), yv = y.view();
  for (const bool right : {true, false}) {
    x.data = {1, 2};
    auto look = begin({Value(xv).c(), Value(yv).c()});
    x.data = {11, right ? 22.f : 2.f};
    bool repaired = false;
    EXPECT_EQ(look->judge(repaired).ok(), right);
    EXPECT_EQ(x.data, (std::vector<float>{11, 22}));
  }
  EXPECT_EQ(state_->report().mismatches.at(0).worst, "x[1]");
}

TEST_F(CanaryTest, AnAliasedOutputHasItsOwnMemoryInTheCopy) {
  watch("copy");
  Floats x{1, 2};
  const TensorView v = x.view();
  auto look = begin({Value(v).c(), Value(v).c()}, YARD_CALL_ALIASED);
  ASSERT_NE(look, nullptr);
  x.data = {5, 5};
  bool repaired = false;
  EXPECT_FALSE(look->judge(repaired).ok());
  EXPECT_EQ(x.data, (std::vector<float>{1, 2}));
  EXPECT_THAT(state_->report().mismatches.at(0).call, HasSubstr("out=&x"));
}

TEST_F(CanaryTest, EveryTensorOfAListIsCompared) {
  watch("spread");
  Floats x{1, 2}, a{0, 0}, b{0, 0};
  const TensorView xv = x.view(), av = a.view(), bv = b.view();
  const TensorList outs{av, bv};
  auto look = begin({Value(outs).c(), Value(xv).c()});
  a.data = {1, 2}, b.data = {1, 3};
  bool repaired = false;
  EXPECT_FALSE(look->judge(repaired).ok());
  EXPECT_EQ(b.data, x.data);
  EXPECT_EQ(state_->report().mismatches.at(0).worst, "outs[1][1]");
}

TEST_F(CanaryTest, EmptyTensorsPass) {
  for (const CanaryRule::Check check : {CanaryRule::Check::kValues, CanaryRule::Check::kFinite}) {
    watch("copy", {.check = check});
    const TensorView xv(static_cast<void*>(nullptr), DType::f32, std::vector<int64_t>{0, 4});
    const std::vector<yard_value_t> args{Value(xv).c(), Value(xv).c()};
    auto look = begin(args);
    ASSERT_NE(look, nullptr);
    bool repaired = false;
    EXPECT_TRUE(look->judge(repaired).ok());
  }
}

TEST_F(CanaryTest, FiniteInputsMustGiveFiniteOutputs) {
  watch("spread", {.check = CanaryRule::Check::kFinite});
  Floats x{1, 2}, a{0, 0}, b{0, 0};
  const TensorView xv = x.view(), av = a.view(), bv = b.view();
  const TensorList outs{av, bv};
  const std::vector<yard_value_t> args{Value(outs).c(), Value(xv).c()};
  bool repaired = false;
  EXPECT_TRUE(begin(args)->judge(repaired).ok());
  auto look = begin(args);
  b.data[1] = HUGE_VALF;
  const Status s = look->judge(repaired);
  EXPECT_THAT(std::string(s.message()), HasSubstr("outs[1][1] is inf, and all inputs are finite"));
  EXPECT_FALSE(repaired);  // the right result is unknown
  x.data[0] = NAN;
  EXPECT_EQ(begin(args), nullptr);
  EXPECT_EQ(count().skipped, 1u);
  EXPECT_EQ(count().why_skipped, "an input is not finite");
}

TEST_F(CanaryTest, TheReferenceKernelIsNotChecked) {
  watch("copy");
  Floats x{1}, out{0};
  const TensorView xv = x.view(), ov = out.view();
  EXPECT_EQ(begin({Value(ov).c(), Value(xv).c()}, 0, "reference.cpp"), nullptr);
  EXPECT_EQ(state_->report().kernels.size(), 1u);
}

TEST_F(CanaryTest, TracedAndCapturedCallsAreNotChecked) {
  watch("copy");
  Floats x{1}, out{0};
  const TensorView xv = x.view(), ov = out.view();
  for (const uint32_t flag : {YARD_CALL_TRACING, YARD_CALL_CAPTURING})
    EXPECT_EQ(begin({Value(ov).c(), Value(xv).c()}, flag), nullptr);
}

TEST_F(CanaryTest, DeviceMemoryIsNotCheckedAndReportedOnce) {
  watch("copy");
  float somewhere[4] = {};
  const TensorView v(static_cast<void*>(somewhere), DType::f32, std::vector<int64_t>{2}, {},
                     {2, 0});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(begin({Value(v).c(), Value(v).c()}), nullptr);
  ASSERT_EQ(state_->problems().size(), 1u);
  EXPECT_EQ(
      state_->problems()[0],
      "op 'copy': calls of kernel 'quick' are not checked: their tensors are not in host memory");
  EXPECT_EQ(count().skipped, 3u);
}

TEST_F(CanaryTest, AnOpWithoutAReferenceIsAProblem) {
  shelf_.put(op_of("alone(out!: f32[n], x: f32[n])"), kernel_of("alone", "quick", "plain"));
  watch("alone");
  EXPECT_EQ(canary_, nullptr);
  ASSERT_EQ(state_->problems().size(), 1u);
  EXPECT_THAT(state_->problems()[0], HasSubstr("the op has no reference kernel"));
  watch("alone", {.check = CanaryRule::Check::kFinite});
  EXPECT_NE(canary_, nullptr);
  EXPECT_TRUE(state_->problems().empty());
}

TEST_F(CanaryTest, ARuleForOtherOpsOrKernelsHasNoEffect) {
  const std::vector<CanaryRule> rules = {{.op = "add"}, {.op = "copy", .kernel = "other.*"}};
  EXPECT_EQ(make_canary(rules, shelf_.op_record("copy"), {}, state_), nullptr);
}

TEST_F(CanaryTest, InputsAreDumpedAsTheyWereBeforeTheKernelRan) {
  const base::TempFolder temp;
  watch("add", {.tolerance = {.rtol = 0.125}, .dump = temp / "dumps", .dump_most = 2});
  Floats x{1, 2}, y{10, 20};
  const TensorView xv = x.view(), yv = y.view();
  auto look = begin({Value(xv).c(), Value(yv).c()});
  x.data = {0, 0};
  bool repaired = false;
  EXPECT_FALSE(look->judge(repaired).ok());
  EXPECT_EQ(x.data, (std::vector<float>{11, 22}));
  std::string path;
  ASSERT_TRUE(
      base::eventually([&] { return !(path = state_->report().mismatches[0].dump).empty(); }));
  const CanaryDump d = read_canary_dump(path).value();
  EXPECT_EQ(d.mismatch.worst, "x[0]");
  EXPECT_EQ(d.rtol, 0.125);
  ASSERT_EQ(d.inputs.size(), 2u);
  const float before[] = {1, 2};
  EXPECT_EQ(d.inputs[0].name, "x");
  EXPECT_EQ(d.inputs[0].bytes, std::string(reinterpret_cast<const char*>(before), sizeof before));
}

TEST_F(CanaryTest, ADumpThatCannotBeWrittenIsAProblem) {
  const base::TempFolder temp;
  base::write_in_place(temp / "file", "");
  watch("add", {.check = CanaryRule::Check::kFinite, .dump = temp / "file"});
  Floats x{1}, y{1};
  const TensorView xv = x.view(), yv = y.view();
  const std::vector<yard_value_t> args{Value(xv).c(), Value(yv).c()};
  auto look = begin(args);
  x.data[0] = NAN;
  bool repaired = false;
  EXPECT_FALSE(look->judge(repaired).ok());
  EXPECT_TRUE(base::eventually([&] { return !state_->problems().empty(); }));
}

TEST_F(CanaryTest, OnlyTheLastMismatchesAreKept) {
  for (size_t i = 0; i < CanaryState::kMostMismatches + 10; ++i) {
    CanaryReport::Mismatch m;
    m.worst = std::to_string(i);
    state_->record(m, nullptr);
  }
  const CanaryReport r = state_->report();
  ASSERT_EQ(r.mismatches.size(), CanaryState::kMostMismatches);
  EXPECT_EQ(r.mismatches[0].worst, "10");
}

}  // namespace
}  // namespace yard::verification
