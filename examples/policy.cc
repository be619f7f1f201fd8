// SPDX-License-Identifier: Apache-2.0
// Changes the preferred, allowed and forced kernels while calls run.
#include <yard/yard.h>

#include <string>

#include "check.h"

namespace {

int32_t nothing(yard_call_t*, const yard_value_t*, uint32_t) { return YARD_OK; }

// Adds a default kernel and a vendor's kernel to choose from.
void add_kernels(yard::Runtime& runtime) {
  yard_backend_t acme{}, fast{};
  acme.size = sizeof acme, acme.name = "acme", acme.vendor = "acme";
  fast.size = sizeof fast, fast.name = "fast";
  yard_kernel_t theirs{}, ours{};
  theirs.size = sizeof theirs, theirs.op = "softmax", theirs.id = "vendor.acme";
  theirs.backend = "acme", theirs.kind = YARD_KIND_VENDOR, theirs.run = nothing;
  ours.size = sizeof ours, ours.op = "softmax", ours.id = "default.fast";
  ours.backend = "fast", ours.kind = YARD_KIND_DEFAULT, ours.run = nothing;
  yard::Changes c;
  c.add_backend(acme).add_backend(fast).add_kernel(theirs).add_kernel(ours);
  runtime.apply(std::move(c)).or_throw();
}

}  // namespace

int main() {
  yard::Runtime runtime;
  add_kernels(runtime);
  const auto chosen = [&] { return runtime.resolve("softmax(f32[8,64])").value().kernel; };
  CHECK(chosen() == "default.fast");  // priority 150 against 100

  // [set]
  yard::Policy policy;
  policy.prefer = yard::Kind::kVendor;
  runtime.set_policy(policy)
      .or_throw();  // the next call sees it; calls in flight finish as they began
  CHECK(chosen() == "vendor.acme");

  policy.deny_vendors = {"acme", "onednn"};
  runtime.set_policy(policy).or_throw();
  CHECK(chosen() == "default.fast");
  // [/set]

  // [order]
  policy = {};
  policy.per_op["softmax"] = {"vendor:acme", "reference"};  // exhaustive: default.fast is out
  runtime.set_policy(policy).or_throw();
  CHECK(chosen() == "vendor.acme");
  // [/order]

  // [lock]
  policy = {};
  policy.locks["softmax"] = "reference.cpp";
  runtime.set_policy(policy).or_throw();
  CHECK(chosen() == "reference.cpp");
  // [/lock]

  // [merge]
  yard::Policy base, stronger;
  base.prefer = yard::Kind::kVendor, base.deny_kernels = {"*.old"};
  stronger.prefer = yard::Kind::kDefault, stronger.deny_kernels = {"*.new"};
  CHECK(to_string(merge(base, stronger)) == "prefer=default deny_kernels=*.old,*.new");
  // [/merge]

  // [wrong]
  policy = {};
  policy.per_op["softmax"] = {"vendr"};
  yard::Status s = runtime.set_policy(policy);
  CHECK(!s.ok());
  std::puts(s.to_string().c_str());
  // [/wrong]
  CHECK(std::string(s.message()).find("did you mean 'vendor'") != std::string::npos);
  CHECK(chosen() == "reference.cpp");  // the last valid policy stays
}
