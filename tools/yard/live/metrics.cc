// SPDX-License-Identifier: Apache-2.0
// yard metrics: the metrics of a running process, from its answers.
#include <yard/metrics.h>

#include <algorithm>
#include <chrono>

#include "arguments.h"
#include "commands.h"
#include "files.h"
#include "json.h"
#include "live/remote.h"
#include "output.h"
#include "terminal.h"

namespace yard::tool {
namespace {

struct MetricsQuestion : RemoteQuestion {
  std::string textfile;
};

LatencyHistogram latency_of(const Json& j) {
  LatencyHistogram to;
  to.count = count_at(j, "count"), to.sum_ns = count_at(j, "sum_ns");
  for (const Json& b : list_at(j, "buckets"))
    to.buckets.push_back({count_at(b, "up_to_ns"), count_at(b, "count")});
  return to;
}

CallStats call_of(const Json& j) {
  CallStats to;
  to.op = text_at(j, "op"), to.kernel = text_at(j, "kernel"), to.mode = text_at(j, "mode");
  to.call = text_at(j, "call");
  to.calls = count_at(j, "calls"), to.fallbacks = count_at(j, "fallbacks");
  for (size_t i = 0; i < to.failures.by_class.size(); ++i)
    to.failures.by_class[i] =
        count_at(value_at(j, "failures"), to_string(static_cast<ErrorClass>(i)));
  to.latency = latency_of(value_at(j, "latency"));
  return to;
}

RuntimeStats stats_of(const Json& j) {
  RuntimeStats to;
  to.generation = count_at(j, "generation"), to.selections = count_at(j, "selections");
  to.plans = count_at(j, "plans");
  to.overlays = count_at(j, "overlays"), to.retired = count_at(j, "retired");
  to.states = count_at(j, "states"), to.state_bytes = count_at(j, "state_bytes");
  to.since += std::chrono::duration_cast<std::chrono::system_clock::duration>(
      std::chrono::duration<double>(std::clamp(number_at(j, "since"), 0.0, 4e9)));
  to.sampled_one_in = static_cast<uint32_t>(count_at(j, "sampled_one_in"));
  for (const Json& c : list_at(j, "calls")) to.calls.push_back(call_of(c));
  for (const Json& o : list_at(j, "ops"))
    to.ops.push_back(
        {text_at(o, "op"), count_at(o, "calls"), count_at(o, "hits"), count_at(o, "misses")});
  const Json& r = value_at(j, "reloads");
  to.reloads.applied = count_at(r, "applied"), to.reloads.refused = count_at(r, "refused");
  to.reloads.aborted = count_at(r, "aborted");
  to.reloads.last_ns = count_at(r, "last_ns"), to.reloads.total_ns = count_at(r, "total_ns");
  return to;
}

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

Result<std::vector<Metric>> metrics_of(Remote& remote) {
  const auto stats = remote.request("stats");
  if (!stats.ok()) return stats.status();
  const auto health = remote.request("health");
  if (!health.ok()) return health.status();
  return metrics(stats_of(*stats), health_of(*health));
}

int show_metrics(const MetricsQuestion& q) {
  auto remote = Remote::connect(q.pid);
  if (!remote.ok()) return fail(exit_code(remote.status()), remote.status());
  const auto all = metrics_of(*remote);
  if (!all.ok()) return fail(exit_code(all.status()), all.status());
  if (q.json && q.textfile.empty()) {
    Json to = {{"pid", remote->pid()}};
    to.update(Json::parse(metrics_json(*all)));
    print_json(to);
    return kOk;
  }
  const auto text = metrics_text(*all);
  if (!text.ok()) return fail(kFailed, text.status());
  if (q.textfile.empty()) return write_out(*text), kOk;
  const Status written = write_output(q.textfile, *text);
  if (!written.ok()) return fail(kFailed, written);
  if (q.json) print_json({{"pid", remote->pid()}, {"file", q.textfile}});
  return kOk;
}

}  // namespace

void add_metrics(CLI::App& app, Action& action) {
  const auto [c, q] = add_command<MetricsQuestion>(
      app, action, "metrics", "Print the metrics of a process for Prometheus", show_metrics);
  add_remote_options(*c, *q);
  c->add_option("--textfile", q->textfile,
                "Write them to a file for node_exporter's textfile collector")
      ->type_name("FILE");
  c->footer(
      "The text format of Prometheus. A program can serve the same over HTTP: yard/metrics.h.\n"
      "\n"
      "Examples:\n"
      "  yard metrics --pid 4242\n"
      "  yard metrics --pid 4242 --textfile /var/lib/node_exporter/yard.prom\n"
      "  yard metrics --pid 4242 --json");
}

}  // namespace yard::tool
