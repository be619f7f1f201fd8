// SPDX-License-Identifier: Apache-2.0
// yard top: the live table of a running process. It asks once a second over one connection. model.h
// turns the answers into figures, frame.h turns the figures into lines, and screen.h shows the lines.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "arguments.h"
#include "commands.h"
#include "live/remote.h"
#include "output.h"
#include "terminal.h"
#include "top/frame.h"
#include "top/screen.h"

namespace yard::tool {
namespace {

using Clock = std::chrono::steady_clock;

// Classes of an op without a listed plan that are explained at each look.
constexpr size_t kMostExplained = 16;

struct TopQuestion {
  int64_t pid = 0;
  double interval_s = 1;
  std::string sort = "share", filter, op;
  bool once = false, json = false;
};

double seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// The process, asked again and again.
class Source {
 public:
  explicit Source(Remote remote) : remote_(std::move(remote)) {}

  Status begin() {
    const auto hello = remote_.request("hello");
    if (!hello.ok()) return hello.status();
    TopProcess& p = data_.process;
    p.pid = remote_.pid();
    p.program = std::filesystem::path(text_at(*hello, "program")).filename().string();
    p.version = text_at(*hello, "version");
    started_ = number_at(*hello, "started");
    return update("");
  }

  // `op`: the plans of this op, too.
  Status update(const std::string& op) {
    const auto stats = remote_.request("stats");
    if (!stats.ok()) return stats.status();
    const double at = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
    const auto health = remote_.request("health");
    if (!health.ok()) return health.status();
    const auto status = remote_.request("status");
    if (!status.ok()) return status.status();
    const double now = seconds_since_1970();
    TopSample sample = read_sample(*stats, *health, at, now);
    data_.model = compare(before_ ? &*before_ : nullptr, sample);
    before_ = std::move(sample);
    data_.process.up_s = now - started_;
    data_.process.problem.clear();
    read_status(*status);
    YARD_RETURN_IF_ERROR(read_rules_age(now));
    return update_plans(op);
  }

  Status update_plans(const std::string& op) {
    data_.plans.clear();
    if (op.empty()) return {};
    const auto plans = remote_.request("plans", {{"op", op}});
    if (!plans.ok()) return plans.status();
    for (const Json& p : list_at(*plans, "plans")) {
      TopPlan& to = data_.plans.emplace_back();
      to.call = text_at(p, "call"), to.kernel = text_at(p, "kernel"), to.mode = text_at(p, "mode");
      to.direct = flag_at(p, "direct");
      for (const Json& r : list_at(p, "rejected"))
        to.rejected.push_back({text_at(r, "kernel"), text_at(r, "reason"), text_at(r, "detail")});
    }
    return explain_others(op);
  }

  TopData& data() { return data_; }

 private:
  void read_status(const Json& s) {
    TopProcess& p = data_.process;
    const Json& config = value_at(s, "config");
    const uint64_t version = count_at(config, "version");
    const std::string path = text_at(config, "path");
    p.rules = version == 0 && path.empty()
                  ? ""
                  : fmt::format("version {} of {}", version,
                                path.empty() ? "the program"
                                             : std::filesystem::path(path).filename().string());
    const Json& change = value_at(s, "last_change");
    p.last_change = change.is_object()
                        ? fmt::format("{}, {}", change_text(change), change_origin(change))
                        : text_at(s, "last_change");
    p.switches.clear();
    const auto add = [&](const std::string& text) {
      p.switches += (p.switches.empty() ? "" : ", ") + text;
    };
    if (const uint64_t level = count_at(s, "verbose"); level > 0)
      add(fmt::format("verbose {}", level));
    if (flag_at(s, "trace")) add("trace");
    if (!text_at(s, "recording").empty()) add("recording");
    if (flag_at(s, "rollout")) add("rollout");
  }

  // Plans of calls with labels, options or a policy of their own are not listed: how their classes are served is
  // explained instead, for the busiest.
  Status explain_others(const std::string& op) {
    std::vector<TopRow> others;
    for (const TopRow& r : data_.model.classes) {
      const auto is_of = [&](const TopPlan& p) { return p.call == r.call; };
      if (r.op == op && r.call != "other" &&
          std::none_of(data_.plans.begin(), data_.plans.end(), is_of) &&
          std::none_of(others.begin(), others.end(),
                       [&](const TopRow& o) { return o.call == r.call; }))
        others.push_back(r);
    }
    others = chosen_rows(others, "", TopSort::kCalls, false);
    others.resize(std::min(others.size(), kMostExplained));
    for (const TopRow& r : others) {
      const auto e = remote_.request("explain", {{"call", r.call}});
      if (e.status().code() == Code::kDeadline) return e.status();
      if (!e.ok()) continue;  // a class whose CallSpec needs what only the process has
      TopPlan& to = data_.plans.emplace_back();
      to.call = r.call, to.kernel = text_at(*e, "selected"), to.mode = r.mode, to.direct = true;
      for (const Json& c : list_at(*e, "candidates"))
        if (text_at(c, "verdict") != "selected")
          to.rejected.push_back({text_at(c, "id"), text_at(c, "reason"), text_at(c, "detail")});
    }
    return {};
  }

  // The history is read when something has been published only.
  Status read_rules_age(double now) {
    TopProcess& p = data_.process;
    if (history_of_ != data_.model.generation) {
      const auto history = remote_.request("config.history");
      if (!history.ok()) return history.status();
      loaded_ = -1;
      for (const Json& v : list_at(*history, "versions"))
        if (flag_at(v, "in_force")) loaded_ = number_at(v, "at");
      history_of_ = data_.model.generation;
    }
    p.rules_age_s = loaded_ > 0 && !p.rules.empty() ? now - loaded_ : -1;
    return {};
  }

