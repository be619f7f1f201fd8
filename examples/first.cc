// SPDX-License-Identifier: Apache-2.0
// The first program of the README.
// [first]
#include <yard/yard.h>
#include <cstdio>
#include <vector>

inline constexpr yard::Op<void(yard::Out, yard::In, yard::In, float)> rms_norm{"rms_norm"};

int main() {
  std::vector<float> x(8 * 4096, 3.0f), weight(4096, 0.5f), out(8 * 4096);
  auto X = yard::view(x, {8, 4096}), W = yard::view(weight, {4096}), O = yard::view(out, {8, 4096});
  rms_norm(O, X, W, 1e-6f).or_throw();  // the best kernel runs
  std::puts(yard::explain(rms_norm, O, X, W, 1e-6f).value().to_text().c_str());  // and says why
  return out[0] > 0.49f && out[0] < 0.51f ? 0 : 1;
}
// [/first]
