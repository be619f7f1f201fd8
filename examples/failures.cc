// SPDX-License-Identifier: Apache-2.0
// Shows what happens when kernels fail, and tries rules before they take effect.
#include <yard/function.h>
#include <yard/yard.h>

#include <cstdio>
#include <vector>

#include "check.h"

namespace {

constexpr yard::Op<void(yard::Out, yard::In, yard::In, float)> rms_norm{"rms_norm"};

}  // namespace

int main() {
  yard::Runtime& runtime = yard::Runtime::shared();
  std::vector<float> x(8 * 64, 1.f), w(64, 1.f), y(8 * 64);
  const yard::TensorView tx(x.data(), yard::DType::f32, {8, 64}),
      tw(w.data(), yard::DType::f32, {64}), ty(y.data(), yard::DType::f32, {8, 64});

  // [health]
  yard::Health health = runtime.health();
  health.on_event([](const yard::BreakerEvent& e) {
    std::printf("%s %s: %s\n", e.kernel.c_str(), to_string(e.kind), e.text.c_str());
  });
  health.open("rms_norm", "reference.cpp", "not in production").or_throw();  // manual override
  for (const yard::KernelHealth& k : health.report().kernels)
    for (const yard::KernelHealth::Breaker& b : k.open)
      std::printf("%s of %s is %s\n", k.kernel.c_str(), k.op.c_str(), to_string(b.state));
  health.close("rms_norm", "reference.cpp").or_throw();
  // [/health]
  CHECK(health.report().breakers.opened == 1);

  // [save]
  yard::Policy policy;
  policy.retry_inplace =
      yard::Policy::RetryInplace::kSave;  // in a rule file: policy: {retry_inplace: save}
  runtime.set_policy(policy).or_throw();
  rms_norm(tx, tx, tw, 1e-6f)
      .or_throw();  // if a kernel fails half way, the next one gets x as it was
  // [/save]
  runtime.set_policy({}).or_throw();

  CHECK(runtime.rules().check(YARD_EXAMPLES "/rollout.yaml").empty());
  return 0;
}
