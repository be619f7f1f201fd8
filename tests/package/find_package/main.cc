// SPDX-License-Identifier: Apache-2.0
// A user's program in C++. Headers and library have one version, an op runs, and an answer is
// explained.
#include <yard/yard.h>

#include <cmath>
#include <cstdio>
#include <vector>

inline constexpr yard::Op<void(yard::Out, yard::In, yard::In, float)> rms_norm{"rms_norm"};

int main() {
  static_assert(YARD_VERSION_MAJOR == 0 && YARD_VERSION_MINOR == 1);
  std::vector<float> x(2 * 8, 3.0f), weight(8, 0.5f), out(2 * 8);
  const yard::TensorView to = yard::view(out, {2, 8}), tx = yard::view(x, {2, 8});
  const yard::TensorView tw = yard::view(weight, {8});
  if (yard::Status s = rms_norm(to, tx, tw, 1e-6f); !s.ok()) {
    std::puts(s.to_string().c_str());
    return 1;
  }
  // All elements are equal, so each is its own root mean square.
  for (float v : out)
    if (std::fabs(v - 0.5f) > 1e-5f) return 2;
  // A call with wrong arguments returns an error.
  if (rms_norm(to, tx, tx, 1e-6f).ok()) return 3;
  const auto chosen = yard::resolve("rms_norm(f32[2,8], f32[8], eps=1e-6)@cpu");
  if (!chosen.ok()) return 4;
  std::printf("switchyard %s\n", YARD_VERSION);
  return 0;
}
