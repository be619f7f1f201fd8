// SPDX-License-Identifier: Apache-2.0
// Tests the filters that do not look at sizes: policy, the machine, probes and verifiers.
#include "select/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "select/testing.h"

namespace yard::select {
namespace {

using testing::backend_of;
using ::testing::ElementsAre;
using testing::Ring;

// Adds a default kernel, two kernels of vendors and the reference.
Ring full() {
  Ring r;
  r.add("default.a").add("vendor.acme", "acme", YARD_KIND_VENDOR);
  r.add("vendor.other", "other", YARD_KIND_VENDOR)
      .add("reference.cpp", "plain", YARD_KIND_REFERENCE);
  return r;
}

TEST(Filter, NothingSetKeepsAll) {
  const Ring r = full();
  for (const char* id : {"default.a", "vendor.acme", "vendor.other", "reference.cpp"})
    EXPECT_EQ(r.reason(id), YARD_REASON_NONE);
  EXPECT_FALSE(r.candidates().strict());
}

TEST(Filter, DeniedKernels) {
  Ring r = full();
  r.policy.deny_kernels = {"*.a*"};
  EXPECT_EQ(r.reason("default.a"), YARD_REASON_DENIED_KERNEL);
  EXPECT_EQ(r.reason("vendor.acme"), YARD_REASON_DENIED_KERNEL);
  EXPECT_EQ(r.reason("vendor.other"), YARD_REASON_NONE);
  r.policy = {};
  r.deny = {"vendor.*"};
  EXPECT_EQ(r.reason("vendor.other"), YARD_REASON_DENIED_KERNEL);
  EXPECT_EQ(r.reason("default.a"), YARD_REASON_NONE);
}

TEST(Filter, VendorListsTouchOnlyKernelsWithAVendor) {
  Ring r = full();
  r.policy.deny_vendors = {"acme"};
  EXPECT_EQ(r.reason("vendor.acme"), YARD_REASON_DENIED_VENDOR);
  EXPECT_EQ(r.reason("vendor.other"), YARD_REASON_NONE);
  r.policy.allow_vendors = {{"acme"}};
  EXPECT_EQ(r.reason("vendor.acme"), YARD_REASON_DENIED_VENDOR);  // deny beats allow
  EXPECT_EQ(r.reason("vendor.other"), YARD_REASON_NOT_ALLOWED_VENDOR);
  EXPECT_EQ(r.reason("default.a"), YARD_REASON_NONE);
  EXPECT_EQ(r.reason("reference.cpp"), YARD_REASON_NONE);
  r.policy = {};
  r.policy.allow_vendors.emplace();
  EXPECT_EQ(r.reason("vendor.acme"), YARD_REASON_NOT_ALLOWED_VENDOR);
  EXPECT_EQ(r.reason("default.a"), YARD_REASON_NONE);
}

TEST(Filter, AllowedKernels) {
  Ring r = full();
  r.policy.allow_kernels = {{"vendor.*", "reference.cpp"}};
  r.policy.deny_kernels = {"vendor.o*"};
  EXPECT_EQ(r.reason("default.a"), YARD_REASON_NOT_ALLOWED_KERNEL);
  EXPECT_EQ(r.reason("vendor.acme"), YARD_REASON_NONE);
  EXPECT_EQ(r.reason("vendor.other"), YARD_REASON_DENIED_KERNEL);
}

TEST(Filter, ForceAndLockObeyDeny) {
  Ring r = full();
  r.force = "vendor.acme";
  EXPECT_EQ(r.reason("default.a"), YARD_REASON_NOT_FORCED);
  EXPECT_THAT(r.order(), ElementsAre("vendor.acme"));
  r.policy.deny_vendors = {"acme"};
  EXPECT_EQ(r.reason("vendor.acme"), YARD_REASON_DENIED_VENDOR);
  EXPECT_TRUE(r.order().empty());
  r = full();
  r.policy.locks["norm"] = "vendor.acme";
  EXPECT_EQ(r.reason("reference.cpp"), YARD_REASON_LOCKED_OUT);
  EXPECT_THAT(r.order(), ElementsAre("vendor.acme"));
  r.policy.deny_kernels = {"vendor.acme"};
  EXPECT_TRUE(r.order().empty());
}

TEST(Filter, ReferenceOnly) {
  Ring r = full();
  r.policy.reference_only = true;
  EXPECT_EQ(r.reason("default.a"), YARD_REASON_REFERENCE_ONLY);
  EXPECT_THAT(r.order(), ElementsAre("reference.cpp"));
  r.policy.reference_only = false;
  EXPECT_EQ(r.order().size(), 4u);
}

TEST(Filter, SwitchesOfBackends) {
  Ring r = full();
  yard_backend_t off = backend_of("off");
  off.enable = YARD_ENABLE_OFF;
  r.shelf.put(off);
  r.add("default.off", "off");
  EXPECT_EQ(r.reason("default.off"), YARD_REASON_DISABLED);
  r.policy.backends["off"] = true;
  r.policy.backends["acme"] = false;
  EXPECT_EQ(r.reason("default.off"), YARD_REASON_NONE);
  EXPECT_EQ(r.reason("vendor.acme"), YARD_REASON_DISABLED);
}

TEST(Filter, FeaturesOfTheProcessor) {
  Ring r;
  const auto needs = [&](const char* id, const char* features) {
    r.add(id, "plain", YARD_KIND_DEFAULT, [&](yard_kernel_t& d) { d.features = features; });
  };
#if defined(__x86_64__)
  needs("default.here", "sse2");
  needs("default.elsewhere", "sse2 neon");
#else
  needs("default.here", "neon");
  needs("default.elsewhere", "neon sse2");
#endif
  EXPECT_EQ(r.reason("default.here"), YARD_REASON_NONE);
  EXPECT_EQ(r.reason("default.elsewhere"), YARD_REASON_CPU_FEATURE);
  EXPECT_EQ(r.note("default.elsewhere").verdict.figures[0], 1);  // the second feature
}

TEST(Filter, BackendsThatCannotSurviveFork) {
  Ring r = full();
  yard_backend_t b = backend_of("threads");
  b.flags = YARD_BACKEND_FORK_UNSAFE;
  r.shelf.put(b);
  r.add("default.threads", "threads");
  EXPECT_EQ(r.reason("default.threads"), YARD_REASON_NONE);
  r.process.forked = true;
  EXPECT_EQ(r.reason("default.threads"), YARD_REASON_FORKED);
  EXPECT_EQ(r.reason("default.a"), YARD_REASON_NONE);
}

TEST(Filter, Devices) {
  Ring r = full();
  yard_backend_t b = backend_of("cuda", "nvidia");
  b.device_type = 2;
  r.shelf.put(b);
  r.add("vendor.cuda", "cuda", YARD_KIND_VENDOR);
  EXPECT_EQ(r.reason("vendor.cuda"), YARD_REASON_DEVICE);
  EXPECT_EQ(r.reason("vendor.cuda", "norm(f32[4,64])@cuda:1"), YARD_REASON_NONE);
  EXPECT_EQ(r.reason("default.a", "norm(f32[4,64])@cuda:1"), YARD_REASON_DEVICE);
}

// ---- Probes ------------------------------------------------------------------------------------

int g_probed = 0;

Ring probing(decltype(yard_backend_t::probe) probe) {
  static const char* const texts[] = {"no driver", "driver {0} is older than {1}"};
  Ring r;
  yard_backend_t b = backend_of("probing");
  b.probe = probe, b.reasons = texts, b.reason_count = 2;
  r.shelf.put(b);
  r.add("default.p", "probing").add("default.q", "probing");
  g_probed = 0;
  return r;
}

TEST(Probe, IsAskedOncePerDeviceAndOnlyWhenNeeded) {
  Ring r = probing([](void*, const yard_host_t*, yard_device_t, yard_verdict_t*) -> int32_t {
    return ++g_probed, YARD_OK;
  });
  r.policy.deny_kernels = {"*"};
  EXPECT_TRUE(r.order().empty());
  EXPECT_EQ(g_probed, 0);
  r.policy = {};
  EXPECT_EQ(r.order().size(), 2u);
  EXPECT_EQ(r.order().size(), 2u);
  EXPECT_EQ(g_probed, 1);
}

TEST(Probe, RefusalsOfEverySort) {
  using Answer = decltype(yard_backend_t::probe);
  const std::pair<Answer, const char*> answers[] = {
      {[](void*, const yard_host_t*, yard_device_t, yard_verdict_t* why) -> int32_t {
         why->reason = YARD_REASON_OWN + 1, why->figures[0] = 11, why->figures[1] = 12;
         return YARD_DECLINED;
       },
       "driver 11 is older than 12"},
      {[](void*, const yard_host_t*, yard_device_t, yard_verdict_t* why) -> int32_t {
         return why->reason = YARD_REASON_OWN, YARD_OK;  // a reason is always a refusal
       },
       "no driver"},
      {[](void*, const yard_host_t*, yard_device_t, yard_verdict_t* why) -> int32_t {
         return why->reason = YARD_REASON_OWN + 9, YARD_DECLINED;
       },
       "its own reason 9"},
      {[](void*, const yard_host_t*, yard_device_t, yard_verdict_t* why) -> int32_t {
         return why->reason = YARD_REASON_CPU_FEATURE, YARD_DECLINED;
       },
       "lacks a feature"},
      {[](void*, const yard_host_t*, yard_device_t, yard_verdict_t*) -> int32_t {
         return YARD_DEVICE_LOST;
       },
       "its probe returned 5"},
      {[](void*, const yard_host_t*, yard_device_t, yard_verdict_t*) -> int32_t {
         throw std::runtime_error("cannot open the device");
       },
       "cannot open the device"},
      {[](void*, const yard_host_t*, yard_device_t, yard_verdict_t*) -> int32_t { throw 1; },
       "an exception that is not a std::exception"},
  };
  for (const auto& [answer, text] : answers) {
    const Ring r = probing(answer);
    EXPECT_EQ(r.reason("default.p"), YARD_REASON_UNAVAILABLE);
    EXPECT_THAT(r.note("default.p").text, ::testing::HasSubstr(text));
  }
}

// ---- Verifiers ---------------------------------------------------------------------------------

Ring verifying(decltype(yard_kernel_t::verify) verify, const char* const* reads = nullptr) {
  Ring r;
  r.add("default.v", "plain", YARD_KIND_DEFAULT,
        [&](yard_kernel_t& d) { d.verify = verify, d.verify_reads = reads; });
  return r;
}

TEST(Verifier, SeesTheCallAndNoData) {
  static const char* const reads[] = {"hidden", "x", "rows", "groups", nullptr};
  const Ring r = verifying(
      [](const yard_query_t* q, yard_verdict_t* v) -> int32_t {
        EXPECT_EQ(q->size, sizeof *q);
        EXPECT_EQ(q->count, 5u);
        EXPECT_EQ(q->flags, YARD_CALL_DETERMINISTIC);
        EXPECT_EQ(q->args[1].u.tensor->data, nullptr);
        EXPECT_EQ(q->args[2].tag, uint32_t{YARD_TAG_NONE});
        EXPECT_EQ(q->device.type, 1);
        EXPECT_EQ(q->read[0], 64);
        EXPECT_EQ(q->read[1], INT64_MIN);  // the field is not an integer
        EXPECT_EQ(q->read[2], 4);
        EXPECT_EQ(q->read[3], 2);
        EXPECT_EQ(v->reason, YARD_REASON_NONE);
        EXPECT_TRUE(inside_select());
        return YARD_OK;
      },
      reads);
  Ring deterministic = r;
  deterministic.shelf.apply({registry::RemoveKernel{"norm", "default.v"}});
  const auto kernel = r.shelf.kernel("norm", "default.v");
  yard_kernel_t d = kernel->d;  // lacks texts and lists, which the record has
  d.op = "norm", d.id = "default.v", d.backend = kernel->backend_name.c_str();
  d.verify_reads = reads, d.flags = YARD_KERNEL_DETERMINISTIC, d.typed_signature = nullptr;
  deterministic.shelf.put(d);
  EXPECT_EQ(deterministic.reason("default.v", "norm(f32[4,64], groups=2)@cpu+deterministic"),
            YARD_REASON_NONE);
  EXPECT_FALSE(inside_select());
}

TEST(Verifier, RefusesWithItsOwnReasonAndFigures) {
  const Ring r = verifying([](const yard_query_t*, yard_verdict_t* v) -> int32_t {
    v->reason = YARD_REASON_OWN + 3, v->figures[1] = 7;
    return YARD_OK;
  });
  EXPECT_EQ(r.reason("default.v"), YARD_REASON_OWN + 3);
  EXPECT_EQ(r.note("default.v").verdict.figures[1], 7);
}

TEST(Verifier, ACodeAloneIsARefusal) {
  const Ring r =
      verifying([](const yard_query_t*, yard_verdict_t*) -> int32_t { return YARD_DECLINED; });
  EXPECT_EQ(r.reason("default.v"), YARD_REASON_REFUSED);
}

TEST(Verifier, ThatThrowsIsBroken) {
  const Ring std_exception = verifying([](const yard_query_t*, yard_verdict_t* v) -> int32_t {
    v->reason = YARD_REASON_OWN;
    throw std::out_of_range("index 9");
  });
  EXPECT_EQ(std_exception.reason("default.v"), YARD_REASON_VERIFIER_BROKEN);
  EXPECT_EQ(std_exception.note("default.v").text, "index 9");
  struct NoWhat : std::exception {
    const char* what() const noexcept override { return nullptr; }
  };
  const Ring no_text =
      verifying([](const yard_query_t*, yard_verdict_t*) -> int32_t { throw NoWhat(); });
  EXPECT_EQ(no_text.reason("default.v"), YARD_REASON_VERIFIER_BROKEN);
  EXPECT_NE(no_text.note("default.v").text.find("without a message"), std::string::npos);
  const Ring other = verifying([](const yard_query_t*, yard_verdict_t*) -> int32_t { throw 1; });
  EXPECT_EQ(other.reason("default.v"), YARD_REASON_VERIFIER_BROKEN);
  EXPECT_FALSE(inside_select());
}

}  // namespace
}  // namespace yard::select
