// SPDX-License-Identifier: Apache-2.0
// Tests that every way in which a kernel can be wrong is found and named.
#include "verify/conformance.h"

#include <gmock/gmock.h>

#include <cmath>

#include "fault.h"
#include "verify/testing.h"

namespace yard::verification::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;

class Conformance : public ::testing::Test {
 protected:
  // Serves with the reference kernel, and misbehaves as told.
  KernelReport verify(fault::Behaviour b, uint32_t flags = 0, VerifyOptions options = {}) {
    b.delegate = &shelf.reference;
    kernel = std::make_unique<fault::FaultKernel>(
        fault::Spec{.op = "copy", .id = "fault.k", .flags = flags}, std::move(b));
    return shelf.verify(kernel->descriptor(), std::move(options));
  }
  static plugin::Tensor argument(const yard_value_t* args, int i) {
    return plugin::Tensor(args[i].u.tensor);
  }
  CopyOp shelf;
  std::unique_ptr<fault::FaultKernel> kernel;
};

std::string first_failure(const KernelReport& r) {
  return r.failures.empty() ? "nothing failed" : r.failures[0].what;
}

TEST_F(Conformance, ACorrectKernelPasses) {
  const KernelReport r = verify({}, YARD_KERNEL_DETERMINISTIC);
  EXPECT_EQ(r.failed, 0u) << first_failure(r);
  EXPECT_EQ(r.passed, 120u);  // 60 from the schema, 60 from its limits
  EXPECT_EQ(r.errors.size(), 120u);
  EXPECT_TRUE(r.verified());
  EXPECT_EQ(r.worst.error, 0);
  EXPECT_FALSE(r.worst.call.empty());
}

TEST_F(Conformance, TheReferenceKernelIsCheckedToo) {
  const KernelReport r = shelf.run({"reference.copy"}).at(0);
  EXPECT_EQ(r.passed, 60u) << first_failure(r);
}

TEST_F(Conformance, WrongNumbers) {
  const KernelReport r = verify({.wrong_numbers = true, .offset = 0.25});
  EXPECT_GT(r.failed, 30u);
  EXPECT_GT(r.worst.error, 1);
  EXPECT_THAT(first_failure(r), AllOf(HasSubstr("out["), HasSubstr("where the reference has")));
  EXPECT_THAT(r.worst.call, HasSubstr("copy("));
  EXPECT_LE(r.failures.size(), r.failed);
}

TEST_F(Conformance, WrongNumbersInFewCalls) {
  const KernelReport r = verify({.when = fault::dim_at_least(1, -1, 3000), .wrong_numbers = true});
  EXPECT_GT(r.failed, 0u);
  EXPECT_GT(r.passed, r.failed);
}

// Both terms of x - x cancel, so only a kernel's rounding errors remain.
constexpr const char* kCancel = "cancel(out!: f32[n], x: f32[n])";
void cancel(plugin::Call, plugin::Tensor out, plugin::Tensor x) {
  copy_with(out, x, [](double v) { return v - v; });
}
template <int kMillionths>
void cancel_nearly(plugin::Call, plugin::Tensor out, plugin::Tensor x) {
  copy_with(out, x, [](double v) { return v - v + v * kMillionths * 1e-6; });
}
void cancel_magnitude(plugin::Call, plugin::Tensor out, plugin::Tensor x) {
  copy_with(out, x, [](double v) { return 2 * std::fabs(v); });
}

TEST(Conformances, ErrorsAreRelativeToTheTermsThatTheOpStates) {
  using registry::testing::backend_of;
  const auto failed = [](const plugin::OpDef& op, const plugin::Kernel& kernel) {
    registry::testing::Shelf shelf;
    shelf.put(op.d, backend_of("plain"),
              plugin::Kernel::of<cancel>("cancel", "reference.cpp")
                  .backend("plain")
                  .kind(YARD_KIND_REFERENCE)
                  .d,
              kernel.d);
    VerifyOptions options;
    options.cases = 60, options.max_elements = 4096;
    std::vector<bool> used;
    return check_conformance({shelf.op_record("cancel"), {kernel.d.id}, {}}, options, used)
        .failed();
  };
  const plugin::OpDef plain(kCancel);
  const plugin::OpDef stated = plugin::OpDef(kCancel).magnitude<cancel_magnitude>();
  const auto kernel = []<auto F>() {
    return plugin::Kernel::of<F>("cancel", "quick").backend("plain");
  };
  EXPECT_GT(failed(plain, kernel.operator()<cancel_nearly<10>>()), 0u);
  EXPECT_EQ(failed(stated, kernel.operator()<cancel_nearly<10>>()), 0u);
  EXPECT_GT(failed(stated, kernel.operator()<cancel_nearly<40>>()), 0u);
}

