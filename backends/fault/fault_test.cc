// SPDX-License-Identifier: Apache-2.0
// Tests each way to misbehave, alone and in combination.
#include "fault.h"

#include <algorithm>
#include <stdexcept>

#include "testing.h"

namespace yard::fault::testing {
namespace {

using namespace std::chrono_literals;

float scribbled() {
  float f;
  std::memset(&f, kScribble, sizeof f);
  return f;
}

class Fault : public ::testing::Test {
 protected:
  FaultKernel kernel{{.op = "copy", .id = "fault.a"}};
  yard_kernel_t d = kernel.descriptor();
  OneCall call;
};

TEST_F(Fault, DescriptorMatchesTheSpec) {
  const FaultKernel other({.op = "copy",
                           .id = "vendor.x",
                           .backend = "fault_acme",
                           .kind = YARD_KIND_VENDOR,
                           .priority = 7,
                           .flags = YARD_KERNEL_FAILS_BEFORE_WRITING});
  const yard_kernel_t o = other.descriptor();
  EXPECT_EQ(o.size, sizeof o);
  EXPECT_STREQ(o.op, "copy");
  EXPECT_STREQ(o.id, "vendor.x");
  EXPECT_STREQ(o.backend, "fault_acme");
  EXPECT_EQ(o.kind, YARD_KIND_VENDOR);
  EXPECT_EQ(o.priority, 7);
  EXPECT_EQ(o.flags, YARD_KERNEL_FAILS_BEFORE_WRITING);
  EXPECT_EQ(o.self, &other);
  EXPECT_EQ(o.typed, nullptr);
}

TEST_F(Fault, ServesWithAMarkerOrADelegate) {
  EXPECT_EQ(call(d), YARD_OK);
  EXPECT_EQ(call.out.data, Floats(4, 42));
  kernel.set({.marker = 7});
  EXPECT_EQ(call(d), YARD_OK);
  EXPECT_EQ(call.out.data, Floats(4, 7));
  kernel.set({.delegate = &real_copy()});
  EXPECT_EQ(call(d), YARD_OK);
  EXPECT_EQ(call.out.data, call.x.data);
  EXPECT_EQ(kernel.calls(), 3u);
  EXPECT_EQ(kernel.failures(), 0u);
}

TEST_F(Fault, AFailureOfTheDelegateIsReturned) {
  kernel.set({.delegate = &real_copy()});
  call.x.data[0] = -1;
  EXPECT_EQ(call(d), YARD_DECLINED);
  EXPECT_STREQ(call.error, "negative");
}

TEST_F(Fault, ADelegateGetsItsSelfPointer) {
  FaultKernel inner({.op = "copy", .id = "fault.inner"}, {.marker = 5});
  const yard_kernel_t its = inner.descriptor();
  kernel.set({.delegate = &its});
  EXPECT_EQ(call(d), YARD_OK);
  EXPECT_EQ(call.out.data, Floats(4, 5));
  EXPECT_EQ(inner.calls(), 1u);
}

TEST_F(Fault, FailsWithEveryCodeAndWritesNothing) {
  for (yard_code_t code :
       {YARD_CALLER, YARD_DECLINED, YARD_TRANSIENT, YARD_FAULT, YARD_DEVICE_LOST, YARD_FATAL}) {
    kernel.set({.code = code, .message = "code 100%"});
    EXPECT_EQ(call(d), code);
    EXPECT_STREQ(call.error, "code 100%");
    EXPECT_EQ(call.out.data, Floats(4, 0));
  }
  EXPECT_EQ(kernel.failures(), 6u);
}

TEST_F(Fault, FailsAfterWritingHalf) {
  kernel.set({.after_writing = true, .code = YARD_FAULT});
  EXPECT_EQ(call(d), YARD_FAULT);
  EXPECT_EQ(call.out.data, (Floats{scribbled(), scribbled(), 0, 0}));
  OneCall odd(3);
  EXPECT_EQ(odd(d), YARD_FAULT);
  EXPECT_EQ(odd.out.data, (Floats{scribbled(), scribbled(), 0}));
}

TEST_F(Fault, ThrowsThrough) {
  kernel.set({.after_writing = true, .throws = Throws::kStandard, .message = "boom"});
  try {
    call(d);
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "boom");
  }
  EXPECT_EQ(call.out.data[0], scribbled());
  kernel.set({.throws = Throws::kForeign});
  EXPECT_THROW(call(d), Foreign);
  EXPECT_EQ(kernel.failures(), 2u);
  EXPECT_EQ(kernel.active(), 0);
}

TEST_F(Fault, WrongNumbersLookLikeSuccess) {
  kernel.set({.wrong_numbers = true, .offset = 0.5, .delegate = &real_copy()});
  EXPECT_EQ(call(d), YARD_OK);
  EXPECT_EQ(call.out.data, (Floats{1.5, 2.5, 3.5, 4.5}));
  EXPECT_EQ(kernel.corrupted(), 1u);
  EXPECT_EQ(kernel.failures(), 0u);
}

TEST_F(Fault, FailsByRateTheSameWayEachTime) {
  const auto pattern = [](uint64_t seed, double rate) {
    FaultKernel k({.op = "copy", .seed = seed}, {.rate = rate, .code = YARD_FAULT});
    OneCall one;
    std::string result;
    for (int i = 0; i < 2000; ++i) result += one(k.descriptor()) == YARD_OK ? '.' : 'x';
    EXPECT_EQ(k.failures(), static_cast<uint64_t>(std::count(result.begin(), result.end(), 'x')));
    return result;
  };
  const std::string a = pattern(1, 0.25);
  EXPECT_EQ(a, pattern(1, 0.25));
  EXPECT_NE(a, pattern(2, 0.25));
  EXPECT_NEAR(static_cast<double>(std::count(a.begin(), a.end(), 'x')), 500, 80);
  EXPECT_EQ(pattern(3, 0), std::string(2000, '.'));
  EXPECT_EQ(pattern(3, 1), std::string(2000, 'x'));
}

TEST_F(Fault, FailsByShape) {
  kernel.set({.when = dim_at_least(1, -1, 100), .code = YARD_FAULT, .delegate = &real_copy()});
  OneCall small(99), large(100);
  EXPECT_EQ(small(d), YARD_OK);
  EXPECT_EQ(small.out.data, small.x.data);
  EXPECT_EQ(large(d), YARD_FAULT);
  // A call that lacks the argument or the axis is not picked.
  for (const Arguments& when :
       {dim_at_least(1, 1, 0), dim_at_least(1, -2, 0), dim_at_least(9, 0, 0)}) {
    kernel.set({.when = when, .code = YARD_FAULT});
    EXPECT_EQ(large(d), YARD_OK);
  }
}

TEST_F(Fault, IsSlowOnlyWhenPicked) {
  kernel.set({.when = dim_at_least(0, 0, 8), .delay = 20ms});
  OneCall large(8);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(large(d), YARD_OK);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 20ms);
  EXPECT_EQ(large.out.data, Floats(8, 42));
}

