// SPDX-License-Identifier: Apache-2.0
// A canary finds a kernel with wrong results. The caller gets the right results and a report.
#include <yard/verify.h>
#include <yard/yard.h>
#include <yard/plugin.hpp>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "check.h"

// This kernel forgets to divide.
void not_a_softmax(yard::plugin::Call, yard::plugin::Tensor out, yard::plugin::Tensor x) {
  for (int64_t i = 0; i < x.numel(); ++i) out.data<float>()[i] = std::exp(x.data<float>()[i]);
}

int main() {
  namespace plugin = yard::plugin;
  std::string folder = (std::filesystem::temp_directory_path() / "yard-example-XXXXXX").string();
  CHECK(mkdtemp(folder.data()) != nullptr);
  yard::RuntimeSettings settings;
  settings.output_directory = folder;  // rules may only write dumps below this folder
  yard::Runtime runtime(settings);
  const yard_limit_t limits[] = {plugin::dtypes({YARD_F32}), plugin::compact()};
  yard::Changes changes;
  changes.add_backend(plugin::Backend("acme").vendor("acme"))
      .add_kernel(plugin::Kernel::of<not_a_softmax>("softmax", "vendor.acme")
                      .backend("acme")
                      .kind(YARD_KIND_VENDOR)
                      .priority(1000)
                      .limits(limits));
  runtime.apply(std::move(changes)).or_throw();
  yard::Policy vendors;
  vendors.prefer = yard::Kind::kVendor;
  runtime.set_policy(vendors).or_throw();
  yard::Config config = yard::read_config(YARD_EXAMPLES "/canary.yaml").config;
  config.canary[0].dump = folder;
  runtime.rules().set(config).or_throw();

  std::vector<float> x = {1, 2, 3, 4}, out(4);
  // [call]
  constexpr yard::Op<void(yard::Out, yard::In)> softmax{"softmax"};
  softmax.on(runtime)(yard::view(out, {1, 4}), yard::view(x, {1, 4})).or_throw();
  CHECK(near(out[0] + out[1] + out[2] + out[3], 1));  // the reference kernel's
  // [/call]

  // [report]
  const yard::CanaryReport report = runtime.health().canaries();
  for (const yard::CanaryReport::Mismatch& m : report.mismatches)
    std::printf("%s, %s: %s\n", m.kernel.c_str(), m.call.c_str(), to_string(m).c_str());
  // [/report]
  CHECK(report.mismatches.size() == 1 && report.mismatches[0].kernel == "vendor.acme");

  const auto dumped = [&] { return runtime.health().canaries().mismatches[0].dump; };
  for (int i = 0; dumped().empty() && i < 60'000; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::string path = dumped();
  // [replay]
  const yard::CanaryDump dump = yard::read_canary_dump(path).value();
  CHECK(!yard::replay(runtime, dump)->ok());                  // still wrong
  CHECK(yard::replay(runtime, dump, "reference.cpp")->ok());  // as another kernel does it
  // [/replay]
  std::filesystem::remove_all(folder);
}