TEST_F(Conformance, WritesOneElementPastTheEnd) {
  const KernelReport r = verify({.callback = [](yard_call_t*, const yard_value_t* args, uint32_t) {
    const plugin::Tensor out = argument(args, 0);
    if (!out.is_compact()) return int32_t{YARD_OK};
    const int64_t size = out.dtype() == YARD_F32 ? 4 : 2;
    std::memset(out.data<char>() + out.numel() * size, 1, static_cast<size_t>(size));
    return int32_t{YARD_OK};
  }});
  EXPECT_GT(r.failed, 20u);
  EXPECT_THAT(r.failures,
              Each(Field(&KernelReport::Case::what, HasSubstr("0 bytes after its last element"))));
  EXPECT_TRUE(std::isinf(r.worst.error));
}

TEST_F(Conformance, WritesBetweenElements) {
  const KernelReport r =
      verify({.callback =
                  [](yard_call_t*, const yard_value_t* args, uint32_t) {
                    const plugin::Tensor out = argument(args, 0);
                    if (out.rank() < 2 || out.numel() == 0 || out.size(0) < 2 ||
                        out.stride(0) <= out.size(1) || out.rank() > 2 || out.stride(1) != 1)
                      return int32_t{YARD_OK};
                    out.data<char>()[out.size(1) * (out.dtype() == YARD_F32 ? 4 : 2)] = 1;
                    return int32_t{YARD_OK};
                  }},
             0);
  EXPECT_GT(r.failed, 0u);
  EXPECT_THAT(r.failures,
              Each(Field(&KernelReport::Case::what, HasSubstr("between its elements"))));
}

TEST_F(Conformance, ChangesAnInput) {
  const KernelReport r = verify({.callback = [](yard_call_t*, const yard_value_t* args, uint32_t) {
    const plugin::Tensor out = argument(args, 0), x = argument(args, 1);
    if (x.numel() > 0 && x.c()->data != out.c()->data) x.data<char>()[0] ^= 1;
    return int32_t{YARD_OK};
  }});
  EXPECT_GT(r.failed, 20u);
  EXPECT_THAT(first_failure(r), HasSubstr("changed 'x', which is only read"));
}

TEST_F(Conformance, NotDeterministicDespiteItsFlag) {
  const fault::Behaviour b{.rate = 0.5, .wrong_numbers = true, .offset = 4e-6};
  const KernelReport r = verify(b, YARD_KERNEL_DETERMINISTIC);
  EXPECT_GT(r.failed, 10u);
  EXPECT_THAT(first_failure(r), HasSubstr("claims to be deterministic"));
}

TEST_F(Conformance, WithoutTheFlagBitsMayDiffer) {
  const KernelReport r = verify({.rate = 0.5, .wrong_numbers = true, .offset = 4e-6});
  EXPECT_EQ(r.failed, 0u) << first_failure(r);
  EXPECT_GT(r.worst.error, 0);
  EXPECT_LE(r.worst.error, 1);
}

TEST_F(Conformance, FailsByException) {
  for (const fault::Throws t : {fault::Throws::kStandard, fault::Throws::kForeign}) {
    CopyOp fresh;
    std::swap(shelf.shelf, fresh.shelf);
    const KernelReport r = verify({.throws = t, .message = "out of luck"});
    EXPECT_EQ(r.failed, 120u);
    EXPECT_THAT(first_failure(r),
                HasSubstr(t == fault::Throws::kStandard ? "out of luck" : "not a std::exception"));
  }
}

