// SPDX-License-Identifier: Apache-2.0
#include "health/health_snapshot.h"

#include <algorithm>

namespace yard::health {

const BreakerStatus* HealthSnapshot::OfOp::find(const Key& key) const noexcept {
  for (const BreakerStatus& h : kernels)
    if (h.key.kernel == key.kernel) return &h;
  for (const BreakerStatus& h : keys)
    if (h.key.kernel == key.kernel && h.key.device == key.device && h.key.dtypes == key.dtypes &&
        h.key.sizes == key.sizes)
      return &h;
  return nullptr;
}

const HealthSnapshot::OfOp* HealthSnapshot::of_op(std::string_view op) const noexcept {
  const auto at = ops_.find(op);
  return at == ops_.end() ? nullptr : &at->second;
}

bool HealthSnapshot::is_lost(Device device) const noexcept {
  return std::find(lost_.begin(), lost_.end(), device) != lost_.end();
}

}  // namespace yard::health
