// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "driver.h"
#include "kernels.h"

namespace yard::vendor_template {

// The host has checked the claim (limits in plugin.cc and fits() below), so the kernel checks
// nothing again. The host also supplies the threads and any workspace (Kernel::workspace).
void silu_and_mul(plugin::Call call, plugin::Tensor out, plugin::Tensor x) {
  const int64_t d = out.size(-1), rows = d > 0 ? out.numel() / d : 0;
  call.parallel_for(rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* gate = x.data<float>() + r * 2 * d;
      const float* value = gate + d;
      float* to = out.data<float>() + r * d;
      for (int64_t i = 0; i < d; ++i)
        to[i] = float(double{gate[i]} / (1.0 + std::exp(-double{gate[i]})) * double{value[i]});
    }
  });
}

// Checks what limits cannot express: here, a product of sizes. It sees sizes and never contents,
// and must always give the same answer for the same sizes. A slow kernel must not refuse calls; it
// reports a high cost.
int32_t fits(const yard_query_t* query, yard_verdict_t* verdict) {
  const int64_t rows = query->read[0], d = query->read[1];
  if (d == 0 || rows <= kUnitHolds / 3 / d) return YARD_OK;
  *verdict = {YARD_REASON_OWN, 0, {rows, 3 * d, kUnitHolds}};
  return YARD_OK;
}

double silu_cost(void*, const int64_t* fields, uint32_t) {
  return 500.0 + 8.0 * double(fields[0]) * double(fields[1]);
}

}  // namespace yard::vendor_template