void nan_to_zero(plugin::Call, plugin::Tensor out, plugin::Tensor x) {
  copy_with(out, x, [](double v) { return std::isnan(v) ? 0 : v; });
}
void infinity_to_largest(plugin::Call, plugin::Tensor out, plugin::Tensor x) {
  copy_with(out, x, [](double v) { return std::isinf(v) ? std::copysign(3e38, v) : v; });
}
void reads_its_output(plugin::Call, plugin::Tensor out, plugin::Tensor x) {
  double first = 0;
  if (out.numel() > 0) first = load(TensorView(*out.c()).dtype(), out.data<char>());
  copy_with(out, x, [&](double v) { return v + first * 1e-30; });
}

// Takes compact f32 only, and reads one element past the end.
void reads_too_far(plugin::Call, plugin::Tensor out, plugin::Tensor x) {
  const float* from = x.data<float>();
  for (int64_t i = 0; i < x.numel(); ++i) out.data<float>()[i] = from[i] + 0 * from[i + 1];
}

KernelReport plain(CopyOp& shelf, plugin::Kernel k) { return shelf.verify(k.backend("plain").d); }

TEST_F(Conformance, NanTurnedIntoZero) {
  const KernelReport r = plain(shelf, plugin::Kernel::of<nan_to_zero>("copy", "default.nan"));
  EXPECT_GT(r.failed, 0u);
  EXPECT_THAT(first_failure(r), HasSubstr("is 0 where the reference has nan"));
  EXPECT_THAT(r.failures, Each(Field(&KernelReport::Case::contents, Contents::kNan)));
}

TEST_F(Conformance, InfinityTurnedIntoANumber) {
  const KernelReport r =
      plain(shelf, plugin::Kernel::of<infinity_to_largest>("copy", "default.inf"));
  EXPECT_GT(r.failed, 0u);
  EXPECT_THAT(r.failures, Each(Field(&KernelReport::Case::contents, Contents::kInfinity)));
}

TEST_F(Conformance, ReadingPastAnInputSpoilsTheResult) {
  const yard_limit_t limits[] = {plugin::dtypes({YARD_F32}), plugin::compact()};
  const KernelReport r =
      plain(shelf, plugin::Kernel::of<reads_too_far>("copy", "default.far").limits(limits));
  EXPECT_GT(r.failed, 5u);
  EXPECT_THAT(first_failure(r), HasSubstr("is nan where the reference has"));
}

TEST_F(Conformance, AKernelThatReadsItsOutputIsNotDeterministic) {
  const KernelReport r = plain(
      shelf,
      plugin::Kernel::of<reads_its_output>("copy", "default.old").flags(YARD_KERNEL_DETERMINISTIC));
  EXPECT_GT(r.failed, 0u);
}

TEST_F(Conformance, DecliningIsNotAFailure) {
  const KernelReport r = verify(
      {.when = fault::dim_at_least(1, -1, 100), .code = YARD_DECLINED, .message = "too wide"});
  EXPECT_EQ(r.failed, 0u);
  EXPECT_GT(r.declined, 0u);
  EXPECT_GT(r.passed, 0u);
  ASSERT_EQ(r.reasons.size(), 1u);
  EXPECT_EQ(r.reasons[0].reason, "declined");
  EXPECT_THAT(r.reasons[0].detail, HasSubstr("too wide"));
  EXPECT_EQ(r.reasons[0].count, r.declined);
}

TEST_F(Conformance, WritesDespiteFailingBeforeWriting) {
  const fault::Behaviour b{.after_writing = true, .code = YARD_DECLINED};
  const KernelReport r = verify(b, YARD_KERNEL_FAILS_BEFORE_WRITING);
  EXPECT_GT(r.failed, 0u);
  EXPECT_THAT(first_failure(r), HasSubstr("promised to fail before writing"));
}

TEST_F(Conformance, UnsupportedCallsAreSkippedWithTheReason) {
  const yard_limit_t limits[] = {plugin::dtypes({YARD_F32}), plugin::compact()};
  const KernelReport r =
      plain(shelf, plugin::Kernel::of<copy>("copy", "default.f32").limits(limits));
  EXPECT_EQ(r.passed + r.skipped, 120u);
  EXPECT_GT(r.passed, 70u);
  ASSERT_GE(r.reasons.size(), 2u);
  size_t counted = 0;
  for (const KernelReport::Reason& n : r.reasons) {
    EXPECT_TRUE(n.reason == "dtype" || n.reason == "layout") << n.reason;
    EXPECT_FALSE(n.detail.empty());
    counted += n.count;
  }
  EXPECT_EQ(counted, r.skipped);
}

