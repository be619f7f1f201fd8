// SPDX-License-Identifier: Apache-2.0
// Writes a model's calls down instead of running them.
#include <yard/yard.h>

#include <cstdio>
#include <string>
#include <vector>

#include "check.h"

inline constexpr yard::Op<void(yard::Out, yard::In, yard::In, float)> rms_norm{"rms_norm"};
inline constexpr yard::Op<void(yard::Out, yard::In)> silu_and_mul{"silu_and_mul"};

int main() {
  std::vector<float> x(2 * 8), weight(8), normed(2 * 8), gated(2 * 4);
  yard::TensorView tx = yard::view(x, {2, 8}), tweight = yard::view(weight, {8});
  yard::TensorView tnormed = yard::view(normed, {2, 8}), tgated = yard::view(gated, {2, 4});

  // [trace]
  yard::TraceScope trace;
  rms_norm(tnormed, tx, tweight, 1e-6f).or_throw();
  silu_and_mul(tgated, tnormed).or_throw();
  std::fputs(trace.to_text().c_str(), stdout);
  // %2: f32[2,8] = rms_norm(x=%0, weight=%1, eps=1e-6)  [default.simd]
  // %3: f32[2,4] = silu_and_mul(x=%2)  [default.simd]
  // [/trace]
  const std::vector<yard::TraceNode> nodes = trace.nodes();
  CHECK(nodes.size() == 2);
  CHECK(nodes[1].args[1].reads == nodes[0].args[0].writes);
  CHECK(normed == std::vector<float>(2 * 8));
  return 0;
}
