// SPDX-License-Identifier: Apache-2.0
// yard top: the live table of a running process. The command asks once a second over one
// connection. model.h turns the answers into figures, frame.h turns the figures into lines, and
// screen.h shows the lines.
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

// The largest number of classes without a listed plan that one update explains.
constexpr size_t kMostExplained = 16;
constexpr size_t kMostShownEvents = 1000;

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

// Asks the process repeatedly and keeps the answers.
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

  // If `op` is not empty, also reads its plans.
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
    YARD_RETURN_IF_ERROR(read_events());
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

  // Plans of calls with labels, options or a policy of their own are not listed, so their busiest
  // classes are explained instead.
  Status explain_others(const std::string& op) {
    std::vector<TopRow> others;
    for (const TopRow& r : data_.model.classes) {
      const auto is_of = [&](const TopPlan& p) { return p.call == r.call; };
      if (r.op == op && r.call != "other" && std::ranges::none_of(data_.plans, is_of) &&
          std::ranges::none_of(others, [&](const TopRow& o) { return o.call == r.call; }))
        others.push_back(r);
    }
    others = chosen_rows(others, "", TopSort::kCalls, false);
    others.resize(std::min(others.size(), kMostExplained));
    for (const TopRow& r : others) {
      const auto e = remote_.request("explain", {{"call", r.call}});
      if (e.status().code() == Code::kDeadline) return e.status();
      if (!e.ok()) continue;  // only the process can make this call
      TopPlan& to = data_.plans.emplace_back();
      to.call = r.call, to.kernel = text_at(*e, "selected"), to.mode = r.mode, to.direct = true;
      for (const Json& c : list_at(*e, "candidates"))
        if (text_at(c, "verdict") != "selected")
          to.rejected.push_back({text_at(c, "id"), text_at(c, "reason"), text_at(c, "detail")});
    }
    return {};
  }

  Status read_events() {
    const auto events = remote_.request("events", {{"after", last_event_}});
    if (!events.ok()) return events.status();
    for (const Json& e : list_at(*events, "events")) {
      data_.events.insert(data_.events.begin(), text_at(e, "time") + "  " + event_text(e));
      last_event_ = count_at(e, "id");
    }
    data_.events.resize(std::min(data_.events.size(), kMostShownEvents));
    return {};
  }

  // Reads the history only if the process has published something since the last time.
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
  std::optional<uint64_t> history_of_;  // the generation in which the history was read
  uint64_t last_event_ = 0;
  double started_ = 0, loaded_ = -1;
};

Clock::duration interval(const TopQuestion& q) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(q.interval_s));
}

int print_once(const TopQuestion& q, Source& source, const TopView& view) {
  std::this_thread::sleep_for(interval(q));
  need(source.update(q.op));
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

// Shows the screen until the user or a signal ends it. Returns the signal, or 0.
int watch(const TopQuestion& q, Source& source, TopView& view) {
  using Kind = Screen::Event::Kind;
  Screen screen;
  Clock::time_point next =
      Clock::now() + std::min<Clock::duration>(interval(q), std::chrono::milliseconds(500));
  for (;;) {
    const auto [width, height] = screen.size();
    screen.draw(frame(source.data(), view, width, height));
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    const auto event = screen.wait(std::max(left, std::chrono::milliseconds(0)));
    if (event.kind == Kind::kEnd) return event.signal == SIGINT ? 0 : event.signal;
    Status problem;
    if (event.kind == Kind::kKey) {
      const std::string before = view.op;
      if (!handle_key(event.input, source.data(), height, view)) return 0;
      if (view.op != before) problem = source.update_plans(view.op);
    }
    if (problem.ok() && Clock::now() >= next) {
      if (!view.paused) problem = source.update(view.op);
      next = Clock::now() + interval(q);
    }
    TopProcess& p = source.data().process;
    // A slow process, or one that a debugger has stopped, may answer again.
    if (problem.code() == Code::kDeadline)
      p.problem = "not answering";
    else if (!problem.ok())
      need(problem.note(fmt::format("the connection to process {} was lost; has it ended?", p.pid)),
           kFailed);
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
  auto remote = need(Remote::connect(q.pid, std::chrono::seconds(live ? 1 : 10)));
  Source source(std::move(remote));
  TopView view;
  view.sort = *sort_named(q.sort), view.filter = q.filter, view.op = q.op;
  need(source.begin());
  if (!live) return print_once(q, source, view);
  if (const int signal = watch(q, source, view); signal != 0) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  return kOk;
}

}  // namespace

void add_top(CLI::App& app, Action& action) {
  const auto [c, q] = add_command<TopQuestion>(
      app, action, "top", "Watch the kernels of a running process, live", show_top);
  c->add_option("PID", q->pid, "The process; needed if several of yours answer")
      ->check(between<int64_t>(1, INT32_MAX));
  add_value(*c, "--interval", q->interval_s, "S", "Seconds between two looks; 1")
      ->check(between<double>(0.1, 3600));
  add_value(*c, "--sort", q->sort, "BY", "share, calls, latency, health, op or kernel")
      ->check(one_of({"share", "calls", "latency", "health", "op", "kernel"}));
  add_value(*c, "--filter", q->filter, "WORDS", "Only ops, kernels and calls with this text");
  add_value(*c, "--op", q->op, "OP", "Open this op: its classes, plans and rejected candidates");
  c->add_flag("--once", q->once, "Print one look instead, over one interval, for pipes");
}

}  // namespace yard::tool
