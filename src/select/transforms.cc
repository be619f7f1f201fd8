// SPDX-License-Identifier: Apache-2.0
#include "select/transforms.h"

#include <fmt/format.h>

namespace yard::select {
namespace {

// The third figure of a verdict.
enum class NoTransform : int64_t { kForbidden, kOtherDevice, kNotCopyable };

// Calls f(cost, parameter, kinds) for each argument of the call that needs a transform, until it returns false.
template <class F>
void for_each_transform(const KernelCandidate& c, const yard_value_t* args, const F& f) {
  for (const TransformCost& t : c.transforms) {
    if (args[t.arg].tag != YARD_TAG_TENSOR) continue;
    const op::KernelParam& p = c.kernel->map->params[t.param];
    const uint32_t kinds = p.transforms(*args[t.arg].u.tensor);
    if (kinds != 0 && !f(t, p, kinds)) return;
  }
}

}  // namespace

void check_transforms(const CandidateSet& candidates, const KernelCandidate& c,
                      const yard_value_t* args, Device device, yard_verdict_t& v) {
  for_each_transform(c, args, [&](const TransformCost& t, const op::KernelParam&, uint32_t kinds) {
    const auto reject = [&](NoTransform why) {
      v.reason = YARD_REASON_TRANSFORM;
      v.figures[0] = t.param, v.figures[1] = kinds, v.figures[2] = static_cast<int64_t>(why);
      return false;
    };
    if (!candidates.allows_transforms()) return reject(NoTransform::kForbidden);
    if (device.type != Device{}.type) return reject(NoTransform::kOtherDevice);
    return op::is_copyable(static_cast<DType>(op::read(t.dtype, args))) ||
           reject(NoTransform::kNotCopyable);
  });
}

std::string transform_text(const CandidateSet& candidates, const KernelCandidate& c,
                           const yard_verdict_t& v) {
  const op::KernelParam& p = c.kernel->map->params[static_cast<size_t>(v.figures[0])];
  const std::string& name =
      candidates.program().schema().params[static_cast<size_t>(p.source)].name;
  const char* const why = v.figures[2] == static_cast<int64_t>(NoTransform::kForbidden)
                              ? "policy forbids transforms for the op"
                          : v.figures[2] == static_cast<int64_t>(NoTransform::kOtherDevice)
                              ? "the host transforms tensors in its own memory only"
                              : "the host cannot transform its dtype";
  return fmt::format("{} needs a transform ({}), and {}", name,
                     op::transforms_text(static_cast<uint32_t>(v.figures[1])), why);
}

TransformTime transform_time(const KernelCandidate& c, const yard_value_t* args,
                             std::vector<Notes::Entry::Transform>* notes) {
  TransformTime to;
  for_each_transform(
      c, args, [&](const TransformCost& t, const op::KernelParam& p, uint32_t kinds) {
        // As cost hints see it: keys of plans have half octaves.
        const auto elements = static_cast<double>(op::half_octave_floor(op::read(t.size, args)));
        const auto from = static_cast<DType>(op::read(t.dtype, args));
        const double bytes = elements * (bits(from) + bits(p.dtype_for(from))) / 8;
        const double ns = op::transform_ns(bytes) * (p.read && p.written ? 2 : 1);
        to.any = true, to.ns += ns;
        if (notes != nullptr) notes->push_back({t.param, kinds, ns});
        return true;
      });
  return to;
}

}  // namespace yard::select