  Remote remote_;
  TopData data_;
  std::optional<TopSample> before_;
  std::optional<uint64_t> history_of_;  // the generation in which it was read
  double started_ = 0, loaded_ = -1;
};

Clock::duration interval(const TopQuestion& q) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(q.interval_s));
}

int print_once(const TopQuestion& q, Source& source, const TopView& view) {
  std::this_thread::sleep_for(interval(q));
  if (const Status s = source.update(q.op); !s.ok()) return fail(exit_code(s), s);
  if (!q.json) {
    print_out("{}", plain_frame(source.data(), view));
    return kOk;
  }
  const TopProcess& p = source.data().process;
  Json all = {{"pid", p.pid}, {"program", p.program}, {"version", p.version}};
  all.update(to_json(source.data().model));
  print_json(all);
  return kOk;
}

// What one turn of the loop has found.
struct Turn {
  bool go_on = true;
  int signal = 0;
  Status problem;
};

Turn react(const Screen::Event& event, Source& source, TopView& view, size_t height) {
  Turn to;
  if (event.kind == Screen::Event::Kind::kEnd) {
    to.go_on = false;
    to.signal = event.signal == SIGINT ? 0 : event.signal;
  } else if (event.kind == Screen::Event::Kind::kKey) {
    const std::string before = view.op;
    to.go_on = handle_key(event.input, source.data(), height, view);
    if (view.op != before) to.problem = source.update_plans(view.op);
  }
  return to;
}

Turn watch(const TopQuestion& q, Source& source, TopView& view) {
  Screen screen;
  Clock::time_point next =
      Clock::now() + std::min<Clock::duration>(interval(q), std::chrono::milliseconds(500));
  for (;;) {
    const auto [width, height] = screen.size();
    screen.draw(frame(source.data(), view, width, height));
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    const auto event = screen.wait(std::max(left, std::chrono::milliseconds(0)));
    Turn turn = react(event, source, view, height);
    if (turn.problem.ok() && turn.go_on && Clock::now() >= next) {
      if (!view.paused) turn.problem = source.update(view.op);
      next = Clock::now() + interval(q);
    }
    // A process that is only slow, or stopped by a debugger, may answer again.
    if (turn.problem.code() == Code::kDeadline)
      source.data().process.problem = "not answering", turn.problem = Status();
    if (!turn.go_on || !turn.problem.ok()) return turn;
  }
}

std::optional<TopSort> sort_named(const std::string& name) {
  for (const TopSort s : {TopSort::kShare, TopSort::kCalls, TopSort::kLatency, TopSort::kHealth,
                          TopSort::kOp, TopSort::kKernel})
    if (name == to_string(s)) return s;
  return std::nullopt;
}

int show_top(const TopQuestion& q) {
  const bool live = !q.once && !q.json;
  if (live)
    if (const std::string why = Screen::unavailable(); !why.empty()) return fail(kUsage, why);
  auto remote = Remote::connect(q.pid, std::chrono::seconds(live ? 1 : 10));
  if (!remote.ok()) return fail(exit_code(remote.status()), remote.status());
  Source source(std::move(*remote));
  TopView view;
  view.sort = *sort_named(q.sort), view.filter = q.filter, view.op = q.op;
  if (const Status s = source.begin(); !s.ok()) return fail(exit_code(s), s);
  if (!live) return print_once(q, source, view);
  const Turn end = watch(q, source, view);
  if (end.signal != 0) {
    std::signal(end.signal, SIG_DFL);
    std::raise(end.signal);
  }
  if (end.problem.ok()) return kOk;
  Status problem = end.problem;
  problem.note(fmt::format("the connection to process {} was lost; has it ended?",
                           source.data().process.pid));
  return fail(kFailed, problem);
}

}  // namespace

void add_top(CLI::App& app, Action& action) {
  const auto [c, q] = add_command<TopQuestion>(
      app, action, "top", "Watch the kernels of a running process, live", show_top);
  c->add_option("PID", q->pid, "The process; needed if several of yours answer")
      ->check(between<int64_t>(1, INT32_MAX));
  c->add_option("--interval", q->interval_s, "Seconds between two looks; 1")
      ->type_name("S")
      ->check(between<double>(0.1, 3600));
  c->add_option("--sort", q->sort, "share, calls, latency, health, op or kernel")
      ->type_name("BY")
      ->check(one_of({"share", "calls", "latency", "health", "op", "kernel"}));
  c->add_option("--filter", q->filter, "Only ops, kernels and calls with this text")
      ->type_name("WORDS");
  c->add_option("--op", q->op, "Open this op: its classes, plans and rejected candidates")
      ->type_name("OP");
  c->add_flag("--once", q->once, "Print one look instead, over one interval, for pipes");
  c->add_flag("--json", q->json, "The same as JSON for programs");
  c->footer(
      "Shows for each op and kernel calls per second, latency, share of the time and health; "
      "above\n"
      "it rules, reloads, breakers and the last change. Latencies are those of sampled calls.\n"
      "\n"
      "Keys: arrows move, Enter opens an op, Esc goes back, / filters, s c l h o n sort, r "
      "reverses,\n"
      "space pauses, ? helps, q quits.\n"
      "\n"
      "Examples:\n"
      "  yard top                                        the only process that answers\n"
      "  yard top 4242\n"
      "  yard top 4242 --op rms_norm                     classes, plans, rejected candidates\n"
      "  yard top 4242 --once --sort calls | head\n"
      "  yard top 4242 --json --interval 10");
}

}  // namespace yard::tool
