// SPDX-License-Identifier: Apache-2.0
// yard log, verbose, trace and record: what a running process writes about its calls.
#include <fmt/format.h>
#include <yard/log.h>
#include <CLI/CLI.hpp>

#include <csignal>
#include <ctime>
#include <filesystem>

#include "arguments.h"
#include "commands.h"
#include "files.h"
#include "live/remote.h"
#include "output.h"
#include "terminal.h"

namespace yard::tool {
namespace {

// ---- log and verbose ----

struct LogQuestion : RemoteQuestion {
  std::string level, logger;
};
struct VerboseQuestion : RemoteQuestion {
  int level = 0;
};

int set_log(const LogQuestion& q) {
  Json args = {{"level", q.level}};
  if (!q.logger.empty()) args["logger"] = q.logger;
  return ask(q, "log", args, [&](int64_t pid, const Json&) {
    print_out("process {} logs {}{}\n", pid, q.level, q.logger.empty() ? "" : " of " + q.logger);
  });
}

std::vector<std::string> logger_names() {
  std::vector<std::string> to;
  for (const std::string_view name : loggers()) to.emplace_back(name);
  return to;
}

// ---- trace ----

struct TraceQuestion : RemoteQuestion {
  double seconds = 5;
  std::string output;
  uint64_t max_events = 0;
};

// Waits, but not longer than until SIGINT, SIGTERM or SIGHUP: the trace must be stopped then, too. The signal; 0: none.
int wait_or_signal(double seconds) {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&wanted, s);
  ::pthread_sigmask(SIG_BLOCK, &wanted, nullptr);
  timespec most{};
  most.tv_sec = static_cast<time_t>(seconds);
  most.tv_nsec = static_cast<long>((seconds - static_cast<double>(most.tv_sec)) * 1e9);
  const int signal = ::sigtimedwait(&wanted, nullptr, &most);
  return signal > 0 ? signal : 0;
}

int trace_calls(const TraceQuestion& q) {
  auto remote = Remote::connect(q.pid, std::chrono::seconds(60));
  if (!remote.ok()) return fail(exit_code(remote.status()), remote.status());
  Json args = Json::object();
  if (q.max_events > 0) args["max_events"] = q.max_events;
  if (const auto started = remote->request("trace.start", args); !started.ok())
    return fail(exit_code(started.status()), started.status());
  wait_or_signal(q.seconds);
  const auto trace = remote->request("trace.stop");
  if (!trace.ok()) return fail(exit_code(trace.status()), trace.status());
  if (const Status s = write_output(
          q.output, trace->dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
      !s.ok())
    return fail(kFailed, s);
  const size_t events = list_at(*trace, "traceEvents").size();
  const uint64_t dropped = count_at(value_at(*trace, "otherData"), "dropped");
  if (q.json) {
    print_json(
        {{"pid", remote->pid()}, {"file", q.output}, {"events", events}, {"dropped", dropped}});
    return kOk;
  }
  print_out("{}: {} events of process {}{}\n", q.output, events, remote->pid(),
            dropped > 0 ? fmt::format(", {} more were dropped", dropped) : "");
  print_out("  open it at https://ui.perfetto.dev or in chrome://tracing\n");
  return kOk;
}

// ---- record ----

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
  // The process may have another working directory.
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
  c->add_option("--logger", q->logger, "Only this logger: select, policy, ...")
      ->type_name("NAME")
      ->check(one_of(logger_names()));
  add_remote_options(*c, *q);
  c->footer(
      "Messages go where the process writes them, its stderr by default.\n"
      "\n"
      "Examples:\n"
      "  yard log debug --pid 4242\n"
      "  yard log debug --logger select --pid 4242       why calls get their kernels\n"
      "  yard log warn --pid 4242                        the level of a new process");
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
  c->footer(
      "Lines go to the stderr of the process; YARD_VERBOSE is the same from its start:\n"
      "  yard,exec,rms_norm,default.simd,f32[8,4096] f32[4096],hit,12.4us\n"
      "\n"
      "Examples:\n"
      "  yard verbose 1 --pid 4242\n"
      "  yard verbose 0 --pid 4242");
}

void add_trace(CLI::App& app, Action& action) {
  const auto [c, q] = add_command<TraceQuestion>(
      app, action, "trace", "Trace the calls of a running process for some seconds", trace_calls);
  c->add_option("--seconds", q->seconds, "How long; 5")
      ->type_name("S")
      ->check(between<double>(0.01, 600));
  c->add_option("-o,--output", q->output, "The file to write")->required()->type_name("FILE");
  c->add_option("--max-events", q->max_events,
                "Events that are kept, 100000; more are only counted")
      ->type_name("N")
      ->check(between<uint64_t>(1, 100000));
  add_remote_options(*c, *q);
  c->footer(
      "Writes a file that Perfetto and chrome://tracing open: a span for each kernel with its\n"
      "CallSpec; selections, fallbacks, reloads and breakers. Ctrl-C ends it early, with what was\n"
      "traced until then.\n"
      "\n"
      "Examples:\n"
      "  yard trace -o t.json --pid 4242\n"
      "  yard trace --seconds 0.5 -o t.json --max-events 20000 --pid 4242");
}

void add_record(CLI::App& app, Action& action) {
  const auto [c, q] = add_command<RecordQuestion>(
      app, action, "record", "Let a running process record its calls to a file", record_calls);
  c->add_option("FILE", q->file, "The file, which the process writes")->type_name("FILE");
  c->add_flag("--stop", q->stop, "End the recording");
  add_remote_options(*c, *q);
  c->footer(
      "Each call once, with its count: what yard bake, yard verify and yard config simulate read.\n"
      "YARD_RECORD is the same from the start of a process.\n"
      "\n"
      "Examples:\n"
      "  yard record calls.txt --pid 4242\n"
      "  yard record --stop --pid 4242\n"
      "  yard config simulate new.yaml --trace calls.txt");
}

}  // namespace yard::tool
