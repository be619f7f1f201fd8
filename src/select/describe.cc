// SPDX-License-Identifier: Apache-2.0
// Verdicts in words.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/cpu_features.h"
#include "select/explain.h"
#include "select/reasons.h"

namespace yard::select {
namespace {

std::string meaning(int32_t code) {
  for (const ReasonInfo& r : reasons())
    if (r.code == code) return std::string(r.meaning);
  return fmt::format("reason {}, which is none of the catalogue", code);
}

std::string feature_text(const registry::Kernel& k, int64_t index) {
  std::string_view list = k.features;
  for (; index > 0 && list.find(' ') != list.npos; --index) list.remove_prefix(list.find(' ') + 1);
  const std::string_view name = list.substr(0, list.find(' '));
  if (name.find(':') != name.npos)
    return fmt::format("needs {}, which nobody has stated (Runtime::state_device_features)", name);
  if (base::has_cpu_feature(name) < 0)
    return fmt::format("needs '{}', which is no feature known here", name);
  return fmt::format("needs {}, which this machine does not offer", name);
}

std::string dtypes_text(int64_t mask) {
  std::vector<std::string> names;
  for (int i = 1; i < 63; ++i)
    if (((static_cast<uint64_t>(mask) >> i) & 1) != 0)
      names.push_back(to_string(static_cast<DType>(i)));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string limit_text(const CandidateSet& candidates, const KernelCandidate& c,
                       const yard_verdict_t& v) {
  const auto index = static_cast<size_t>(v.figures[0]);
  if (index >= c.kernel->limits.size()) return std::string(reason_name(v.reason));
  const yard_limit_t& l = c.kernel->limits[index];
  const char* field = l.field != nullptr ? l.field : "";
  const auto& params = candidates.program().schema().params;
  const auto arg = static_cast<size_t>(v.figures[2]);
  const std::string at = l.field != nullptr || arg >= params.size() ? field : params[arg].name;
  switch (v.reason) {
    case YARD_REASON_DIM_TOO_SMALL:
      return fmt::format("{} = {} is below its least, {}", field, v.figures[1], l.a);
    case YARD_REASON_DIM_TOO_LARGE:
      return fmt::format("{} = {} is above its most, {}", field, v.figures[1], l.a);
    case YARD_REASON_DIM_NOT_MULTIPLE:
      return fmt::format("{} = {} is not a multiple of {}", field, v.figures[1], l.a);
    case YARD_REASON_SCALAR: {
      const int at_param = candidates.program().index_of(field);
      const auto word = [&](int64_t value) {
        if (at_param >= 0) {
          const auto& names = params[static_cast<size_t>(at_param)].enumerators;
          if (value >= 0 && static_cast<size_t>(value) < names.size())
            return names[static_cast<size_t>(value)];
        }
        return std::to_string(value);
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
    case YARD_REASON_OPTIONAL_ABSENT: return fmt::format("it needs {}", field);
    default: return std::string(reason_name(v.reason));
  }
}

// Why a static map serves none of the others; and if its own kernel is not there, that.
std::string not_mapped_text(const CandidateSet& candidates) {
  const OpSettings& d = candidates.settings();
  if (d.mapped.empty())
    return fmt::format("mode static serves mapped ops only, and {} is not mapped",
                       candidates.program().name());
  const auto& kernels = candidates.op_record().kernels;
  return fmt::format("mode static serves {} only, by {}{}", d.mapped, d.mapped_by,
                     kernels.find(d.mapped) == kernels.end() ? ", and it is not there" : "");
}

}  // namespace

std::string describe(const CandidateSet& candidates, const KernelCandidate& c,
                     const yard_verdict_t& v, const std::string& text) {
  const registry::Kernel& k = *c.kernel;
  if (v.reason >= YARD_REASON_OWN) {
    const auto i = static_cast<size_t>(v.reason - YARD_REASON_OWN);
    return i < k.reasons.size() ? registry::fill_in(k.reasons[i], v.figures)
                                : fmt::format("its own reason {}, which it does not explain", i);
  }
  // The figures of a verifier mean what it likes.
  if (v.pad_ == kByVerifier && v.reason != YARD_REASON_VERIFIER_BROKEN) return meaning(v.reason);
  switch (v.reason) {
    case YARD_REASON_NONE: return "";
    case YARD_REASON_DENIED_VENDOR: return fmt::format("deny_vendors lists {}", k.backend->vendor);
    case YARD_REASON_NOT_ALLOWED_VENDOR:
      return fmt::format("allow_vendors does not list {}", k.backend->vendor);
    case YARD_REASON_DISABLED: return fmt::format("backend {} is switched off", k.backend_name);
    case YARD_REASON_UNAVAILABLE:
      return fmt::format("backend {} is not available{}{}", k.backend_name,
                         text.empty() ? "" : ": ", text);
    case YARD_REASON_CPU_FEATURE: return feature_text(k, v.figures[0]);
    case YARD_REASON_DEVICE:
      return fmt::format("the call is on {}, the kernel runs on {}",
                         to_string(Device{static_cast<int32_t>(v.figures[0]), 0}),
                         to_string(Device{static_cast<int32_t>(v.figures[1]), 0}));
    case YARD_REASON_NOT_MAPPED: return not_mapped_text(candidates);
    case YARD_REASON_UNHEALTHY: return text.empty() ? meaning(v.reason) : text;
    case YARD_REASON_VERIFIER_BROKEN: return fmt::format("its verifier threw: {}", text);
    case YARD_REASON_DTYPE:
    case YARD_REASON_RANK:
    case YARD_REASON_DIM_TOO_SMALL:
    case YARD_REASON_DIM_TOO_LARGE:
    case YARD_REASON_DIM_NOT_MULTIPLE:
    case YARD_REASON_LAYOUT:
    case YARD_REASON_ALIGNMENT:
    case YARD_REASON_SCALAR:
    case YARD_REASON_OPTIONAL_PRESENT:
    case YARD_REASON_OPTIONAL_ABSENT: return limit_text(candidates, c, v);
    default: return meaning(v.reason);
  }
}

std::string refusal(const registry::Probe& probe) {
  if (!probe.text.empty() || probe.why.reason == YARD_REASON_NONE) return probe.text;
  if (probe.why.reason < YARD_REASON_OWN) return meaning(probe.why.reason);
  return fmt::format("its own reason {}, which it does not explain",
                     probe.why.reason - YARD_REASON_OWN);
}

yard_verdict_t standing(const KernelCandidate& c, const yard_host_t* host, std::string* text) {
  yard_verdict_t v = c.fixed;
  if (v.reason != YARD_REASON_NONE && !is_policy_reason(v.reason)) return v;
  if (v.reason == YARD_REASON_DISABLED) return v;
  v = {};
  const registry::Backend& backend = *c.kernel->backend;
  const registry::Probe& probe = backend.probe({backend.d.device_type, 0}, host);
  if (!probe.available) {
    v.reason = YARD_REASON_UNAVAILABLE;
    if (text != nullptr) *text = refusal(probe);
  }
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
