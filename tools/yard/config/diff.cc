// SPDX-License-Identifier: Apache-2.0
// yard config diff and simulate: show the differences between two rule files, and the calls whose
// kernel would change.
#include <fmt/format.h>
#include <yard/verify.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <set>
#include <tuple>

#include "arguments.h"
#include "commands.h"
#include "config/file.h"
#include "config/moves.h"
#include "json.h"
#include "output.h"
#include "terminal.h"

namespace yard::tool {
namespace {

// The largest number of calls that are made for one op.
constexpr size_t kMostSamples = 20000;
// The largest number of listed calls of an op with equal old and new kernels.
constexpr size_t kMostAlike = 8;

struct Calls {
  std::vector<CountedCall> calls;
  std::vector<std::string> cut;    // ops with more than kMostSamples calls
  std::vector<std::string> unmet;  // rules that match no call
};

struct DiffQuestion {
  std::string old_file, new_file, trace;
  std::vector<std::string> calls;
  bool json = false;
};

// Returns the ops of the runtime and of plugins that it has not opened yet.
std::set<std::string> op_names(const Runtime& runtime) {
  std::set<std::string> names;
  for (const OpInfo& op : runtime.list().ops) names.insert(op.name);
  for (const PluginInfo& p : runtime.plugins().list())
    if (p.state == PluginState::kFound) names.insert(p.ops.begin(), p.ops.end());
  return names;
}

Result<Calls> sampled(const Runtime& runtime, const Config& before, const Config& after) {
  const Config configs[] = {before, after};
  Calls to;
  for (const std::string& op : op_names(runtime)) {
    auto calls = sample_calls(runtime, op, configs, kMostSamples);
    // The runtime refused the plugin of this op when it was opened, and the log says why.
    if (!calls.ok() && calls.status().code() == Code::kUnknownOp) continue;
    if (!calls.ok()) return std::move(calls).status();
    if (calls->size() >= kMostSamples) to.cut.push_back(op);
    for (std::string& c : *calls) to.calls.push_back({op, std::move(c), 1});
  }
  return to;
}

Result<Calls> calls_of(const DiffQuestion& q, const Runtime& before, const Runtime& after) {
  if (!q.trace.empty() || !q.calls.empty()) {
    auto given = q.trace.empty() ? read_calls(before, q.calls) : read_trace(before, q.trace);
    if (!given.ok()) return std::move(given).status();
    return Calls{*std::move(given), {}, {}};
  }
  auto made = sampled(before, before.rules().config(), after.rules().config());
  if (!made.ok()) return made;
  std::vector<std::string> texts;
  for (const CountedCall& c : made->calls) texts.push_back(c.call);
  made->unmet = unmet_rules(before, texts);
  for (std::string& rule : unmet_rules(after, texts)) made->unmet.push_back(std::move(rule));
  return made;
}

void print_diff_json(const DiffQuestion& q, const std::vector<ConfigChange>& changes,
                     const std::vector<Move>& moves, const std::vector<std::string>& unmet) {
  Json j = {{"old", q.old_file},     {"new", q.new_file},      {"changes", Json::array()},
            {"tried", moves.size()}, {"moved", Json::array()}, {"unmet", unmet}};
  for (const ConfigChange& c : changes)
    j["changes"].push_back(
        {{"path", c.path}, {"old", text_or_null(c.before)}, {"new", text_or_null(c.after)}});
  for (const Move& m : moves)
    if (m.moved())
      j["moved"].push_back({{"op", m.what.op},
                            {"call", m.what.call},
                            {"old", text_or_null(m.from)},
                            {"new", text_or_null(m.to)}});
  print_json(j);
}

void print_change(const ConfigChange& c) {
  if (c.before.empty())
    print_out("{}\n", paint(Paint::kGood, fmt::format("+ {}: {}", c.path, c.after)));
  else if (c.after.empty())
    print_out("{}\n", paint(Paint::kBad, fmt::format("- {}: {}", c.path, c.before)));
  else
    print_out("{} {}: {} -> {}\n", paint(Paint::kWarning, "~"), c.path, c.before, c.after);
}

void print_diff(const std::vector<ConfigChange>& changes, const std::vector<Move>& moves) {
  if (changes.empty()) print_out("The files are equivalent.\n");
  for (const ConfigChange& c : changes) print_change(c);
  Table table("op|call|old|new");
  std::map<std::string, size_t> alike;  // counts by op and kernels
  std::set<std::string> ops;
  size_t moved = 0, hidden = 0;
  for (const Move& m : moves) {
    if (!m.moved()) continue;
    ++moved, ops.insert(m.what.op);
    if (++alike[m.what.op + '\n' + m.from + '\n' + m.to] > kMostAlike) {
      ++hidden;
      continue;
    }
    table.add({{m.what.op, Paint::kBold},
               {m.what.call},
               {kernel_text(m.from)},
               {kernel_text(m.to), m.to.empty() ? Paint::kBad : Paint::kPlain}});
  }
  if (moved > 0) print_out("\n{}", table.text());
  if (hidden > 0) print_out("and {} more like these: use --json for all\n", hidden);
  print_out("\n{} of {} calls tried would change kernel{}.\n", moved, moves.size(),
            moved > 0 ? fmt::format(", of {} op{}", ops.size(), ops.size() == 1 ? "" : "s") : "");
}

void print_unmet(const std::vector<std::string>& unmet) {
  if (unmet.empty()) return;
  print_out("No call was found that matches {}: --call and --trace try others\n",
            unmet.size() == 1 ? "this rule" : "these rules");
  for (const std::string& rule : unmet) print_out("  {}\n", paint(Paint::kWarning, rule));
}

int diff_files(const DiffQuestion& q) {
  const auto before = runtime_under(q.old_file);
  if (before == nullptr) return kUsage;
  const auto after = runtime_under(q.new_file);
  if (after == nullptr) return kUsage;
  const auto calls = need(calls_of(q, *before, *after), kUsage);
  const auto changes = yard::diff(before->rules().config(), after->rules().config());
  const auto moves = compare(*before, *after, calls.calls);
  for (const std::string& op : calls.cut)
    print_err("yard: only {} calls of {} were tried; --call and --trace try others\n", kMostSamples,
              op);
  q.json ? print_diff_json(q, changes, moves, calls.unmet) : print_diff(changes, moves);
  if (!q.json) print_unmet(calls.unmet);
  return std::ranges::any_of(moves, [](const Move& m) { return m.lost(); }) ? kFailed : kOk;
}

struct SimulateQuestion {
  std::string file, trace, against;
  bool json = false;
};

// The calls of an op that move from one kernel to another.
struct Stream {
  std::string op, from, to, example;
  uint64_t calls = 0;
  size_t distinct = 0;
};

struct Totals {
  uint64_t calls = 0, moved = 0, lost = 0;
  size_t distinct = 0, distinct_moved = 0;
  std::vector<Stream> streams;  // most calls first
};

Totals total(const std::vector<Move>& moves) {
  Totals t;
  std::map<std::tuple<std::string, std::string, std::string>, Stream> streams;
  for (const Move& m : moves) {
    add_count(t.calls, m.what.count), ++t.distinct;
    if (!m.moved()) continue;
    add_count(t.moved, m.what.count), ++t.distinct_moved;
    if (m.lost()) add_count(t.lost, m.what.count);
    Stream& s = streams[{m.what.op, m.from, m.to}];
    if (s.distinct++ == 0) s.op = m.what.op, s.from = m.from, s.to = m.to, s.example = m.what.call;
    add_count(s.calls, m.what.count);
  }
  for (auto& [key, s] : streams) t.streams.push_back(std::move(s));
  std::ranges::stable_sort(t.streams,
                           [](const Stream& a, const Stream& b) { return a.calls > b.calls; });
  return t;
}

void print_totals_json(const SimulateQuestion& q, const Totals& t) {
  Json j = {{"file", q.file},        {"against", text_or_null(q.against)},
            {"calls", t.calls},      {"moved", t.moved},
            {"lost", t.lost},        {"distinct", t.distinct},
            {"moves", Json::array()}};
  for (const Stream& s : t.streams)
    j["moves"].push_back({{"op", s.op},
                          {"from", text_or_null(s.from)},
                          {"to", text_or_null(s.to)},
                          {"calls", s.calls},
                          {"distinct", s.distinct},
                          {"example", s.example}});
  print_json(j);
}

void print_totals(const Totals& t) {
  Table table("op|calls>|distinct>|from|to|for example");
  for (const Stream& s : t.streams)
    table.add({{s.op, Paint::kBold},
               {std::to_string(s.calls)},
               {std::to_string(s.distinct)},
               {kernel_text(s.from)},
               {kernel_text(s.to), s.to.empty() ? Paint::kBad : Paint::kPlain},
               {s.example, Paint::kDim}});
  if (!t.streams.empty()) print_out("{}\n", table.text());
  print_out("{} of {} calls would move ({} of {} distinct ones).\n", t.moved, t.calls,
            t.distinct_moved, t.distinct);
  if (t.lost > 0)
    print_out("{}\n", paint(Paint::kBad, fmt::format("No kernel could run {} of them.", t.lost)));
}

int simulate(const SimulateQuestion& q) {
  const auto before = runtime_under(q.against);
  if (before == nullptr) return kUsage;
  const auto after = runtime_under(q.file);
  if (after == nullptr) return kUsage;
  const auto calls = need(read_trace(*before, q.trace), kUsage);
  const Totals t = total(compare(*before, *after, calls));
  q.json ? print_totals_json(q, t) : print_totals(t);
  return t.lost > 0 ? kFailed : kOk;
}

}  // namespace

void add_config_diff(CLI::App& config, Action& action) {
  const auto [c, q] = add_command<DiffQuestion>(config, action, "diff",
                                                "What changes between two rule files", diff_files);
  for (const auto& [name, to, help] : {std::tuple{"OLD", &q->old_file, "The old rules"},
                                       std::tuple{"NEW", &q->new_file, "The new rules"}})
    add_file(*c, name, *to, help)->required();
  CLI::Option* call = c->add_option("--call", q->calls, "Try this call; repeatable");
  call->type_name("CALLSPEC")->allow_extra_args(false);
  add_file(*c, "--trace", q->trace, "Try the calls of this file: see yard config simulate")
      ->excludes(call);
  add_mode_option(*c);
}

void add_config_simulate(CLI::App& config, Action& action) {
  const auto [c, q] = add_command<SimulateQuestion>(
      config, action, "simulate", "How many recorded calls would change kernel", simulate);
  add_file(*c, "FILE", q->file, "The new rules")->required();
  add_file(*c, "--trace", q->trace, "The calls")->required();
  add_file(*c, "--against", q->against, "The old rules; otherwise the environment names them");
  add_mode_option(*c);
}

}  // namespace yard::tool
