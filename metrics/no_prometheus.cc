// SPDX-License-Identifier: Apache-2.0
// Replaces prometheus.cc in a build without prometheus-cpp. All functions fail with an error that
// says what to install.
#include <yard/metrics.h>

namespace yard {
namespace {

Status without_prometheus() {
  return Status(Code::kUnsupported,
                "this build has no support for Prometheus: expected prometheus-cpp; on Debian "
                "install prometheus-cpp-dev and build again");
}

}  // namespace

Result<std::string> metrics_text(const std::vector<Metric>&) { return without_prometheus(); }
Result<MetricsServer> MetricsServer::start(const Runtime&, const MetricsServerSettings&) {
  return without_prometheus();
}

}  // namespace yard