// Behaves like a kernel that was written for the widths of a few models.
void nan_at_5120(plugin::Call, plugin::Tensor out, plugin::Tensor x) {
  const bool wrong = x.size(x.rank() - 1) == 5120;
  copy_with(out, x, [&](double v) { return wrong ? std::nan("") : v; });
}

KernelReport verify_alone(CopyOp& shelf, plugin::Kernel kernel, VerifyOptions options = {},
                          std::vector<op::Call> calls = {}) {
  shelf.shelf.put(kernel.backend("plain").d);
  std::vector<bool> used;
  options.progress = [](const VerifyOptions::Progress& p) {
    EXPECT_LT(p.done, p.cases);
    return true;
  };
  return check_conformance({shelf.shelf.op_record("copy"), {kernel.d.id}, {}, std::move(calls)},
                           options, used)
      .kernels.at(0);
}

TEST_F(Conformance, ANarrowKernelMeetsAHundredCallsAndAModelsSizeFindsItsFault) {
  const yard_limit_t limits[] = {plugin::dtypes({YARD_F32}), plugin::multiple_of("d", 128)};
  for (const uint64_t seed : {1, 2}) {
    CopyOp fresh, other;
    VerifyOptions options;
    options.seed = seed, options.cases = 100, options.max_elements = 1 << 13;
    const KernelReport good = verify_alone(
        fresh, plugin::Kernel::of<copy>("copy", "default.narrow").limits(limits), options);
    EXPECT_GE(good.ran(), kVerifiedRuns);
    EXPECT_TRUE(good.verified());
    const KernelReport bad = verify_alone(
        other, plugin::Kernel::of<nan_at_5120>("copy", "default.narrow").limits(limits), options);
    EXPECT_GT(bad.failed, 0u) << seed;
    EXPECT_THAT(bad.worst.call, HasSubstr("5120]"));
    EXPECT_FALSE(bad.verified());
  }
}

TEST_F(Conformance, BoundariesOfLimitsAreMet) {
  const yard_limit_t limits[] = {plugin::at_least("d", 48), plugin::at_most("d", 1000),
                                 plugin::multiple_of("d", 8)};
  for (const int64_t edge : {48, 1000}) {
    CopyOp fresh;
    const auto at_edge = [edge](const yard_value_t* args, uint32_t) {
      const plugin::Tensor x = argument(args, 1);
      return x.size(x.rank() - 1) == edge;
    };
    fault::FaultKernel k({.op = "copy", .id = "fault.edge"},
                         {.when = at_edge, .wrong_numbers = true, .delegate = &fresh.reference});
    yard_kernel_t d = k.descriptor();
    d.limits = limits, d.limit_count = 3;
    EXPECT_GT(fresh.verify(d).failed, 0u) << edge;
  }
}

TEST_F(Conformance, FewerThanAHundredRunsAreNotVerified) {
  VerifyOptions options;
  options.cases = 40, options.max_elements = 1024;
  const KernelReport r =
      verify_alone(shelf, plugin::Kernel::of<copy>("copy", "default.copy"), options);
  EXPECT_EQ(r.passed, 80u);
  EXPECT_EQ(r.failed, 0u);
  EXPECT_FALSE(r.verified());
}

TEST_F(Conformance, GivenCallsAreMadeWithEveryKindOfContents) {
  const op::Program program = op::Program::compile(kCopy).value();
  const auto call = [&](const char* text) {
    return op::Call::from_spec(program, op::parse_call_spec(text).value()).value();
  };
  const KernelReport r =
      verify_alone(shelf, plugin::Kernel::of<nan_at_5120>("copy", "default.narrow"), {},
                   {call("copy(f32[2,5120])"), call("copy(f32[2,64])")});
  EXPECT_EQ(r.ran(), 2 * all_contents().size());
  EXPECT_EQ(r.passed, all_contents().size());
  EXPECT_THAT(r.worst.call, HasSubstr("5120]"));
}

