// SPDX-License-Identifier: Apache-2.0
#include "health/view.h"

#include <algorithm>

namespace yard::health {

const Held* View::OfOp::find(const Key& key) const noexcept {
  for (const Held& h : kernels)
    if (h.key.kernel == key.kernel) return &h;
  for (const Held& h : keys)
    if (h.key.kernel == key.kernel && h.key.device == key.device && h.key.dtypes == key.dtypes &&
        h.key.sizes == key.sizes)
      return &h;
  return nullptr;
}

const View::OfOp* View::of_op(std::string_view op) const noexcept {
  const auto at = ops_.find(op);
  return at == ops_.end() ? nullptr : &at->second;
}

bool View::is_lost(Device device) const noexcept {
  return std::find(lost_.begin(), lost_.end(), device) != lost_.end();
}

}  // namespace yard::health
