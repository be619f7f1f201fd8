// SPDX-License-Identifier: Apache-2.0
// The table of reasons.
#include "select/reasons.h"

namespace yard::select {
namespace {

constexpr bool kByPolicy = true;

constexpr ReasonInfo kReasons[] = {
    {YARD_REASON_NONE, "none", "The kernel was not dropped.", false},
    {YARD_REASON_DENIED_KERNEL, "denied_kernel",
     "Its id matches a pattern in deny_kernels or in the call's deny list.", kByPolicy},
    {YARD_REASON_DENIED_VENDOR, "denied_vendor", "Its vendor is in deny_vendors.", kByPolicy},
    {YARD_REASON_NOT_ALLOWED_KERNEL, "not_allowed_kernel",
     "allow_kernels is set and no pattern in it matches its id.", kByPolicy},
    {YARD_REASON_NOT_ALLOWED_VENDOR, "not_allowed_vendor",
     "allow_vendors is set and does not list its vendor.", kByPolicy},
    {YARD_REASON_NOT_IN_ORDER, "not_in_order",
     "The op has an order of its own and no token in it names this kernel.", kByPolicy},
    {YARD_REASON_NOT_FORCED, "not_forced", "The call forces another kernel.", kByPolicy},
    {YARD_REASON_LOCKED_OUT, "locked_out", "The op is locked to another kernel.", kByPolicy},
    {YARD_REASON_DISABLED, "disabled", "Its backend is switched off.", kByPolicy},
    {YARD_REASON_UNAVAILABLE, "unavailable",
     "Its backend's probe said that the device cannot be used.", false},
    {YARD_REASON_CPU_FEATURE, "cpu_feature",
     "The processor lacks a feature it needs, or the operating system does not let programs use "
     "it.",
     false},
    {YARD_REASON_FORKED, "forked", "Its backend cannot be used in a forked child.", false},
    {YARD_REASON_DEVICE, "device", "The tensors are on another kind of device.", false},
    {YARD_REASON_DTYPE, "dtype", "It does not take this element type.", false},
    {YARD_REASON_RANK, "rank", "It does not take this number of dimensions.", false},
    {YARD_REASON_DIM_TOO_SMALL, "dim_too_small", "A dimension or integer is below its least.",
     false},
    {YARD_REASON_DIM_TOO_LARGE, "dim_too_large", "A dimension or integer is above its most.",
     false},
    {YARD_REASON_DIM_NOT_MULTIPLE, "dim_not_multiple",
     "A dimension or integer is not a multiple of what it needs.", false},
    {YARD_REASON_LAYOUT, "layout", "The strides of an argument are not such as it takes.", false},
    {YARD_REASON_ALIGNMENT, "alignment", "The data of an argument are not aligned enough.", false},
    {YARD_REASON_SCALAR, "scalar", "It does not take this value of a scalar argument.", false},
    {YARD_REASON_OPTIONAL_PRESENT, "optional_present",
     "It does not take an optional argument that is given.", false},
    {YARD_REASON_OPTIONAL_ABSENT, "optional_absent",
     "It needs an optional argument that is not given.", false},
    {YARD_REASON_NOT_DETERMINISTIC, "not_deterministic",
     "The call wants the same bits every time, which it does not promise.", false},
    {YARD_REASON_NOT_CAPTURE_SAFE, "not_capture_safe",
     "A graph is being captured, during which it must not run.", false},
    {YARD_REASON_INFERENCE_ONLY, "inference_only",
     "It serves inference only, and the call does not say that it is inference.", false},
    {YARD_REASON_VERIFIER_BROKEN, "verifier_broken", "Its verifier threw an exception.", false},
    {YARD_REASON_UNHEALTHY, "unhealthy",
     "Its circuit breaker is open for such calls, or their device is lost.", false},
    {YARD_REASON_REFERENCE_ONLY, "reference_only", "Policy allows reference kernels only.",
     kByPolicy},
    {YARD_REASON_OUTRANKED, "outranked", "It could run; another kernel comes before it.", false},
    {YARD_REASON_REFUSED, "refused", "Its verifier refused the call without saying more.", false},
    {YARD_REASON_NOT_MAPPED, "not_mapped",
     "Mode static serves the op's static kernel only, which this is not.", kByPolicy},
};
static_assert(sizeof kReasons / sizeof kReasons[0] == YARD_REASON_COUNT);

}  // namespace

std::span<const ReasonInfo> reasons() noexcept { return kReasons; }

std::string_view reason_name(int32_t code) noexcept {
  if (code >= 0 && code < YARD_REASON_COUNT) return kReasons[code].name;
  return code >= YARD_REASON_OWN ? "own" : "unknown";
}

bool is_policy_reason(int32_t code) noexcept {
  return code >= 0 && code < YARD_REASON_COUNT && kReasons[code].by_policy;
}

}  // namespace yard::select
