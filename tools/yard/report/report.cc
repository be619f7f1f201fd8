// SPDX-License-Identifier: Apache-2.0
// yard report: one HTML page about a running process or a trace.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "arguments.h"
#include "commands.h"
#include "files.h"
#include "json.h"
#include "live/remote.h"
#include "output.h"
#include "report/data.h"
#include "terminal.h"

namespace yard::tool {
namespace {

constexpr size_t kMostTrace = size_t{1} << 30;
constexpr double kMostReportSamples = 60, kLeastInterval = 0.5;

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

Result<Report> trace_report(const ReportQuestion& q) {
  const Result<std::string> text = read_input(q.trace, kMostTrace);
  if (!text.ok()) return text.status();
  Result<Json> data = report_of_trace(*text, q.trace);
  if (!data.ok()) return data.status();
  return Report{std::filesystem::path(q.trace).filename().string(), std::move(*data)};
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The figures now, and a few times until the end of the observation.
Status take_samples(Remote& remote, double seconds, std::vector<ProcessAnswers::Sample>& to) {
  const auto start = std::chrono::steady_clock::now();
  const auto steps = std::clamp(static_cast<int>(seconds / kLeastInterval), seconds > 0 ? 1 : 0,
                                static_cast<int>(kMostReportSamples));
  for (int i = 0; i <= steps; ++i) {
    if (i > 0)
      std::this_thread::sleep_until(start + std::chrono::duration<double>(seconds * i / steps));
    auto stats = remote.request("stats");
    if (!stats.ok()) return stats.status();
    to.push_back({now(), std::move(*stats)});
    // Only the first and the last are shown class by class.
    if (i > 1) to[to.size() - 2].stats.erase("calls");
  }
  return {};
}

Result<Report> process_report(const ReportQuestion& q) {
  auto remote = Remote::connect(q.pid);
  if (!remote.ok()) return remote.status();
  ProcessAnswers answers;
  if (Status s = take_samples(*remote, q.seconds, answers.samples); !s.ok()) return s;
  const std::pair<const char*, Json*> rest[] = {{"hello", &answers.hello},
                                                {"status", &answers.status},
                                                {"health", &answers.health},
                                                {"config.history", &answers.history},
                                                {"changes", &answers.changes}};
  for (const auto& [command, to] : rest) {
    auto answer = remote->request(command);
    if (!answer.ok()) return answer.status();
    *to = std::move(*answer);
  }
  const std::string program =
      std::filesystem::path(text_at(answers.hello, "program")).filename().string();
  return Report{fmt::format("{} ({})", program, remote->pid()), report_of_process(answers)};
}

int write_report(const ReportQuestion& q) {
  const Result<Report> report = q.trace.empty() ? process_report(q) : trace_report(q);
  if (!report.ok()) return fail(exit_code(report.status()), report.status());
  const Status written = write_output(q.output, report_page(report->title, report->data));
  if (!written.ok()) return fail(kFailed, written);
  if (q.json)
    print_json({{"file", q.output},
                {"ops", report->data["ops"].size()},
                {"classes", report->data["calls"].size()},
                {"events", report->data["events"].size()}});
  else
    print_out("wrote {}\n", q.output);
  return kOk;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  const auto [c, q] = add_command<ReportQuestion>(
      app, action, "report", "Write an HTML page about calls, kernels and times", write_report);
  CLI::Option* pid =
      add_pid_option(*c, q->pid, "The process to show; needed if several of yours answer");
  c->add_option("--seconds", q->seconds, "How long to observe the process for rates; 5 by default")
      ->type_name("N")
      ->check(between(0.0, 3600.0));
  c->add_option("--trace", q->trace, "The trace to show instead of a process")
      ->type_name("FILE")
      ->check(existing_file())
      ->excludes(pid);
  c->add_option("-o,--output", q->output, "The page; report.html by default")->type_name("FILE");
  c->add_flag("--json", q->json, "JSON for programs instead of text");
  c->footer(
      "The page is one file and uses no network: time by op and kernel, kernel choice by shape\n"
      "class, latency distributions, fallbacks and failures, reloads and rollouts over time.\n"
      "\n"
      "Examples:\n"
      "  yard report --pid 4242 -o report.html\n"
      "  yard report --pid 4242 --seconds 60\n"
      "  yard report --trace t.json -o report.html");
}

}  // namespace yard::tool
