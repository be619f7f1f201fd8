// SPDX-License-Identifier: Apache-2.0
// Makes a report from a trace in the trace event format.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>
#include <utility>

#include "report/data.h"

namespace yard::tool {
namespace {

constexpr size_t kMostEvents = 5000, kMostIntervals = 120;
constexpr double kLongest = 1e9;  // the longest trace, in seconds

struct Call {
  uint64_t calls = 0, fallbacks = 0, ns = 0;
  std::map<std::string, uint64_t> failures;  // by error class
  std::map<uint64_t, uint64_t> latencies;    // counts, by the upper bound of the bucket
};
struct OpCalls {
  uint64_t calls = 0, hits = 0, misses = 0;
};

// A call that began before the trace has a negative time.
bool is_time(double us) { return std::isfinite(us) && std::fabs(us) < kLongest * 1e6; }

// Returns the upper bound of the bucket. There are four buckets for each factor of two.
uint64_t bucket_of(uint64_t ns) {
  if (ns < 4) return ns;
  const int shift = std::bit_width(ns) - 3;
  return ((ns >> shift) << shift) + ((uint64_t{1} << shift) - 1);
}

// Returns the class of an error, such as "fault" for "fault: device lost".
std::string class_of(const std::string& error) {
  for (int i = YARD_CALLER; i <= YARD_FATAL; ++i)
    if (const std::string name = to_string(static_cast<ErrorClass>(i));
        error.starts_with(name + ":"))
      return name;
  return "other";
}

class TraceReport {
 public:
  void add(const Json& event) {
    const std::string kind = text_at(event, "cat");
    const double at = number_at(event, "ts"), us = number_at(event, "dur");
    if (text_at(event, "ph") == "M" || kind.empty()) return;
    if (!is_time(at) || !is_time(us) || us < 0) {
      ++invalid_;
      return;
    }
    first_ = is_empty() ? at : std::min(first_, at);
    last_ = is_empty() ? at + us : std::max(last_, at + us);
    ++valid_;
    if (kind == "kernel")
      add_call(event, at, us);
    else
      add_event(event, kind, at, us);
  }

  Json report() {
    Json to = empty_report();
    to["relative"] = to["exact"] = true;
    const double seconds = (last_ - first_) / 1e6;
    to["seconds"] = seconds;
    for (const auto& [name, c] : calls_) {
      const auto& [op, kernel, mode, call] = name;
      to["calls"].push_back(
          {{"op", op},
           {"kernel", kernel},
           {"mode", mode},
           {"call", call},
           {"calls", c.calls},
           {"fallbacks", c.fallbacks},
           {"failures", c.failures},
           {"latency", {{"count", c.calls}, {"sum_ns", c.ns}, {"buckets", c.latencies}}},
           {"time_ns", c.ns},
           {"rate", rate(c.calls, seconds)}});
    }
    for (const auto& [op, o] : ops_)
      to["ops"].push_back({{"op", op},
                           {"calls", o.calls},
                           {"hits", o.hits},
                           {"misses", o.misses},
                           {"rate", rate(o.calls, seconds)}});
    add_rates(to, seconds);
    for (Json& e : events_) {
      e["at"] = (number_at(e, "at") - first_) / 1e6;
      to["events"].push_back(std::move(e));
    }
    if (events_left_out_ != 0)
      to["remarks"].push_back(fmt::format("{} more events are not listed.", events_left_out_));
    if (invalid_ != 0)
      to["remarks"].push_back(
          fmt::format("{} events without a valid time are left out.", invalid_));
    return to;
  }

  bool is_empty() const { return valid_ == 0; }

 private:
  static Json rate(uint64_t calls, double seconds) {
    return seconds > 0 ? Json(static_cast<double>(calls) / seconds) : Json();
  }

  void add_call(const Json& event, double at, double us) {
    const Json& args = value_at(event, "args");
    const std::string op = text_at(event, "name");
    Call& c = calls_[{op, text_at(args, "kernel"), text_at(args, "mode"), text_at(args, "call")}];
    const auto ns = static_cast<uint64_t>(us * 1e3);
    ++c.calls, c.ns += ns;
    if (flag_at(args, "fallback")) ++c.fallbacks;
    ++c.latencies[bucket_of(ns)];
    OpCalls& o = ops_[op];
    ++o.calls, ++(flag_at(args, "hit") ? o.hits : o.misses);
    spans_.emplace_back(at, op);
  }

  void add_event(const Json& event, const std::string& kind, double at, double us) {
    const Json& args = value_at(event, "args");
    if (kind == "fallback")
      ++calls_[{text_at(args, "op"), text_at(args, "kernel"), "", text_at(args, "call")}]
            .failures[class_of(text_at(args, "error"))];
    if (events_.size() == kMostEvents) {
      ++events_left_out_;
      return;
    }
    std::string detail = members_text(args);
    if (us > 0) detail += fmt::format("{}took {:.1f} us", detail.empty() ? "" : ", ", us);
    events_.push_back(
        {{"at", at}, {"kind", kind}, {"text", text_at(event, "name")}, {"detail", detail}});
  }

  void add_rates(Json& to, double seconds) const {
    if (spans_.empty() || seconds <= 0) return;
    const size_t n = std::min(kMostIntervals, std::max<size_t>(10, spans_.size() / 4));
    const double each = seconds / static_cast<double>(n);
    std::map<std::string, std::vector<double>> all;
    for (const auto& [at, op] : spans_) {
      std::vector<double>& values = all[op];
      values.resize(n);
      const auto i = static_cast<size_t>((at - first_) / 1e6 / each);
      values[std::min(i, n - 1)] += 1 / each;
    }
    Json& rates = to["rates"];
    rates["unit"] = "Calls per second";
    for (size_t i = 0; i <= n; ++i) rates["times"].push_back(static_cast<double>(i) * each);
    rates["series"] = top_series(all);
  }

  std::map<std::tuple<std::string, std::string, std::string, std::string>, Call> calls_;
  std::map<std::string, OpCalls> ops_;
  std::vector<std::pair<double, std::string>> spans_;
  std::vector<Json> events_;
  uint64_t valid_ = 0, invalid_ = 0, events_left_out_ = 0;
  double first_ = 0, last_ = 0;
};

}  // namespace

Result<Json> report_of_trace(const std::string& text, const std::string& file) {
  const Json trace = parse_json(text);
  const Json& events = trace.is_array() ? trace : value_at(trace, "traceEvents");
  if (!events.is_array())
    return Status(Code::kParse,
                  fmt::format("invalid trace {}: expected JSON with a list traceEvents, got {}",
                              file, trace.is_discarded() ? "text that is not JSON" : "other JSON"));
  TraceReport report;
  for (const Json& e : events) report.add(e);
  if (report.is_empty())
    return Status(Code::kParse,
                  fmt::format("invalid trace {}: expected events with a category and a time, got "
                              "{} others",
                              file, events.size()));
  Json to = report.report();
  const uint64_t dropped = count_at(value_at(trace, "otherData"), "dropped");
  to["source"] = fmt::format("Trace {}, {:.3f} s", file, to["seconds"].get<double>());
  if (dropped != 0)
    to["remarks"].push_back(fmt::format(
        "The trace is not complete: it was full, and {} events were dropped.", dropped));
  return to;
}

}  // namespace yard::tool
