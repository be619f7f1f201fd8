// SPDX-License-Identifier: Apache-2.0
// Uses the backend of acme_plugin.cc and compares its kernel with the reference.
#include <yard/yard.h>

#include <string>
#include <vector>

#include "check.h"

int main() {
  // [use]
  yard::Changes changes;
  changes.add_plugin(*yard_plugin_query(YARD_ABI_VERSION, nullptr));
  yard::Runtime::shared().apply(std::move(changes)).or_throw();
  // [/use]
  // Built-in kernels compete too. This policy excludes them.
  yard::Policy policy;
  policy.per_op["softmax"] = {"vendor:acme", "reference"};
  yard::Runtime::shared().set_policy(policy).or_throw();
  CHECK(yard::resolve("softmax(f32[4,64])").value().kernel == "vendor.acme");

  // [why_not]
  yard::Explanation e = yard::explain("softmax(f32[4,8])").value();
  for (const yard::Candidate& c : e.candidates)
    if (c.id == "vendor.acme") CHECK(c.reason == "dim_too_small");
  // [/why_not]
  CHECK(e.selected == "reference.cpp");

  std::vector<float> x(4 * 64), mine(4 * 64), reference(4 * 64);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 13) * 0.25f - 1.5f;
  const yard::TensorView tx = yard::view(x, {4, 64});
  yard::Options only;
  only.policy.emplace().reference_only = true;
  yard::call("softmax", {yard::view(mine, {4, 64}), tx}).or_throw();
  yard::call("softmax", {yard::view(reference, {4, 64}), tx}, only).or_throw();
  for (size_t i = 0; i < x.size(); ++i) CHECK(near(mine[i], reference[i]));
}
