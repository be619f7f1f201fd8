// SPDX-License-Identifier: Apache-2.0
// Writes metrics in the text format of Prometheus, and serves them as a page.
#include <fmt/format.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <yard/metrics.h>
#include <yard/runtime.h>

#include <memory>
#include <utility>

#include "address.h"
#include "http_server.h"

namespace yard {
namespace {

namespace prom = ::prometheus;

prom::MetricType prometheus_type(MetricInfo::Type type) {
  switch (type) {
    case MetricInfo::Type::kCounter: return prom::MetricType::Counter;
    case MetricInfo::Type::kGauge: return prom::MetricType::Gauge;
    case MetricInfo::Type::kHistogram: return prom::MetricType::Histogram;
  }
  return prom::MetricType::Untyped;
}

prom::ClientMetric client_metric(const MetricInfo& info, const Metric::Sample& s) {
  prom::ClientMetric to;
  for (size_t i = 0; i < s.labels.size(); ++i) to.label.push_back({info.labels[i], s.labels[i]});
  to.counter.value = to.gauge.value = s.value;
  to.histogram.sample_count = s.count;
  to.histogram.sample_sum = s.value;
  for (size_t i = 0; i < s.buckets.size(); ++i)
    to.histogram.bucket.push_back({s.buckets[i], metric_bounds()[i]});
  return to;
}

std::vector<prom::MetricFamily> families(const std::vector<Metric>& all) {
  std::vector<prom::MetricFamily> to;
  for (const Metric& m : all) {
    if (m.samples.empty()) continue;
    to.push_back({m.info->name, m.info->help, prometheus_type(m.info->type), {}});
    for (const Metric::Sample& s : m.samples) to.back().metric.push_back(client_metric(*m.info, s));
  }
  return to;
}

}  // namespace

Result<std::string> metrics_text(const std::vector<Metric>& all) {
  return prom::TextSerializer().Serialize(families(all));
}

Result<MetricsServer> MetricsServer::start(const Runtime& runtime,
                                           const MetricsServerSettings& settings) {
  Result<metrics_detail::Address> address = metrics_detail::parse_address(settings.address);
  if (!address.ok()) return address.status();
  if (!address->loopback && !settings.allow_remote)
    return Status(Code::kInvalidArgument,
                  fmt::format("invalid address: expected one of the loopback interface, such as "
                              "127.0.0.1:9464, got '{}'; set allow_remote to serve other machines",
                              settings.address));
  auto server = metrics_detail::HttpServer::start(
      *address, "/metrics",
      [&runtime, most = settings.max_series] { return metrics_text(metrics(runtime, most)); });
  if (!server.ok()) return server.status();
  return MetricsServer(std::shared_ptr<void>(*std::move(server)), address->text());
}

}  // namespace yard
