// SPDX-License-Identifier: Apache-2.0
// Makes handles for repeated calls on tensors of one form.
#include <yard/yard.h>

#include <vector>

#include "check.h"

inline constexpr yard::Op<void(yard::Out, yard::In, yard::In, float)> rms_norm{"rms_norm"};

int main() {
  std::vector<float> x(2 * 4, 3.0f), y(2 * 4, -3.0f), w(4, 0.5f), o(2 * 4);
  const yard::TensorView x1 = yard::view(x, {2, 4}), x2 = yard::view(y, {2, 4});
  const yard::TensorView weight = yard::view(w, {4}), out = yard::view(o, {2, 4});

  // [bind]
  auto fast = yard::bind(rms_norm, out, x1, weight).value();
  fast(1e-6f).or_throw();                   // on the tensors it was bound to
  fast(out, x2, weight, 1e-6f).or_throw();  // on others of the same form
  // [/bind]
  CHECK(near(o[0], -0.5));

  // [freeze]
  auto fixed = yard::freeze(rms_norm, out, x1, weight).value();
  std::printf("always %s\n", fixed.kernel().c_str());
  fixed(out, x1, weight, 1e-6f).or_throw();  // nothing is checked, nothing can change it
  // [/freeze]
  CHECK(near(o[0], 0.5) && !fixed.kernel().empty());

  // A bound handle follows the policy, and a frozen one does not.
  yard::Policy none;
  none.deny_kernels = {"*"};
  yard::Runtime::shared().set_policy(none).or_throw();
  CHECK(fast(1e-6f).code() == yard::Code::kNoKernel);
  CHECK(fixed(out, x1, weight, 1e-6f).ok());
}
