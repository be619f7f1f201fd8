// SPDX-License-Identifier: Apache-2.0
// Exports metrics of a runtime for Prometheus, over HTTP and as a file.
#include <yard/metrics.h>
#include <yard/runtime.h>

#include <cstdio>
#include <vector>

#include "check.h"

int main() {
  std::vector<float> in(64, 1.0f), out(64);
  const yard::TensorView x(in.data(), yard::DType::f32, {8, 8});
  const yard::TensorView y(out.data(), yard::DType::f32, {8, 8});
  yard::Runtime& runtime = yard::Runtime::shared();
  for (int i = 0; i < 100; ++i) runtime.call("softmax", {y, x}).or_throw();

  // [figures]
  for (const yard::Metric& m : yard::metrics(runtime))
    for (const yard::Metric::Sample& s : m.samples)
      if (s.labels.empty()) std::printf("%s %g\n", m.info->name, s.value);
  // [/figures]
  std::puts(yard::metrics_json(yard::metrics(runtime)).c_str());

  const yard::Result<std::string> text = yard::metrics_text(yard::metrics(runtime));
  if (!text.ok()) {  // in a build without prometheus-cpp
    CHECK(text.status().code() == yard::Code::kUnsupported);
    return 0;
  }
  CHECK(text->find("yard_calls_total{op=\"softmax\"") != std::string::npos);

  yard::MetricsServerSettings settings;
  settings.address = "127.0.0.1:0";
  // [serve]
  yard::MetricsServer server = yard::MetricsServer::start(runtime, settings).value();
  std::printf("http://%s/metrics\n", server.address().c_str());
  // [/serve]
  CHECK(server.address() != settings.address);
  return 0;
}
