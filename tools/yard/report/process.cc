// SPDX-License-Identifier: Apache-2.0
// Makes a report from the answers of a running process.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <tuple>
#include <utility>

#include "live/answers.h"
#include "report/data.h"

namespace yard::tool {
namespace {

using SeriesName = std::tuple<std::string, std::string, std::string, std::string>;

SeriesName series_name(const CallStats& c) { return {c.op, c.kernel, c.mode, c.call}; }

// Returns calls per second, or null if no time has passed. A count that decreased was reset in
// between and starts at zero.
Json rate_of(uint64_t before, uint64_t after, double seconds) {
  if (seconds <= 0) return nullptr;
  return static_cast<double>(after >= before ? after - before : after) / seconds;
}

std::string utc(double seconds) {
  const auto t = static_cast<std::time_t>(std::clamp(seconds, 0.0, 253402300799.0));
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(t));
}

Json latency_json(const LatencyHistogram& latency) {
  Json buckets = Json::array();
  for (const auto& b : latency.buckets)
    buckets.push_back({static_cast<double>(b.up_to_ns), b.count});
  return {{"count", latency.count}, {"sum_ns", latency.sum_ns}, {"buckets", std::move(buckets)}};
}

void add_calls(const ProcessAnswers& a, double seconds, Json& to) {
  std::map<SeriesName, uint64_t> before;
  for (const CallStats& c : a.samples.front().stats.calls) before[series_name(c)] += c.calls;
  for (const CallStats& c : a.samples.back().stats.calls) {
    Json failures = Json::object();
    for (size_t i = 0; i < c.failures.by_class.size(); ++i)
      if (c.failures.by_class[i] > 0)
        failures[to_string(static_cast<ErrorClass>(i))] = c.failures.by_class[i];
    to["calls"].push_back({{"op", c.op},
                           {"kernel", c.kernel},
                           {"mode", c.mode},
                           {"call", c.call},
                           {"calls", c.calls},
                           {"fallbacks", c.fallbacks},
                           {"failures", std::move(failures)},
                           {"latency", latency_json(c.latency)},
                           {"time_ns", c.latency.mean_ns() * static_cast<double>(c.calls)},
                           {"rate", rate_of(before[series_name(c)], c.calls, seconds)}});
  }
}

void add_ops(const ProcessAnswers& a, double seconds, Json& to) {
  std::map<std::string, uint64_t> before;
  for (const OpStats& o : a.samples.front().stats.ops) before[o.op] = o.calls;
  for (const OpStats& o : a.samples.back().stats.ops)
    to["ops"].push_back({{"op", o.op},
                         {"calls", o.calls},
                         {"hits", o.hits},
                         {"misses", o.misses},
                         {"rate", rate_of(before[o.op], o.calls, seconds)}});
}

void add_rates(const ProcessAnswers& a, Json& to) {
  std::map<std::string, std::vector<double>> all;
  const size_t intervals = a.samples.size() - 1;
  std::map<std::string, uint64_t> before;
  for (size_t i = 0; i < a.samples.size(); ++i) {
    const double seconds = i == 0 ? 0 : a.samples[i].at - a.samples[i - 1].at;
    for (const OpStats& o : a.samples[i].stats.ops) {
      const uint64_t last = std::exchange(before[o.op], o.calls);
      if (seconds <= 0 || o.calls == last) continue;
      all[o.op].resize(intervals);
      all[o.op][i - 1] = rate_of(last, o.calls, seconds).get<double>();
    }
    to["rates"]["times"].push_back(a.samples[i].at);
  }
  to["rates"]["unit"] = "Calls per second";
  to["rates"]["series"] = top_series(all);
}

std::string side_text(const Json& change, const char* side) {
  const std::string text = text_at(change, side);
  return text.empty() ? "none" : text;
}

void add_events(const ProcessAnswers& a, Json& to) {
  std::vector<Json> all;
  for (const Json& v : list_at(a.history, "versions")) {
    std::string detail;
    for (const Json& c : list_at(v, "changes"))
      detail += fmt::format("{}{}: {} -> {}", detail.empty() ? "" : "; ", text_at(c, "path"),
                            side_text(c, "before"), side_text(c, "after"));
    all.push_back(
        {{"at", number_at(v, "at")},
         {"kind", "rules"},
         {"text", fmt::format("version {} from {}{}", count_at(v, "version"), text_at(v, "source"),
                              flag_at(v, "in_force") ? ", in force" : "")},
         {"detail", detail}});
  }
  // The versions of the rules are listed above, with their changes.
  for (const Json& e : list_at(a.events, "events"))
    if (const std::string kind = text_at(e, "kind"); kind != "rules")
      all.push_back(
          {{"at", number_at(e, "at")},
           {"kind", kind},
           {"text", text_at(e, "subject")},
           {"detail", fmt::format("{}{}{}", text_at(e, "reason"),
                                  text_at(e, "who").empty() ? "" : ", by ", text_at(e, "who"))}});
  std::ranges::stable_sort(
      all, [](const Json& x, const Json& y) { return number_at(x, "at") < number_at(y, "at"); });
  for (Json& e : all) to["events"].push_back(std::move(e));
}

}  // namespace

Json report_of_process(const ProcessAnswers& a) {
  Json to = empty_report();
  const RuntimeStats& stats = a.samples.back().stats;
  const double seconds = a.samples.back().at - a.samples.front().at;
  to["seconds"] = seconds;
  to["sampled_one_in"] = stats.sampled_one_in;
  const auto since = std::chrono::duration<double>(stats.since.time_since_epoch()).count();
  to["source"] = fmt::format("Process {} ({}), {}. Counted since {}; rates over {:.1f} s.",
                             number_at(a.hello, "pid"), text_at(a.hello, "program"),
                             utc(a.samples.back().at), utc(since), seconds);
  add_calls(a, seconds, to);
  add_ops(a, seconds, to);
  if (a.samples.size() > 1) add_rates(a, to);
  for (const Json& b : list_at(a.health, "breakers"))
    to["breakers"].push_back(
        {{"op", text_at(b, "op")},
         {"kernel", text_at(b, "kernel")},
         {"key", text_at(b, "key")},
         {"state", text_at(b, "state")},
         {"reason", text_at(b, "reason")},
         {"until_s", value_at(b, "until_s").is_number() ? Json(number_at(b, "until_s")) : Json()}});
  const RuntimeStats::Reloads& reloads = stats.reloads;
  to["reloads"] = {{"applied", reloads.applied}, {"refused", reloads.refused}};
  if (reloads.applied + reloads.refused > 0)
    to["remarks"].push_back(
        fmt::format("Loads of rules: {} applied, {} refused; rollouts aborted: {}. The last load "
                    "took {:.1f} ms.",
                    reloads.applied, reloads.refused, reloads.aborted,
                    static_cast<double>(reloads.last_ns) / 1e6));
  for (const SlowerKernel& k : slower_kernels(a.samples.front().stats, stats))
    to["remarks"].push_back(fmt::format("A slow kernel: {}", k.text()));
  if (!reloads.last_error.empty())
    to["remarks"].push_back(fmt::format("The last refused load: {}", reloads.last_error));
  if (const Json& rollout = value_at(a.status, "rollout"); !rollout.is_null() && rollout != false)
    to["remarks"].push_back("A rollout is under way: new rules apply to a share of the calls.");
  add_events(a, to);
  return to;
}

}  // namespace yard::tool
