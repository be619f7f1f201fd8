// SPDX-License-Identifier: Apache-2.0
// yard report: one HTML page about a running process or a trace.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <filesystem>
#include <memory>

#include "arguments.h"
#include "commands.h"
#include "files.h"
#include "json.h"
#include "output.h"
#include "report_data.h"
#include "terminal.h"

namespace yard::tool {
namespace {

constexpr size_t kMostTrace = size_t{1} << 30;

struct ReportQuestion {
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

int write_report(const ReportQuestion& q) {
  const Result<Report> report = trace_report(q);
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
  auto q = std::make_shared<ReportQuestion>();
  CLI::App* c = app.add_subcommand("report", "Write an HTML page about calls, kernels and times");
  c->add_option("--trace", q->trace, "The trace to show")
      ->required()
      ->type_name("FILE")
      ->check(existing_file());
  c->add_option("-o,--output", q->output, "The page; report.html by default")->type_name("FILE");
  c->add_flag("--json", q->json, "JSON for programs instead of text");
  c->footer(
      "The page is one file and uses no network: time by op and kernel, kernel choice by shape\n"
      "class, latency distributions, fallbacks and failures, reloads and rollouts over time.\n"
      "\n"
      "Examples:\n"
      "  yard report --trace t.json -o report.html");
  c->callback([q, &action] { action = [q] { return write_report(*q); }; });
}

}  // namespace yard::tool
