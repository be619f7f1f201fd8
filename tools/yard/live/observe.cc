// SPDX-License-Identifier: Apache-2.0
// yard log, verbose, trace and record: control what a running process writes about its calls.
#include <fmt/format.h>
#include <yard/log.h>
#include <yard/trace.h>
#include <CLI/CLI.hpp>

#include <csignal>
#include <ctime>
#include <filesystem>

#include "arguments.h"
#include "commands.h"
#include "live/remote.h"
#include "output.h"
#include "terminal.h"

namespace yard::tool {
namespace {

struct LogQuestion : RemoteQuestion {
  std::string level, logger;
};
struct VerboseQuestion : RemoteQuestion {
  int level = 0;
};

int set_log(const LogQuestion& q) {
  return ask(q, "log", arguments({{"level", q.level}, {"logger", q.logger}}),
             [&](int64_t pid, const Json&) {
               print_out("process {} logs {}{}\n", pid, q.level,
                         q.logger.empty() ? "" : " of " + q.logger);
             });
}

std::vector<std::string> logger_names() {
  std::vector<std::string> to;
  for (const std::string_view name : loggers()) to.emplace_back(name);
  return to;
}

struct TraceQuestion : RemoteQuestion {
  double seconds = 5;
  std::string output;
  uint64_t max_events = 0;
};

// Blocks SIGINT, SIGTERM and SIGHUP, so that they end a trace instead of the command.
sigset_t block_signals() {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&wanted, s);
  ::pthread_sigmask(SIG_BLOCK, &wanted, nullptr);
  return wanted;
}

void wait_or_signal(const sigset_t& wanted, double seconds) {
  timespec most{};
  most.tv_sec = static_cast<time_t>(seconds);
  most.tv_nsec = static_cast<long>((seconds - static_cast<double>(most.tv_sec)) * 1e9);
  ::sigtimedwait(&wanted, nullptr, &most);
}

int trace_calls(const TraceQuestion& q) {
  auto remote = need(Remote::connect(q.pid, std::chrono::seconds(60)));
  Json args = Json::object();
  if (q.max_events > 0) args["max_events"] = q.max_events;
  const sigset_t signals = block_signals();
  if (const auto started = remote.request("trace.start", args); !started.ok())
    return fail(exit_code(started.status()), started.status());
  wait_or_signal(signals, q.seconds);
  const auto trace = need(remote.request("trace.stop"));
  need(write_file(q.output, trace.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n'),
       kFailed);
  const size_t events = list_at(trace, "traceEvents").size();
  const uint64_t dropped = count_at(value_at(trace, "otherData"), "dropped");
  if (q.json) {
    print_json(
        {{"pid", remote.pid()}, {"file", q.output}, {"events", events}, {"dropped", dropped}});
    return kOk;
  }
  print_out("{}: {} events of process {}{}\n", q.output, events, remote.pid(),
            dropped > 0 ? fmt::format(", {} more were dropped", dropped) : "");
  print_out("  open it at https://ui.perfetto.dev or in chrome://tracing\n");
  return kOk;
}

struct RecordQuestion : RemoteQuestion {
  std::string file;
  bool stop = false;
};

int record_calls(const RecordQuestion& q) {
  if (q.stop == !q.file.empty())
    return fail(kUsage, q.stop ? fmt::format("--stop: expected no file beside it, got '{}'", q.file)
                               : "expected a FILE to record to, or --stop; got neither");
  if (q.stop)
    return ask(q, "record.stop", Json::object(),
               [](int64_t pid, const Json&) { print_out("process {} records no more\n", pid); });
  // The process may have another working directory, so the path must be absolute.
  const std::string path = std::filesystem::absolute(q.file).lexically_normal().string();
  return ask(q, "record", {{"path", path}}, [&](int64_t pid, const Json&) {
    print_out("process {} records its calls to {}\n  to end it: yard record --stop --pid {}\n", pid,
              path, pid);
  });
}

}  // namespace

void add_log(CLI::App& app, Action& action) {
  const auto [c, q] = add_command<LogQuestion>(app, action, "log",
                                               "Set the log level of a running process", set_log);
  c->add_option("LEVEL", q->level, "debug, info, warn, error or off")
      ->required()
      ->check(one_of({"debug", "info", "warn", "error", "off"}));
  add_value(*c, "--logger", q->logger, "NAME", "Only this logger: select, policy, ...")
      ->check(one_of(logger_names()));
  add_remote_options(*c, *q);
}

void add_verbose(CLI::App& app, Action& action) {
  const auto run = [](const VerboseQuestion& q) {
    return ask(q, "verbose", {{"level", q.level}}, [&](int64_t pid, const Json&) {
      print_out("process {}: verbose {}\n", pid, q.level);
    });
  };
  const auto [c, q] = add_command<VerboseQuestion>(
      app, action, "verbose", "Let a running process write a line for each call", run);
  c->add_option("VERBOSITY", q->level, "0: off; 1: each call; 2: selections and transforms, too")
      ->required()
      ->check(between<int>(0, 2));
  add_remote_options(*c, *q);
}

void add_trace(CLI::App& app, Action& action) {
  const auto [c, q] = add_command<TraceQuestion>(
      app, action, "trace", "Trace the calls of a running process for some seconds", trace_calls);
  add_value(*c, "--seconds", q->seconds, "S", "How long; 5")->check(between<double>(0.01, 600));
  add_value(*c, "-o,--output", q->output, "FILE", "The file to write")->required();
  add_value(*c, "--max-events", q->max_events, "N",
            "Events that are kept, 100000; more are only counted")
      ->check(between<uint64_t>(1, 100000));
  add_remote_options(*c, *q);
}

void add_record(CLI::App& app, Action& action) {
  const auto [c, q] = add_command<RecordQuestion>(
      app, action, "record", "Let a running process record its calls to a file", record_calls);
  c->add_option("FILE", q->file, "The file, which the process writes")->type_name("FILE");
  c->add_flag("--stop", q->stop, "End the recording");
  add_remote_options(*c, *q);
}

}  // namespace yard::tool