// out = x * by + bias, with an option and a weight.
struct Affine {
  explicit Affine(plugin::Named options) : by(options.number("by")) {}
  void load(plugin::Call, plugin::Named weights) { bias = weights.tensor("bias"); }
  double by;
  plugin::Tensor bias{nullptr};
};
template <bool kOption, bool kWeight>
void affine(plugin::Call call, plugin::Tensor out, plugin::Tensor x) {
  const Affine& a = *call.state<const Affine>();
  const int64_t d = x.rank() > 0 ? x.size(x.rank() - 1) : 1;
  for (int64_t i = 0; i < x.numel(); ++i)
    out.data<float>()[i] =
        static_cast<float>(double{x.data<float>()[i]} * (kOption ? a.by : 1.0) +
                           (kWeight && a.bias ? double{a.bias.data<float>()[i % d]} : 0.0));
}

class StatefulConformance : public ::testing::Test {
 protected:
  template <auto F>
  KernelReport verify(VerifyOptions options = {}) {
    registry::testing::Shelf shelf;
    const yard_limit_t limits[] = {plugin::compact()};
    const auto kernel = [&](auto k) {
      return plugin::with_state<Affine>(k.backend("plain").limits(limits), "by: float = 1.0",
                                        nullptr, "bias?: f32[d]")
          .d;
    };
    shelf.put(registry::testing::op_of("affine(out!: f32[*rows, d], x: f32[*rows, d])"),
              registry::testing::backend_of("plain"),
              kernel(plugin::Kernel::of<affine<true, true>>("affine", "reference.affine")
                         .kind(YARD_KIND_REFERENCE)),
              kernel(plugin::Kernel::of<F>("affine", "default.affine")));
    options.max_elements = 4096, options.cases = 50;
    std::vector<bool> used;
    return check_conformance({shelf.op_record("affine"), {"default.affine"}, {}}, options, used)
        .kernels.at(0);
  }
};

TEST_F(StatefulConformance, OptionsAndWeightsAreGeneratedFromWhatAKernelDeclares) {
  const KernelReport right = verify<affine<true, true>>();
  EXPECT_EQ(right.failed, 0u) << first_failure(right);
  EXPECT_GT(right.passed, 50u);
  const KernelReport option = verify<affine<false, true>>();
  EXPECT_GT(option.failed, 5u);
  EXPECT_THAT(option.failures[0].options, HasSubstr("by="));
  const KernelReport weight = verify<affine<true, false>>();
  EXPECT_GT(weight.failed, 20u);
  EXPECT_THAT(weight.failures[0].weights, HasSubstr("bias=f32["));
}

TEST_F(StatefulConformance, OptionsAndWeightsCanBeGiven) {
  VerifyOptions options;
  options.options = {{"by", 1.0}};
  EXPECT_EQ((verify<affine<false, true>>(options).failed), 0u);
  options.options = {{"by", 3.0}};
  const KernelReport r = verify<affine<false, true>>(options);
  EXPECT_GT(r.failed, 50u);
  EXPECT_EQ(r.failures[0].options, "by=3.0");
}

// Holds a copy of the argument `w`, which is loaded as a weight.
struct CopiedArgument {
  explicit CopiedArgument(plugin::Named) {}
  void load(plugin::Call, plugin::Named weights) {
    const plugin::Tensor w = weights.tensor("w");
    values.assign(w.data<float>(), w.data<float>() + w.numel());
  }
  std::vector<float> values;
};
void plus_copied(plugin::Call call, plugin::Tensor out, plugin::Tensor x, plugin::Tensor) {
  const auto& w = call.state<const CopiedArgument>()->values;
  for (int64_t i = 0; i < x.numel(); ++i)
    out.data<float>()[i] = x.data<float>()[i] + w[static_cast<size_t>(i)];
}
void plus(plugin::Call, plugin::Tensor out, plugin::Tensor x, plugin::Tensor w) {
  for (int64_t i = 0; i < x.numel(); ++i) out.at<float>(i) = x.at<float>(i) + w.at<float>(i);
}

