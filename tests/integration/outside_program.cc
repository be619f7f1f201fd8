// SPDX-License-Identifier: Apache-2.0
// A program that tests run in a separate environment. It makes a call and prints what it used.
#include <sys/auxv.h>
#include <yard/yard.h>

#include <cstdio>
#include <vector>

int main() {
  yard::Runtime& runtime = yard::Runtime::shared();
  std::vector<float> x(8), y(8);
  const yard::TensorView in(x.data(), yard::DType::f32, {2, 4}),
      out(y.data(), yard::DType::f32, {2, 4});
  if (!runtime.call("softmax", {{"out", out}, {"x", in}}).ok()) return 1;
  std::printf("secure=%d rules=%zu recording=%d plugins=%zu\n", ::getauxval(AT_SECURE) != 0,
              runtime.rules().config().dispatch_rules.size(),
              !runtime.recording().stats().path.empty(), runtime.plugins().list().size());
  for (const yard::PluginInfo& p : runtime.plugins().list())
    std::printf("%s: %s\n", p.path.c_str(), yard::to_string(p.state));
  for (const yard::Runtime::Problem& p : runtime.problems())
    std::printf("%s: %s\n", p.where.c_str(), p.message.c_str());
  return runtime.recording().stop().ok() ? 0 : 1;
}
