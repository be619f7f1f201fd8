// SPDX-License-Identifier: Apache-2.0
// The data of a report from the answers of a running process.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <tuple>
#include <utility>

#include "report/data.h"

namespace yard::tool {
namespace {

using SeriesName = std::tuple<std::string, std::string, std::string, std::string>;

SeriesName series_name(const Json& call) {
  return {text_at(call, "op"), text_at(call, "kernel"), text_at(call, "mode"),
          text_at(call, "call")};
}

// Calls per second between two counts; null where there is none. Counters that were reset meanwhile start at zero.
Json rate_of(uint64_t before, uint64_t after, double seconds) {
  if (seconds <= 0) return nullptr;
  return static_cast<double>(after >= before ? after - before : after) / seconds;
}

std::string utc(double seconds) {
  const auto t = static_cast<std::time_t>(std::clamp(seconds, 0.0, 253402300799.0));
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(t));
}

Json latency_json(const Json& latency) {
  Json buckets = Json::array();
  for (const Json& b : list_at(latency, "buckets"))
    buckets.push_back({number_at(b, "up_to_ns"), count_at(b, "count")});
  return {{"count", count_at(latency, "count")},
          {"sum_ns", count_at(latency, "sum_ns")},
          {"buckets", std::move(buckets)}};
}

Json failures_json(const Json& failures) {
  Json to = Json::object();
  if (failures.is_object())
    for (const auto& [error_class, count] : failures.items())
      if (count.is_number_unsigned()) to[error_class] = count;
  return to;
}

void add_calls(const ProcessAnswers& a, double seconds, Json& to) {
  std::map<SeriesName, uint64_t> before;
  for (const Json& c : list_at(a.samples.front().stats, "calls"))
    before[series_name(c)] += count_at(c, "calls");
  for (const Json& c : list_at(a.samples.back().stats, "calls")) {
    const Json latency = latency_json(value_at(c, "latency"));
    const uint64_t calls = count_at(c, "calls"), timed = count_at(latency, "count");
    const double mean = timed == 0 ? 0 : number_at(latency, "sum_ns") / static_cast<double>(timed);
    to["calls"].push_back({{"op", text_at(c, "op")},
                           {"kernel", text_at(c, "kernel")},
                           {"mode", text_at(c, "mode")},
                           {"call", text_at(c, "call")},
                           {"calls", calls},
                           {"fallbacks", count_at(c, "fallbacks")},
                           {"failures", failures_json(value_at(c, "failures"))},
                           {"latency", latency},
                           {"time_ns", mean * static_cast<double>(calls)},
                           {"rate", rate_of(before[series_name(c)], calls, seconds)}});
  }
}

void add_ops(const ProcessAnswers& a, double seconds, Json& to) {
  std::map<std::string, uint64_t> before;
  for (const Json& o : list_at(a.samples.front().stats, "ops"))
    before[text_at(o, "op")] = count_at(o, "calls");
  for (const Json& o : list_at(a.samples.back().stats, "ops")) {
    const std::string op = text_at(o, "op");
    to["ops"].push_back({{"op", op},
                         {"calls", count_at(o, "calls")},
                         {"hits", count_at(o, "hits")},
                         {"misses", count_at(o, "misses")},
                         {"rate", rate_of(before[op], count_at(o, "calls"), seconds)}});
  }
}

void add_rates(const ProcessAnswers& a, Json& to) {
  std::map<std::string, std::vector<double>> all;
  const size_t intervals = a.samples.size() - 1;
  std::map<std::string, uint64_t> before;
  for (size_t i = 0; i < a.samples.size(); ++i) {
    const double seconds = i == 0 ? 0 : a.samples[i].at - a.samples[i - 1].at;
    for (const Json& o : list_at(a.samples[i].stats, "ops")) {
      const std::string op = text_at(o, "op");
      const uint64_t calls = count_at(o, "calls");
      const uint64_t last = std::exchange(before[op], calls);
      if (seconds <= 0 || calls == last) continue;
      all[op].resize(intervals);
      all[op][i - 1] = rate_of(last, calls, seconds).get<double>();
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
  for (const Json& c : list_at(a.changes, "changes")) {
    const Json& who = value_at(c, "who");
    all.push_back(
        {{"at", number_at(c, "at")},
         {"kind", "change"},
         {"text",
          fmt::format("{}{}", text_at(c, "command"), flag_at(c, "undone") ? ", undone" : "")},
         {"detail", fmt::format("{}{}by user {}, process {} {}", members_text(value_at(c, "args")),
                                value_at(c, "args").empty() ? "" : ", ", number_at(who, "uid"),
                                number_at(who, "pid"), text_at(who, "program"))}});
  }
  std::stable_sort(all.begin(), all.end(), [](const Json& x, const Json& y) {
    return number_at(x, "at") < number_at(y, "at");
  });
  for (Json& e : all) to["events"].push_back(std::move(e));
}

}  // namespace

Json report_of_process(const ProcessAnswers& a) {
  Json to = empty_report();
  const Json& stats = a.samples.back().stats;
  const double seconds = a.samples.back().at - a.samples.front().at;
  to["seconds"] = seconds;
  to["sampled_one_in"] = count_at(stats, "sampled_one_in");
  to["source"] = fmt::format("Process {} ({}), {}. Counted since {}; rates over {:.1f} s.",
                             number_at(a.hello, "pid"), text_at(a.hello, "program"),
                             utc(a.samples.back().at), utc(number_at(stats, "since")), seconds);
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
  const Json& reloads = value_at(stats, "reloads");
  if (reloads.is_object()) {
    to["reloads"] = {{"applied", count_at(reloads, "applied")},
                     {"refused", count_at(reloads, "refused")}};
    if (count_at(reloads, "applied") + count_at(reloads, "refused") > 0)
      to["remarks"].push_back(
          fmt::format("Loads of rules: {} applied, {} refused; rollouts aborted: {}. The last "
                      "load took {:.1f} "
                      "ms.",
                      count_at(reloads, "applied"), count_at(reloads, "refused"),
                      count_at(reloads, "aborted"), number_at(reloads, "last_ns") / 1e6));
    if (const std::string error = text_at(reloads, "last_error"); !error.empty())
      to["remarks"].push_back(fmt::format("The last refused load: {}", error));
  }
  if (const Json& rollout = value_at(a.status, "rollout"); !rollout.is_null() && rollout != false)
    to["remarks"].push_back("A rollout is under way: new rules apply to a share of the calls.");
  add_events(a, to);
  return to;
}

}  // namespace yard::tool
