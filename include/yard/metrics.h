// SPDX-License-Identifier: Apache-2.0
// Gives the metrics of a runtime to monitoring systems. Needs the library Switchyard::metrics.
//
//   yard::Runtime& runtime = yard::Runtime::shared();
//   auto server = yard::MetricsServer::start(runtime).value();  // http://127.0.0.1:9464/metrics
//   yard::write_metrics(runtime, "/var/lib/node_exporter/yard.prom").or_throw();
//
// docs/reference/metrics.md lists all metrics. Builds without prometheus-cpp return the error
// `unsupported` for the forms of Prometheus. Any thread may call. Reading does not delay calls.
#pragma once

#include <yard/stats.h>

namespace yard {

class Runtime;

struct MetricInfo {
  enum class Type : uint8_t { kCounter, kGauge, kHistogram };
  const char* name;
  Type type;
  const char* help;
  std::span<const char* const> labels;
};
YARD_API std::span<const MetricInfo> metric_infos() noexcept;
YARD_API const char* to_string(MetricInfo::Type type) noexcept;

struct Metric {
  struct Sample {
    std::vector<std::string> labels;  // values of MetricInfo::labels, without control characters
    double value = 0;                 // of a counter or gauge; the sum of a histogram
    uint64_t count = 0;               // of a histogram
    std::vector<uint64_t> buckets;    // of a histogram: samples up to each of metric_bounds()
  };
  const MetricInfo* info = nullptr;
  std::vector<Sample> samples;  // by their labels
};
YARD_API std::span<const double> metric_bounds() noexcept;  // finite bounds in seconds

inline constexpr size_t kMaxSeries = 1000;  // per metric; the others count as `other`

YARD_API std::vector<Metric> metrics(const RuntimeStats& stats, const HealthReport& health,
                                     size_t max_series = kMaxSeries);
YARD_API std::vector<Metric> metrics(const Runtime& runtime, size_t max_series = kMaxSeries);

// Returns version 0.0.4 of the text format of Prometheus.
YARD_API Result<std::string> metrics_text(const std::vector<Metric>& metrics);
// Returns {"metrics": [{"name", "type", "help", "samples": [{"labels": {...}, "value"}]}]}.
YARD_API std::string metrics_json(const std::vector<Metric>& metrics);

// Atomically replaces a file for the textfile collector of node_exporter.
YARD_API Status write_metrics(const Runtime& runtime, const std::string& path,
                              size_t max_series = kMaxSeries);

struct MetricsServerSettings {
  std::string address = "127.0.0.1:9464";  // of this machine; port 0 stands for a free one
  bool allow_remote = false;  // lets other machines read it, without password or encryption
  size_t max_series = kMaxSeries;
};

// Answers GET /metrics on its own thread, where slow clients do not delay others. The runtime must
// outlive the server. A forked child does not answer.
class MetricsServer {
 public:
  YARD_API static Result<MetricsServer> start(const Runtime& runtime,
                                              const MetricsServerSettings& settings = {});
  MetricsServer(MetricsServer&&) = default;
  MetricsServer& operator=(MetricsServer&&) = default;
  ~MetricsServer() = default;  // waits for a page that is being made; closes connections

  const std::string& address() const noexcept { return address_; }  // with the port in use

 private:
  MetricsServer(std::shared_ptr<void> server, std::string address)
      : server_(std::move(server)), address_(std::move(address)) {}
  std::shared_ptr<void> server_;
  std::string address_;
};

}  // namespace yard
