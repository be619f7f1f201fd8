// SPDX-License-Identifier: Apache-2.0
// A plugin that implements rms_norm of the group `norm`. The first call of a function of the group
// opens the plugin.
#include <yard/plugin_function.hpp>

#include <cmath>
#include <vector>

#include "types.h"

using namespace yard::plugin;
using flalike::DType;
using flalike::Norm;

// Sums in single precision, in one pass.
float fused_norm(const Norm& n, float eps) {
  float largest = 0;
  for (int64_t r = 0; r < n.rows; ++r) {
    const float* x = n.x + r * n.width;
    float sum = 0;
    for (int64_t i = 0; i < n.width; ++i) sum += x[i] * x[i];
    const float scale = 1 / std::sqrt(sum / float(n.width) + eps);
    for (int64_t i = 0; i < n.width; ++i) n.out[r * n.width + i] = scale * x[i];
    if (scale > largest) largest = scale;
  }
  return largest;
}

// [samples]
void fused_samples(const yard::SampleCalls<float(const Norm&, float)>& call) {
  std::vector<float> x(5000, 1.0f), out(x.size());
  call(Norm{x.data(), out.data(), 4, 64, DType::kF32}, 1e-6f);
  call(Norm{x.data(), out.data(), 4, 64, DType::kBF16}, 1e-6f);
  call(Norm{x.data(), out.data(), 1, 5000, DType::kF32}, 1e-6f);
}
// [/samples]

// [plugin]
constexpr const char* kReasons[] = {"width {0} is above {1}", "only f32 is served"};
yard::Verdict fused_fits(const Norm& n, float) {
  if (n.width > 4096) return yard::Reject(kReasons[0], n.width, 4096);
  if (n.dtype != DType::kF32) return yard::Reject(kReasons[1]);
  return yard::Accept();
}

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t* host) {
  static const Plugin plugin = Plugin(YARD_PLUGIN_NAME, YARD_PLUGIN_VERSION)
                                   .add(Backend("fused").env("FLALIKE_FUSED"))
                                   .add(function<fused_norm>("norm", "rms_norm", "fused")
                                            .verify<fused_fits>(kReasons, host)
                                            .samples<fused_samples>()
                                            .priority(10));
  return plugin.get();
}
// [/plugin]
