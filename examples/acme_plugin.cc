// SPDX-License-Identifier: Apache-2.0
// A vendor's backend. It needs only plugin.hpp.
// [plugin]
#include <cmath>
#include <yard/plugin.hpp>

using namespace yard::plugin;

// Sees only what the limits below let through: f32, compact, at least 16 columns.
static void acme_softmax(Call call, Tensor out, Tensor x) {
  const int64_t d = x.size(-1), rows = d > 0 ? x.numel() / d : 0;
  call.parallel_for(rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* from = x.data<float>() + r * d;
      float* to = out.data<float>() + r * d;
      float most = from[0], sum = 0;
      for (int64_t i = 1; i < d; ++i) most = std::fmax(most, from[i]);
      for (int64_t i = 0; i < d; ++i) sum += to[i] = std::exp(from[i] - most);
      for (int64_t i = 0; i < d; ++i) to[i] /= sum;
    }
  });
}

// Nanoseconds, from rows and columns rounded down to half octaves.
static double acme_cost(void*, const int64_t* fields, uint32_t) {
  return 200.0 + 2.0 * static_cast<double>(fields[0]) * static_cast<double>(fields[1]);
}

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t*) {
  static const yard_limit_t limits[] = {dtypes({YARD_F32}), compact(), at_least("d", 16)};
  static const char* const cost_reads[] = {"rows", "d", nullptr};
  static const Plugin plugin =
      Plugin("acme", "1.0")
          .add(Backend("acme").vendor("acme").summary("Acme's kernels for any processor"))
          .add(Kernel::of<acme_softmax>("softmax", "vendor.acme")
                   .kind(YARD_KIND_VENDOR)
                   .flags(YARD_KERNEL_DETERMINISTIC)
                   .limits(limits)
                   .cost(acme_cost, cost_reads));
  return plugin.get();
}
// [/plugin]
