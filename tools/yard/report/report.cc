// SPDX-License-Identifier: Apache-2.0
// yard report: writes an HTML page about a running process or a trace.
#include <fmt/format.h>
#include <yard/trace.h>
#include <yard/version.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "arguments.h"
#include "commands.h"
#include "json.h"
#include "live/answers.h"
#include "live/remote.h"
#include "output.h"
#include "report/data.h"
#include "templates.h"
#include "terminal.h"

namespace yard::tool {
namespace {

constexpr size_t kMostSeries = 6, kLongestText = 2000;
constexpr size_t kMostTrace = size_t{1} << 30;
constexpr double kMostReportSamples = 60, kLeastInterval = 0.5;

using Replacements = std::map<char, const char*>;
std::string replaced(std::string_view text, const Replacements& with) {
  std::string to;
  for (const char c : text)
    if (const auto at = with.find(c); at != with.end())
      to += at->second;
    else
      to += c;
  return to;
}

// Formats a value, such as an object as "b:1,c:...". Values nested deeper than `depth` become
// "...".
std::string value_text(const Json& value, int depth) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_structured()) return value.dump();
  if (depth == 0) return "...";
  std::string to;
  for (const auto& [key, part] : value.items())
    to += (to.empty() ? "" : ",") + (value.is_object() ? key + ":" : "") +
          value_text(part, depth - 1);
  return to;
}

struct ReportQuestion {
  int64_t pid = 0;
  double seconds = 5;
  std::string trace, output = "report.html";
  bool json = false;
};

struct Report {
  std::string title;
  Json data;
};

Report trace_report(const ReportQuestion& q) {
  const std::string text = need(read_input(q.trace, kMostTrace));
  return {std::filesystem::path(q.trace).filename().string(), need(report_of_trace(text, q.trace))};
}

// Asks for the statistics now and several times until the observation ends.
std::vector<ProcessAnswers::Sample> take_samples(Remote& remote, double seconds) {
  std::vector<ProcessAnswers::Sample> to;
  const auto start = std::chrono::steady_clock::now();
  const auto steps = std::clamp(static_cast<int>(seconds / kLeastInterval), seconds > 0 ? 1 : 0,
                                static_cast<int>(kMostReportSamples));
  for (int i = 0; i <= steps; ++i) {
    if (i > 0)
      std::this_thread::sleep_until(start + std::chrono::duration<double>(seconds * i / steps));
    const Json stats = need(remote.request("stats"));
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    to.push_back({std::chrono::duration<double>(now).count(), read_stats(stats)});
    // The report shows classes only for the first and the last sample.
    if (i > 1) to[to.size() - 2].stats.calls.clear();
  }
  return to;
}

Report process_report(const ReportQuestion& q) {
  Remote remote = need(Remote::connect(q.pid));
  const auto ask = [&](const char* command) { return need(remote.request(command)); };
  ProcessAnswers answers;
  answers.samples = take_samples(remote, q.seconds);
  answers.hello = ask("hello"), answers.status = ask("status"), answers.health = ask("health");
  answers.history = ask("config.history"), answers.events = ask("events");
  const std::string program =
      std::filesystem::path(text_at(answers.hello, "program")).filename().string();
  return {fmt::format("{} ({})", program, remote.pid()), report_of_process(answers)};
}

int write_report(const ReportQuestion& q) {
  const Report report = q.trace.empty() ? process_report(q) : trace_report(q);
  need(write_file(q.output, report_page(report.title, report.data)), kFailed);
  if (q.json)
    print_json({{"file", q.output},
                {"ops", report.data["ops"].size()},
                {"classes", report.data["calls"].size()},
                {"events", report.data["events"].size()}});
  else
    print_out("wrote {}\n", q.output);
  return kOk;
}

}  // namespace

Json empty_report() {
  return {{"source", ""},
          {"remarks", Json::array()},
          {"relative", false},
          {"seconds", 0},
          {"exact", false},
          {"sampled_one_in", 0},
          {"calls", Json::array()},
          {"ops", Json::array()},
          {"breakers", Json::array()},
          {"reloads", nullptr},
          {"rates", {{"unit", ""}, {"times", Json::array()}, {"series", Json::array()}}},
          {"events", Json::array()}};
}

std::string members_text(const Json& object) {
  std::string to;
  if (object.is_object())
    for (const auto& [key, value] : object.items())
      if (to.size() <= kLongestText)
        to += (to.empty() ? "" : " ") + key + "=" + value_text(value, 1).substr(0, kLongestText);
  return to;
}

Json top_series(const std::map<std::string, std::vector<double>>& all) {
  std::vector<std::pair<double, const std::string*>> order;
  for (const auto& [op, values] : all) {
    double sum = 0;
    for (const double v : values) sum += v;
    order.emplace_back(-sum, &op);
  }
  std::ranges::sort(order, [](const auto& a, const auto& b) {
    return std::pair(a.first, *a.second) < std::pair(b.first, *b.second);
  });
  Json to = Json::array();
  std::vector<double> rest;
  for (size_t i = 0; i < order.size(); ++i) {
    const std::vector<double>& values = all.at(*order[i].second);
    if (i < kMostSeries) {
      to.push_back({{"op", *order[i].second}, {"values", values}});
      continue;
    }
    rest.resize(std::max(rest.size(), values.size()));
    for (size_t k = 0; k < values.size(); ++k) rest[k] += values[k];
  }
  if (!rest.empty()) to.push_back({{"op", "other ops"}, {"values", rest}});
  return to;
}

std::string report_page(const std::string& title, const Json& data) {
  static const Replacements kMarkup = {
      {'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}, {'"', "&quot;"}};
  // Escape the JSON, because a hostile name in it could end the script element.
  static const Replacements kInScript = {{'<', "\\u003c"}, {'>', "\\u003e"}, {'&', "\\u0026"}};
  const std::string json = data.dump(-1, ' ', true, Json::error_handler_t::replace);
  return fill_in("report.html",
                 {{"TITLE", replaced(title, kMarkup)},
                  {"STYLE", fill_in("report.css", {})},
                  {"VERSION", YARD_VERSION},
                  {"DATA", replaced(json, kInScript)},
                  {"SCRIPT", fill_in("report.js", {}) + fill_in("report_charts.js", {})}});
}

void add_report(CLI::App& app, Action& action) {
  const auto [c, q] = add_command<ReportQuestion>(
      app, action, "report", "Write an HTML page about calls, kernels and times", write_report);
  CLI::Option* pid =
      add_pid_option(*c, q->pid, "The process to show; needed if several of yours answer");
  add_value(*c, "--seconds", q->seconds, "N",
            "How long to observe the process for rates; 5 by default")
      ->check(between(0.0, 3600.0));
  add_file(*c, "--trace", q->trace, "The trace to show instead of a process")->excludes(pid);
  add_value(*c, "-o,--output", q->output, "FILE", "The page; report.html by default");
}

}  // namespace yard::tool
