// SPDX-License-Identifier: Apache-2.0
// Uses metrics in a build without prometheus-cpp: JSON works, and other formats return an error
// that names the missing package.
#include <yard/metrics.h>
#include <yard/runtime.h>

#include <cstdio>

int main() {
  const auto metrics = yard::metrics(yard::Runtime::shared());
  const bool json = yard::metrics_json(metrics).find("yard_generation") != std::string::npos;
  const auto text = yard::metrics_text(metrics);
  const auto server = yard::MetricsServer::start(yard::Runtime::shared());
  const auto is_right = [](const yard::Status& s) {
    return s.code() == yard::Code::kUnsupported &&
           s.message().find("prometheus-cpp-dev") != std::string::npos;
  };
  if (json && !text.ok() && is_right(text.status()) && !server.ok() && is_right(server.status()))
    return 0;
  std::puts("exporter: not so");
  return 1;
}
