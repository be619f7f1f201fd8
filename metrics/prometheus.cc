// SPDX-License-Identifier: Apache-2.0
// Metrics for Prometheus: the text format, and HTTP.
#include <fmt/format.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>
#include <yard/metrics.h>
#include <yard/runtime.h>

#include <exception>
#include <utility>

#include "address.h"

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

class Collector : public prom::Collectable {
 public:
  Collector(const Runtime& runtime, size_t max_series)
      : runtime_(runtime), max_series_(max_series) {}
  // Nothing catches on the threads that call it.
  std::vector<prom::MetricFamily> Collect() const override {
    try {
      return families(metrics(runtime_, max_series_));
    } catch (const std::exception&) {
      return {};
    }
  }

 private:
  const Runtime& runtime_;
  const size_t max_series_;
};

struct Server {
  std::shared_ptr<prom::Collectable> collector;
  std::unique_ptr<prom::Exposer> exposer;
  pid_t process = ::getpid();

  ~Server() {
    // A forked child has none of its threads, for whose end it would wait.
    if (process != ::getpid()) static_cast<void>(exposer.release());
  }
};

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
  auto server = std::make_shared<Server>();
  server->collector = std::make_shared<Collector>(runtime, settings.max_series);
  try {
    // Connections that send nothing keep a thread for the time of the timeout only.
    server->exposer = std::make_unique<prom::Exposer>(
        std::vector<std::string>{"listening_ports", address->text(), "num_threads", "4",
                                 "request_timeout_ms", "2000", "enable_keep_alive", "no"});
    server->exposer->RegisterCollectable(server->collector);
    for (const int port : server->exposer->GetListeningPorts())
      address->port = static_cast<uint16_t>(port);
  } catch (const std::exception& e) {
    const std::string why = metrics_detail::why_not_bound(*address);
    return Status(Code::kConflict, fmt::format("cannot listen on {}: {}", address->text(),
                                               why.empty() ? e.what() : why));
  }
  return MetricsServer(std::move(server), address->text());
}

}  // namespace yard
