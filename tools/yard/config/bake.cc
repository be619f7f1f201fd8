// SPDX-License-Identifier: Apache-2.0
// yard bake: turns recorded calls into a static map with one kernel for each op. Writes the map to
// a rule file or a header.
#include <fmt/format.h>
#include <yard/config.h>
#include <yard/runtime.h>
#include <yard/trace.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "config/file.h"
#include "config/moves.h"
#include "json.h"
#include "output.h"
#include "templates.h"
#include "terminal.h"

namespace yard::tool {
namespace {

namespace fs = std::filesystem;

struct BakedOp {
  std::string op;
  std::string kernel;  // serves the most calls of the op
  uint64_t calls = 0, served = 0;
  std::vector<std::pair<std::string, uint64_t>> kernels;  // with calls, most calls first
  std::vector<CountedCall> classes;                       // most frequent first
  std::vector<std::string> unable;  // calls of other kernels that `kernel` cannot serve

  bool from_plugin = false;  // `kernel` exists only after a plugin has been opened

  bool conflict() const { return kernels.size() > 1; }
};

struct Baked {
  std::string source;             // the file with the calls
  std::vector<BakedOp> ops;       // by name
  std::vector<CountedCall> lost;  // calls that no kernel can run
  UnknownOps unknown;             // ops whose calls were skipped
  uint64_t calls = 0;
};

// The largest number of calls that the comment on an op lists.
constexpr size_t kMostShown = 8;

std::string title(const Baked& b) {
  return fmt::format("Written by yard bake from {}: {} call{} of {} op{}.", b.source, b.calls,
                     b.calls == 1 ? "" : "s", b.ops.size(), b.ops.size() == 1 ? "" : "s");
}

std::string comment(const BakedOp& op, const std::string& mark) {
  std::string to =
      fmt::format("{}{}: {} served {} of {} calls", mark, op.op, op.kernel, op.served, op.calls);
  for (size_t i = 1; i < op.kernels.size(); ++i)
    to += fmt::format(", {} {}", op.kernels[i].first, op.kernels[i].second);
  to += '\n';
  for (size_t i = 0; i < std::min(op.classes.size(), kMostShown); ++i)
    to += fmt::format("{}  {} {}\n", mark, op.classes[i].count, op.classes[i].call);
  if (op.classes.size() > kMostShown)
    to += fmt::format("{}  and {} other calls\n", mark, op.classes.size() - kMostShown);
  return to;
}

// Must be deterministic, so that equal calls give equal text.
std::string bake_yaml(const Baked& baked) {
  Config config;
  std::string to = "# " + title(baked) + "\n";
  for (const BakedOp& op : baked.ops) {
    to += comment(op, "# ");
    // The first call opens a plugin, which is after the file has been read.
    config.static_kernel_map[op.op] = {op.kernel, op.from_plugin, {}};
  }
  return to + to_yaml(config);
}

// The caller has checked `name_space`.
std::string bake_header(const Baked& baked, const std::string& name_space) {
  std::string rows;
  for (const BakedOp& op : baked.ops)
    rows += comment(op, "    // ") + fmt::format("    {{\"{}\", \"{}\"}},\n", op.op, op.kernel);
  return fill_in("baked.h", {{"TITLE", title(baked)}, {"NAMESPACE", name_space}, {"ROWS", rows}});
}

// Finds the kernel of each call and the most used kernel of each op. `at_start` lists the kernels
// that exist when a program reads its rules.
Baked bake(const Runtime& runtime, const Listing& at_start, const std::vector<CountedCall>& calls,
           const std::string& source) {
  Baked to;
  to.source = source;
  std::map<std::string, BakedOp> ops;
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> chosen;  // call, kernel
  for (const CountedCall& c : calls) {
    add_count(to.calls, c.count);
    const auto e = runtime.explain(c.call);
    const std::string kernel = e.ok() ? e->selected : "";
    if (kernel.empty()) {
      to.lost.push_back(c);
      continue;
    }
    BakedOp& op = ops[c.op];
    op.op = c.op;
    add_count(op.calls, c.count);
    op.classes.push_back(c);
    chosen[c.op].emplace_back(c.call, kernel);
    const auto it =
        std::ranges::find_if(op.kernels, [&](const auto& k) { return k.first == kernel; });
    if (it != op.kernels.end())
      add_count(it->second, c.count);
    else
      op.kernels.emplace_back(kernel, c.count);
  }
  for (auto& [name, op] : ops) {
    std::ranges::sort(op.kernels, [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
    std::ranges::sort(op.classes, [](const CountedCall& a, const CountedCall& b) {
      return a.count != b.count ? a.count > b.count : a.call < b.call;
    });
    op.kernel = op.kernels[0].first, op.served = op.kernels[0].second;
    const OpInfo* known = at_start.find_op(name);
    op.from_plugin = known == nullptr ||
                     std::ranges::none_of(known->kernels, [&id = op.kernel](const KernelInfo& k) {
                       return k.id == id;
                     });
    Options forced;
    forced.force = op.kernel;
    for (const auto& [call, kernel] : chosen[name]) {
      if (kernel == op.kernel) continue;
      const auto e = runtime.explain(call, forced);
      if (!e.ok() || e->selected.empty()) op.unable.push_back(call);
    }
    to.ops.push_back(std::move(op));
  }
  return to;
}

struct BakeQuestion {
  std::string trace, config, yaml, header, name_space = "baked";
  bool majority = false, json = false;
};

// Accepts words with :: between them, except keywords and reserved names.
bool is_namespace(const std::string& text) {
  static const std::regex kWords("[A-Za-z_]\\w*(::[A-Za-z_]\\w*)*"), kReserved("_[A-Z].*|.*__.*");
  std::istringstream list(fill_in("cpp_words.txt", {}));
  const std::set<std::string> reserved{std::istream_iterator<std::string>(list), {}};
  const auto is_reserved = [&](const std::string& word) {
    return reserved.contains(word) || std::regex_match(word, kReserved);
  };
  return std::regex_match(text, kWords) && std::ranges::none_of(split(text, ":"), is_reserved);
}

std::vector<std::string> objections(const BakeQuestion& q, const Baked& b) {
  std::vector<std::string> to;
  for (const CountedCall& c : b.lost) to.push_back(fmt::format("no kernel can run {}", c.call));
  if (q.majority) return to;
  for (const BakedOp& op : b.ops) {
    if (!op.conflict()) continue;
    std::string who;
    for (const auto& [kernel, calls] : op.kernels)
      who += fmt::format("{}{} {}", who.empty() ? "" : ", ", kernel, calls);
    to.push_back(fmt::format("calls of {} are served by several kernels ({}); --majority takes {}",
                             op.op, who, op.kernel));
  }
  return to;
}

void print_baked_json(const BakeQuestion& q, const Baked& b, bool ok) {
  Json j = {{"ok", ok},
            {"trace", q.trace},
            {"config", text_or_null(q.config)},
            {"yaml", text_or_null(q.yaml)},
            {"header", text_or_null(q.header)},
            {"calls", b.calls},
            {"ops", Json::array()},
            {"lost", Json::array()},
            {"skipped", Json::array()}};
  for (const BakedOp& op : b.ops) {
    Json o = {{"op", op.op},         {"kernel", op.kernel},           {"calls", op.calls},
              {"served", op.served}, {"distinct", op.classes.size()}, {"kernels", Json::array()},
              {"unable", op.unable}};
    for (const auto& [kernel, calls] : op.kernels)
      o["kernels"].push_back({{"kernel", kernel}, {"calls", calls}});
    j["ops"].push_back(std::move(o));
  }
  for (const CountedCall& c : b.lost) j["lost"].push_back({{"call", c.call}, {"calls", c.count}});
  for (const auto& [name, op] : b.unknown)
    j["skipped"].push_back({{"op", name}, {"calls", op.calls}});
  print_json(j);
}

void print_baked(const BakeQuestion& q, const Baked& b) {
  Table table("op|kernel|calls>|served>|distinct>");
  for (const BakedOp& op : b.ops)
    table.add({{op.op, Paint::kBold},
               {op.kernel, op.conflict() ? Paint::kWarning : Paint::kPlain},
               {std::to_string(op.calls)},
               {std::to_string(op.served)},
               {std::to_string(op.classes.size())}});
  print_out("{}", table.text());
  for (const BakedOp& op : b.ops)
    if (!op.unable.empty())
      print_out("In mode static {} of {} calls of {} would have no kernel, {} for example.\n",
                op.unable.size(), op.classes.size(), op.op, op.unable[0]);
  for (const std::string& file : {q.yaml, q.header})
    if (!file.empty()) print_out("{} is written.\n", file);
}

int bake_trace(const BakeQuestion& q) {
  if (!is_namespace(q.name_space))
    return fail(kUsage, fmt::format("invalid namespace '{}': expected words that are not reserved, "
                                    "with :: between them, like baked or acme::baked",
                                    q.name_space));
  const auto runtime = runtime_under(q.config);
  if (runtime == nullptr) return kUsage;
  const Listing at_start = runtime->list();  // taken before reading the calls opens plugins
  UnknownOps unknown;
  auto read = read_trace(*runtime, q.trace, &unknown);
  if (!q.json) print_unknown_ops(q.trace, unknown);
  const std::vector<CountedCall> calls = need(std::move(read), kUsage);
  Baked b = bake(*runtime, at_start, calls, fs::path(q.trace).filename().string());
  b.unknown = std::move(unknown);
  const std::vector<std::string> against = objections(q, b);
  if (!against.empty()) {
    if (q.json) {
      print_baked_json(q, b, false);
      return kFailed;
    }
    for (const std::string& line : against) print_err("yard: {}\n", line);
    return fail(kFailed, "nothing is written");
  }
  if (!q.yaml.empty()) need(write_file(q.yaml, bake_yaml(b)), kFailed);
  if (!q.header.empty()) need(write_file(q.header, bake_header(b, q.name_space)), kFailed);
  if (q.json)
    print_baked_json(q, b, true);
  else if (q.yaml.empty() && q.header.empty())
    write_out(bake_yaml(b));
  else
    print_baked(q, b);
  return kOk;
}

}  // namespace

void add_bake(CLI::App& app, Action& action) {
  const auto [c, q] = add_command<BakeQuestion>(
      app, action, "bake", "From recorded calls to a fixed kernel for each op", bake_trace);
  add_file(*c, "--trace", q->trace, "The calls: a recording (YARD_RECORD), or a list of CallSpecs")
      ->required();
  add_config_option(*c, q->config);
  add_value(*c, "--yaml", q->yaml, "FILE", "Write a rule file with static_kernel_map");
  add_value(*c, "--header", q->header, "FILE",
            "Write a C++ header with a table fixed at compile time");
  add_value(*c, "--namespace", q->name_space, "NAME", "Namespace of the header; otherwise baked");
  c->add_flag("--majority", q->majority,
              "Where several kernels serve an op: the one that serves most calls");
}

}  // namespace yard::tool
