// SPDX-License-Identifier: Apache-2.0
#include "select/reasons.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

namespace yard::select {
namespace {

constexpr ReasonInfo kReasons[] = {
    {"none", "The kernel was not dropped."},
    {"denied_kernel", "Its id matches a pattern in deny_kernels or in the call's deny list."},
    {"denied_vendor", "Its vendor is in deny_vendors."},
    {"not_allowed_kernel", "allow_kernels is set and no pattern in it matches its id."},
    {"not_allowed_vendor", "allow_vendors is set and does not list its vendor."},
    {"not_in_order", "The op has an order of its own and no token in it names this kernel."},
    {"not_forced", "The call forces another kernel."},
    {"locked_out", "The op is locked to another kernel."},
    {"disabled", "Its backend is switched off."},
    {"unavailable", "Its backend's probe said that the device cannot be used."},
    {"cpu_feature",
     "The processor lacks a feature it needs, or the operating system does not let programs use "
     "it."},
    {"forked", "Its backend cannot be used in a forked child."},
    {"device", "The tensors are on another kind of device."},
    {"dtype", "It does not take this element type."},
    {"rank", "It does not take this number of dimensions."},
    {"dim_too_small", "A dimension or integer is below its least."},
    {"dim_too_large", "A dimension or integer is above its most."},
    {"dim_not_multiple", "A dimension or integer is not a multiple of what it needs."},
    {"layout", "The strides of an argument are not such as it takes."},
    {"alignment", "The data of an argument are not aligned enough."},
    {"scalar", "It does not take this value of a scalar argument."},
    {"optional_present", "It does not take an optional argument that is given."},
    {"optional_absent", "It needs an optional argument that is not given."},
    {"not_deterministic",
     "The call requires the same bits every time, which it does not guarantee."},
    {"not_capture_safe", "A graph is being captured, during which it must not run."},
    {"inference_only", "It serves inference only, and the call does not say that it is inference."},
    {"verifier_broken", "Its verifier threw an exception."},
    {"unhealthy", "Its circuit breaker is open for such calls, or their device is lost."},
    {"reference_only", "Policy allows reference kernels only."},
    {"outranked", "It could run; another kernel comes before it."},
    {"refused", "Its verifier refused the call without saying more."},
    {"not_mapped", "Mode static serves the op's static kernel only, which this is not."},
    {"device_feature", "The program has not stated a feature that it needs of the device."},
    {"transform",
     "An argument must be transformed for it, which policy forbids or the host cannot do."},
    {"not_loaded", "It needs loaded weights, and the call is of no instance that has loaded any."},
};
static_assert(sizeof kReasons / sizeof kReasons[0] == YARD_REASON_COUNT);

// The figures are the indices of the feature and of the device. A negative one means any device.
std::string feature_text(const registry::Kernel& k, const int64_t figures[3]) {
  const registry::Feature& n = k.needs[static_cast<size_t>(figures[0])];
  if (n.of_processor()) return fmt::format("needs {}, which this machine does not offer", n.text);
  const Device type{n.device.type, 0};
  return fmt::format(
      "needs {}, which the program has not stated{} (Plugins::state_device_features)", n.text,
      figures[1] < 0 ? "" : fmt::format(" of {}:{}", to_string(type), figures[1]));
}

std::string dtypes_text(int64_t mask) {
  std::vector<std::string> names;
  for (int i = 1; i < 63; ++i)
    if (((static_cast<uint64_t>(mask) >> i) & 1) != 0)
      names.push_back(to_string(static_cast<DType>(i)));
  return fmt::format("{}", fmt::join(names, ", "));
}

// For reasons other than a failed limit, returns the meaning of the reason.
std::string limit_text(const CandidateSet& candidates, const KernelCandidate& c,
                       const yard_verdict_t& v) {
  const auto index = static_cast<size_t>(v.figures[0]), arg = static_cast<size_t>(v.figures[2]);
  const bool of_limit = v.reason >= YARD_REASON_DTYPE && v.reason <= YARD_REASON_OPTIONAL_ABSENT;
  if (!of_limit) return reason_meaning(v.reason);
  const auto& params = candidates.program().schema().params;
  const size_t limits = c.kernel->limits.size();
  // The kernel's own parameter has no dtype that holds all values of the argument's dtype.
  if (index >= limits)
    return fmt::format(
        "{} is {}; it takes {}, and what can be converted to that without loss", params[arg].name,
        to_string(static_cast<DType>(v.figures[1])),
        dtypes_text(static_cast<int64_t>(c.kernel->map->params[index - limits].dtypes)));
  const yard_limit_t& l = c.kernel->limits[index];
  const char* field = l.field != nullptr ? l.field : "";
  const std::string at = l.field != nullptr || arg >= params.size() ? field : params[arg].name;
  switch (v.reason) {
    case YARD_REASON_DIM_TOO_SMALL:
      return fmt::format("{} = {} is below its least, {}", field, v.figures[1], l.a);
    case YARD_REASON_DIM_TOO_LARGE:
      return fmt::format("{} = {} is above its most, {}", field, v.figures[1], l.a);
    case YARD_REASON_DIM_NOT_MULTIPLE:
      return fmt::format("{} = {} is not a multiple of {}", field, v.figures[1], l.a);
    case YARD_REASON_SCALAR: {
      const int param = candidates.program().index_of(field);
      const auto word = [&](int64_t value) {
        const auto i = static_cast<size_t>(value);
        return param >= 0 && i < params[static_cast<size_t>(param)].enumerators.size()
                   ? params[static_cast<size_t>(param)].enumerators[i]
                   : std::to_string(value);
      };
      return fmt::format("{} = {}; it takes {} only", field, word(v.figures[1]), word(l.a));
    }
    case YARD_REASON_DTYPE:
      return fmt::format("{} is {}; it takes {}", at, to_string(static_cast<DType>(v.figures[1])),
                         dtypes_text(l.a));
    case YARD_REASON_RANK:
      return fmt::format("{} has rank {}; it takes {} to {}", at, v.figures[1], l.a, l.b);
    case YARD_REASON_ALIGNMENT:
      return fmt::format("{} is aligned to {} bytes; it needs {}", at, v.figures[1], l.a);
    case YARD_REASON_LAYOUT:
      return fmt::format("{} is not {}", at,
                         l.kind == YARD_LIMIT_COMPACT ? "compact, row-major"
                         : l.kind == YARD_LIMIT_INNER_DENSE
                             ? "dense in its last dimension"
                             : "free of zero, negative or crossing strides");
    case YARD_REASON_OPTIONAL_PRESENT: return fmt::format("it does not take {}", field);
    default: return fmt::format("it needs {}", field);  // YARD_REASON_OPTIONAL_ABSENT
  }
}

std::string transform_text(const CandidateSet& candidates, const KernelCandidate& c,
                           const yard_verdict_t& v) {
  const op::KernelParam& p = c.kernel->map->params[static_cast<size_t>(v.figures[0])];
  const auto no = static_cast<NoTransform>(v.figures[2]);
  return fmt::format("{} needs a transform ({}), and {}",
                     candidates.program().schema().params[static_cast<size_t>(p.source)].name,
                     op::transforms_text(static_cast<uint32_t>(v.figures[1])),
                     no == NoTransform::kForbidden ? "policy forbids transforms for the op"
                     : no == NoTransform::kOtherDevice
                         ? "the host transforms tensors in its own memory only"
                         : "the host cannot transform its dtype");
}

std::string not_mapped_text(const CandidateSet& candidates) {
  const policy::Clauses& clauses = candidates.clauses();
  if (clauses.mapped().empty())
    return fmt::format("mode static serves mapped ops only, and {} is not mapped",
                       candidates.program().name());
  return fmt::format(
      "mode static serves {} only, by {}{}", clauses.mapped(),
      clauses.text(*clauses.find(policy::Clause::Act::kMap)),
      candidates.op_record().kernels.contains(clauses.mapped()) ? "" : ", and it is not there");
}

}  // namespace

std::span<const ReasonInfo> reasons() noexcept { return kReasons; }

std::string_view reason_name(int32_t code) noexcept {
  if (code >= 0 && code < YARD_REASON_COUNT) return kReasons[code].name;
  return code >= YARD_REASON_OWN ? "own" : "unknown";
}

std::string reason_meaning(int32_t code) {
  if (code >= 0 && code < YARD_REASON_COUNT) return std::string(kReasons[code].meaning);
  return fmt::format("unknown reason {}", code);
}

std::string open_breaker_text(const health::BreakerStatus& breaker) {
  if (breaker.until == health::kManual)
    return health::with_reason("was opened manually", breaker.why);
  const auto left =
      std::chrono::ceil<std::chrono::seconds>(breaker.until - std::chrono::steady_clock::now());
  return fmt::format("is open; probes begin in {} s{}{}", std::max<int64_t>(left.count(), 0),
                     breaker.failed_calls.empty() ? "" : "; failed calls: ", breaker.failed_calls);
}

const policy::Clause* deciding_clause(const CandidateSet& candidates, const yard_verdict_t& v) {
  const policy::Clauses& clauses = candidates.clauses();
  if (v.flags == kByVerifier) return nullptr;
  if (v.reason == YARD_REASON_TRANSFORM) return clauses.find(policy::Clause::Act::kNoTransforms);
  const auto i = static_cast<size_t>(v.figures[0]);
  const bool decides = i < clauses.size() && clauses.reason(clauses.clause(i)) == v.reason;
  return decides && v.reason != YARD_REASON_NONE ? &clauses.clause(i) : nullptr;
}

std::string describe(const CandidateSet& candidates, const KernelCandidate& c,
                     const yard_verdict_t& v, const std::string& text) {
  const registry::Kernel& k = *c.kernel;
  if (v.reason >= YARD_REASON_OWN) {
    const auto i = static_cast<size_t>(v.reason - YARD_REASON_OWN);
    return i < k.reasons.size() ? registry::fill_in(k.reasons[i], v.figures)
                                : fmt::format("its own reason {}, which it does not explain", i);
  }
  // A verifier's figures have no common meaning.
  if (v.flags == kByVerifier && v.reason != YARD_REASON_VERIFIER_BROKEN)
    return reason_meaning(v.reason);
  const policy::Clause* clause = deciding_clause(candidates, v);
  if (clause != nullptr && clause->of_rule())
    return candidates.clauses().text(*clause) +
           (clause->act == policy::Clause::Act::kDeny ? " denies it" : " does not allow it");
  switch (v.reason) {
    case YARD_REASON_NONE: return "";
    case YARD_REASON_LOCKED_OUT:
      return fmt::format("The op is locked to {}{}.", clause->names[0],
                         candidates.op_record().kernels.contains(clause->names[0])
                             ? ""
                             : ", and no kernel of that name is registered");
    case YARD_REASON_DENIED_VENDOR: return fmt::format("deny_vendors lists {}", k.backend->vendor);
    case YARD_REASON_NOT_ALLOWED_VENDOR:
      return fmt::format("allow_vendors does not list {}", k.backend->vendor);
    case YARD_REASON_DISABLED: return fmt::format("backend {} is switched off", k.backend_name);
    case YARD_REASON_UNAVAILABLE:
      return fmt::format("backend {} is not available{}{}", k.backend_name,
                         text.empty() ? "" : ": ", text);
    case YARD_REASON_CPU_FEATURE:
    case YARD_REASON_DEVICE_FEATURE: return feature_text(k, v.figures);
    case YARD_REASON_DEVICE:
      return fmt::format("the call is on {}, the kernel runs on {}",
                         to_string(Device{static_cast<int32_t>(v.figures[0]), 0}),
                         to_string(Device{static_cast<int32_t>(v.figures[1]), 0}));
    case YARD_REASON_TRANSFORM: return transform_text(candidates, c, v);
    case YARD_REASON_NOT_MAPPED: return not_mapped_text(candidates);
    case YARD_REASON_UNHEALTHY: return text.empty() ? reason_meaning(v.reason) : text;
    case YARD_REASON_VERIFIER_BROKEN: return fmt::format("its verifier threw: {}", text);
    default: return limit_text(candidates, c, v);
  }
}

std::string refusal(const registry::DeviceProbe& probe) {
  if (!probe.text.empty() || probe.why.reason == YARD_REASON_NONE) return probe.text;
  if (probe.why.reason < YARD_REASON_OWN) return reason_meaning(probe.why.reason);
  return fmt::format("its own reason {}, which it does not explain",
                     probe.why.reason - YARD_REASON_OWN);
}

yard_verdict_t standing(const KernelCandidate& c, const yard_host_t* host, std::string* text) {
  if (c.fixed.reason == YARD_REASON_DISABLED || c.fixed.reason == YARD_REASON_FORKED)
    return c.fixed;
  yard_verdict_t v = machine_verdict(*c.kernel, {host});
  if (v.reason != YARD_REASON_NONE) return v;
  const registry::Backend& backend = *c.kernel->backend;
  const Device any{backend.d.device_type, registry::Feature::kEvery};
  for (const uint32_t i : c.device_needs) {
    if (has_feature(host, any, c.kernel->needs[i].name)) continue;
    reject(v, YARD_REASON_DEVICE_FEATURE, i, registry::Feature::kEvery);
    return v;
  }
  const registry::DeviceProbe& probe = backend.probe({backend.d.device_type, 0}, host);
  if (probe.available) return v;
  reject(v, YARD_REASON_UNAVAILABLE);
  *text = refusal(probe);
  return v;
}

Status no_kernel(const CandidateSet& candidates, const op::Call& call) {
  Notes notes;
  (void)select(candidates, call.args(), call.count(), call.flags(), &notes);
  const std::string spec = op::to_string(call.to_spec(candidates.program()));
  Status s(Code::kNoKernel,
           candidates.all().empty()
               ? fmt::format("op '{}' has no kernels", candidates.program().name())
               : fmt::format("no kernel of op '{}' is allowed, able and healthy for {}",
                             candidates.program().name(), spec));
  for (size_t i = 0; i < candidates.all().size(); ++i) {
    const KernelCandidate& c = candidates.all()[i];
    s.note(fmt::format("{}: {}: {}", c.kernel->id, reason_name(notes.entries[i].verdict.reason),
                       describe(candidates, c, notes.entries[i].verdict, notes.entries[i].text)));
  }
  return s;
}

}  // namespace yard::select