TEST(StatefulArguments, AreLoadedFromTheCall) {
  registry::testing::Shelf shelf;
  const yard_limit_t limits[] = {plugin::compact()};
  shelf.put(
      registry::testing::op_of("plus(out!: f32[n], x: f32[n], w: f32[n])"),
      registry::testing::backend_of("plain"),
      plugin::Kernel::of<plus>("plus", "reference.plus")
          .backend("plain")
          .kind(YARD_KIND_REFERENCE)
          .d,
      plugin::with_state<CopiedArgument>(
          plugin::Kernel::of<plus_copied>("plus", "default.p").backend("plain").limits(limits),
          nullptr, nullptr, "w: f32[n]")
          .d);
  VerifyOptions options;
  options.max_elements = 4096, options.cases = 50;
  const auto run = [&](std::vector<op::Call> calls) {
    std::vector<bool> used;
    return check_conformance({shelf.op_record("plus"), {"default.p"}, {}, std::move(calls)},
                             options, used)
        .kernels.at(0);
  };
  const KernelReport made = run({});
  EXPECT_EQ(made.failed, 0u) << first_failure(made);
  EXPECT_EQ(made.passed, 50u);
  const op::Program& program = *shelf.op_record("plus")->op->program;
  const KernelReport given = run(
      {op::Call::from_spec(program, op::parse_call_spec("plus(f32[8], f32[8])@cpu+loaded").value())
           .value()});
  EXPECT_EQ(given.passed, all_contents().size());
}

TEST_F(Conformance, WithoutAReferenceEverythingIsSkipped) {
  registry::testing::Shelf bare;
  bare.put(registry::testing::op_of(kCopy), registry::testing::backend_of("plain"),
           plugin::Kernel::of<copy>("copy", "default.only").backend("plain").d);
  std::swap(bare, shelf.shelf);
  const KernelReport r = shelf.run({"default.only"}).at(0);
  EXPECT_EQ(r.ran(), 0u);
  ASSERT_EQ(r.reasons.size(), 1u);
  EXPECT_EQ(r.reasons[0].reason, "no_reference");
}

TEST_F(Conformance, TheSameSeedGivesTheSameReport) {
  const fault::Behaviour b{.wrong_numbers = true};
  const KernelReport one = verify(b);
  CopyOp fresh;
  std::swap(shelf.shelf, fresh.shelf);
  const KernelReport two = verify(b);
  EXPECT_EQ(one.worst.call, two.worst.call);
  EXPECT_EQ(one.errors, two.errors);
}

TEST_F(Conformance, CanBeCancelled) {
  std::vector<bool> used;
  VerifyOptions options;
  options.progress = [](const VerifyOptions::Progress& p) { return p.done < 5; };
  const VerifyReport report =
      check_conformance({shelf.shelf.op_record("copy"), {"reference.copy"}, {}}, options, used);
  EXPECT_TRUE(report.cancelled);
  EXPECT_EQ(report.kernels.at(0).passed, 5u);
}

VerifyOptions expecting(const char* text) {
  VerifyOptions o;
  o.expectations = parse_expectations(text, "list").value();
  return o;
}

TEST_F(Conformance, AnExpectedFailureDoesNotCount) {
  const KernelReport r =
      verify({.wrong_numbers = true}, 0, expecting("fault.* copy * : fails : off by one"));
  EXPECT_EQ(r.failed, 0u);
  EXPECT_GT(r.expected, 30u);
  EXPECT_EQ(r.reasons[0].reason, "expected");
  EXPECT_TRUE(shelf.used[0]);
}

TEST_F(Conformance, AnUnexpectedPassFails) {
  const KernelReport r = verify({}, 0, expecting("fault.k copy * : fails : was repaired"));
  EXPECT_EQ(r.failed, 1u);
  EXPECT_EQ(r.passed, 119u);
  EXPECT_THAT(first_failure(r),
              AllOf(HasSubstr("unexpected pass"), HasSubstr("line 1"), HasSubstr("was repaired")));
}