TEST_F(Fault, ACallbackRunsInsideAndMayFail) {
  int depth = 0;
  kernel.set({.callback = [&](yard_call_t*, const yard_value_t*, uint32_t count) {
    EXPECT_EQ(count, 2u);
    EXPECT_EQ(kernel.active(), ++depth);
    OneCall inner;
    return depth < 3 ? inner(d) : int32_t{YARD_OK};
  }});
  EXPECT_EQ(call(d), YARD_OK);
  EXPECT_EQ(kernel.calls(), 3u);
  kernel.set({.callback = [](yard_call_t* c, const yard_value_t*, uint32_t) {
    return plugin::Call(c).fail(YARD_TRANSIENT, "busy");
  }});
  EXPECT_EQ(call(d), YARD_TRANSIENT);
  EXPECT_STREQ(call.error, "busy");
  EXPECT_EQ(kernel.failures(), 1u);
}

TEST_F(Fault, ACallbackMayReplaceTheBehaviourItIsPartOf) {
  const std::string text(100, 'x');
  kernel.set({.callback = [&kernel = kernel, text](yard_call_t*, const yard_value_t*, uint32_t) {
    for (int i = 0; i < 3; ++i) kernel.set({.code = YARD_FAULT});
    return text == std::string(100, 'x') ? YARD_OK : YARD_FATAL;  // the capture is still there
  }});
  EXPECT_EQ(call(d), YARD_OK);
  EXPECT_EQ(call(d), YARD_FAULT);
}

TEST_F(Fault, OutputsAreWhatTheSpecNames) {
  FaultKernel none({.op = "copy", .outputs = {}}), second({.op = "copy", .outputs = {1, 5}});
  EXPECT_EQ(call(none.descriptor()), YARD_OK);
  EXPECT_EQ(call.out.data, Floats(4, 0));
  EXPECT_EQ(call(second.descriptor()), YARD_OK);
  EXPECT_EQ(call.out.data, Floats(4, 0));
  EXPECT_EQ(call.x.data, Floats(4, 42));
}

TEST(FaultBackend, ProbeReturnsTheConfiguredCode) {
  FaultBackend backend("fault_acme", "acme");
  const yard_backend_t d = backend.descriptor();
  EXPECT_STREQ(d.name, "fault_acme");
  EXPECT_STREQ(d.vendor, "acme");
  EXPECT_EQ(FaultBackend().descriptor().vendor, nullptr);
  yard_verdict_t why{};
  EXPECT_EQ(d.probe(d.self, nullptr, {1, 0}, &why), YARD_OK);
  EXPECT_EQ(why.reason, YARD_REASON_NONE);
  backend.set_available(false);
  EXPECT_EQ(d.probe(d.self, nullptr, {1, 0}, &why), YARD_OK);
  ASSERT_EQ(why.reason, YARD_REASON_OWN);
  EXPECT_STREQ(d.reasons[0], "switched off by the test");
  EXPECT_EQ(backend.probes(), 2u);
}

}  // namespace
}  // namespace yard::fault::testing
