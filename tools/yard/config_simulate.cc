// SPDX-License-Identifier: Apache-2.0
// yard config simulate: recorded calls under a rule file; how many move from which kernel to which.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <limits>
#include <memory>
#include <tuple>

#include "config_commands.h"
#include "config_file.h"
#include "config_moves.h"
#include "json.h"
#include "table.h"
#include "terminal.h"

namespace yard::tool {
namespace {

struct SimulateQuestion {
  std::string file, trace, against;
  bool json = false;
};

// Calls of an op that move between the same kernels.
struct Stream {
  std::string op, from, to, example;
  uint64_t calls = 0;
  size_t distinct = 0;
};

struct Totals {
  uint64_t calls = 0, moved = 0, lost = 0;
  size_t distinct = 0, distinct_moved = 0;
  std::vector<Stream> streams;  // those that move, most calls first
};

void add(uint64_t& sum, uint64_t n) {
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  sum = n > most - sum ? most : sum + n;
}

Totals total(const std::vector<Move>& moves) {
  Totals t;
  std::map<std::tuple<std::string, std::string, std::string>, Stream> streams;
  for (const Move& m : moves) {
    add(t.calls, m.what.count), ++t.distinct;
    if (!m.moved()) continue;
    add(t.moved, m.what.count), ++t.distinct_moved;
    if (m.lost()) add(t.lost, m.what.count);
    Stream& s = streams[{m.what.op, m.from, m.to}];
    if (s.distinct++ == 0) s.op = m.what.op, s.from = m.from, s.to = m.to, s.example = m.what.call;
    add(s.calls, m.what.count);
  }
  for (auto& [key, s] : streams) t.streams.push_back(std::move(s));
  std::stable_sort(t.streams.begin(), t.streams.end(),
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
  fmt::print("{}\n", j.dump(2, ' ', false, Json::error_handler_t::replace));
}

void print_totals(const Totals& t) {
  Table table({{"op"},
               {"calls", Align::kRight},
               {"distinct", Align::kRight},
               {"from"},
               {"to"},
               {"for example"}});
  for (const Stream& s : t.streams)
    table.add({{s.op, Paint::kBold},
               {std::to_string(s.calls)},
               {std::to_string(s.distinct)},
               {kernel_text(s.from)},
               {kernel_text(s.to), s.to.empty() ? Paint::kBad : Paint::kPlain},
               {s.example, Paint::kDim}});
  if (!t.streams.empty()) fmt::print("{}\n", table.text());
  fmt::print("{} of {} calls would move ({} of {} distinct ones).\n", t.moved, t.calls,
             t.distinct_moved, t.distinct);
  if (t.lost > 0)
    fmt::print("{}\n", paint(Paint::kBad, fmt::format("No kernel could run {} of them.", t.lost)));
}

int simulate(const SimulateQuestion& q) {
  const auto before = runtime_under(q.against);
  if (before == nullptr) return kUsage;
  const auto after = runtime_under(q.file);
  if (after == nullptr) return kUsage;
  const auto calls = read_trace(*before, q.trace);
  if (!calls.ok()) return fail(kUsage, calls.status());
  const Totals t = total(compare(*before, *after, *calls));
  if (q.json)
    print_totals_json(q, t);
  else
    print_totals(t);
  return t.lost > 0 ? kFailed : kOk;
}

}  // namespace

void add_config_simulate(CLI::App& config, Action& action) {
  auto q = std::make_shared<SimulateQuestion>();
  CLI::App* c = config.add_subcommand("simulate", "How many recorded calls would change kernel");
  c->add_option("FILE", q->file, "The new rules")
      ->required()
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  c->add_option("--trace", q->trace, "The calls")
      ->required()
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  c->add_option("--against", q->against,
                "The old rules; otherwise those that the environment names")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  add_mode_option(*c);
  c->add_flag("--json", q->json, "JSON for programs instead of text");
  c->footer(
      "A line of the trace is a CallSpec, after a count and a tab if it stands for several calls.\n"
      "Blank lines and those that begin with # are ignored. Nothing is run. Exit code 1 when\n"
      "calls that could run would have no kernel, 2 when the file or the trace is invalid.\n"
      "\n"
      "Examples:\n"
      "  yard config simulate new.yaml --trace calls.txt\n"
      "  yard config simulate new.yaml --trace calls.txt --against old.yaml --json");
  c->callback([q, &action] { action = [q] { return simulate(*q); }; });
}

}  // namespace yard::tool