TEST_F(Conformance, AcceptingAnUnsupportedCallFails) {
  const KernelReport r =
      verify({}, 0, expecting("fault.k copy copy(bf16* : unsupported : only f32"));
  EXPECT_GT(r.failed, 10u);
  EXPECT_GT(r.passed, 10u);
  EXPECT_THAT(first_failure(r), HasSubstr("says unsupported: only f32"));
}

TEST_F(Conformance, ExpectationsCanMatchContents) {
  shelf.shelf.put(plugin::Kernel::of<nan_to_zero>("copy", "default.nan").backend("plain").d);
  const KernelReport r =
      shelf
          .run({"default.nan"}, expecting("default.nan * *contents=nan : fails : flushes\n"
                                          "vendor.no * * : fails : not there"))
          .at(0);
  EXPECT_EQ(r.failed, 0u) << first_failure(r);
  EXPECT_GT(r.expected, 0u);
  EXPECT_EQ(shelf.used, (std::vector<bool>{true, false}));
}

class SmokeTest : public ::testing::Test {
 protected:
  KernelReport run(fault::Behaviour b, uint32_t flags = 0) {
    b.delegate = &shelf.reference;
    kernel = std::make_unique<fault::FaultKernel>(
        fault::Spec{.op = "copy", .id = "fault.k", .flags = flags}, std::move(b));
    shelf.shelf.put(kernel->descriptor());
    VerifyOptions options;
    options.watch = [this](std::string_view, std::string_view id, const KernelReport::Case& c) {
      watched.push_back(std::string(id) + " " + c.call);
    };
    return run_smoke_test({shelf.shelf.op_record("copy"), {"fault.k"}, {}}, options).at(0);
  }
  static int32_t overstep(yard_call_t*, const yard_value_t* args, uint32_t) {
    const plugin::Tensor out(args[0].u.tensor);
    out.data<char>()[-1] = 77;
    return YARD_OK;
  }
  CopyOp shelf;
  std::unique_ptr<fault::FaultKernel> kernel;
  std::vector<std::string> watched;
};

TEST_F(SmokeTest, RunsEachKernelOnAFewCallsAndReportsEachBeforehand) {
  const KernelReport e = run({});
  EXPECT_EQ(e.failed, 0u);
  EXPECT_EQ(e.passed, 4u);
  ASSERT_EQ(watched.size(), 8u);  // the reference first: is the call one?
  EXPECT_THAT(watched[0], HasSubstr("reference.copy copy("));
  EXPECT_THAT(watched[1], HasSubstr("fault.k copy("));
}

TEST_F(SmokeTest, WrongResultsAreIgnored) {
  EXPECT_EQ(run({.wrong_numbers = true, .offset = 0.25}).failed, 0u);
}

TEST_F(SmokeTest, CallsThatFailHaveNeitherFailedTheTestNorPassed) {
  const KernelReport e = run({.callback = [](auto...) { return int32_t{YARD_FAULT}; }});
  EXPECT_EQ(e.failed, 0u);
  EXPECT_EQ(e.passed, 0u);
  ASSERT_EQ(e.reasons.size(), 1u);
  EXPECT_EQ(e.reasons[0].reason, "failed");
  EXPECT_EQ(e.reasons[0].count, 4u);
  VerifyReport report;
  report.kernels = {e};
  EXPECT_FALSE(report.ok()) << "no run passed";
}

TEST_F(SmokeTest, AnOutOfBoundsWriteIsFoundAtOnce) {
  const KernelReport e = run({.callback = overstep});
  ASSERT_EQ(e.failures.size(), 1u);
  EXPECT_THAT(e.failures[0].what, HasSubstr("out"));
  EXPECT_EQ(e.passed, 0u);
  EXPECT_THAT(watched.back(), HasSubstr("fault.k"));
}

TEST_F(SmokeTest, AnOpWithoutReferenceIsTestedToo) {
  registry::testing::Shelf bare;
  yard_kernel_t k = plugin::Kernel::of<copy>("copy", "default.copy").backend("plain").d;
  bare.put(registry::testing::op_of(kCopy), registry::testing::backend_of("plain"), k);
  EXPECT_EQ(run_smoke_test({bare.op_record("copy"), {"default.copy"}, {}}, {}).at(0).passed, 4u);
}

}  // namespace
}  // namespace yard::verification::testing
