// SPDX-License-Identifier: Apache-2.0
// yard metrics: shows the metrics of a running process.
#include <yard/metrics.h>
#include <yard/trace.h>

#include "arguments.h"
#include "commands.h"
#include "json.h"
#include "live/answers.h"
#include "live/remote.h"
#include "output.h"
#include "terminal.h"

namespace yard::tool {
namespace {

struct MetricsQuestion : RemoteQuestion {
  std::string textfile;
};

HealthReport health_of(const Json& j) {
  HealthReport to;
  for (const Json& b : list_at(j, "breakers")) {
    KernelHealth k;
    k.op = text_at(b, "op"), k.kernel = text_at(b, "kernel");
    k.open.emplace_back();
    k.open[0].state =
        text_at(b, "state") == "half_open" ? BreakerState::kHalfOpen : BreakerState::kOpen;
    to.kernels.push_back(std::move(k));
  }
  return to;
}

int show_metrics(const MetricsQuestion& q) {
  auto remote = need(Remote::connect(q.pid));
  const std::vector<Metric> all =
      metrics(read_stats(need(remote.request("stats"))), health_of(need(remote.request("health"))));
  if (q.json && q.textfile.empty()) {
    Json to = {{"pid", remote.pid()}};
    to.update(Json::parse(metrics_json(all)));
    print_json(to);
    return kOk;
  }
  const auto text = need(metrics_text(all), kFailed);
  if (q.textfile.empty()) return write_out(text), kOk;
  need(write_file(q.textfile, text), kFailed);
  if (q.json) print_json({{"pid", remote.pid()}, {"file", q.textfile}});
  return kOk;
}

}  // namespace

void add_metrics(CLI::App& app, Action& action) {
  const auto [c, q] = add_command<MetricsQuestion>(
      app, action, "metrics", "Print the metrics of a process for Prometheus", show_metrics);
  add_remote_options(*c, *q);
  add_value(*c, "--textfile", q->textfile, "FILE",
            "Write them to a file for node_exporter's textfile collector");
}

}  // namespace yard::tool
