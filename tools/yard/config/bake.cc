// SPDX-License-Identifier: Apache-2.0
// yard bake: from recorded calls to one kernel for each op: a static map in a rule file or in a header.
#include <fmt/format.h>
#include <yard/config.h>
#include <yard/runtime.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "config/file.h"
#include "config/moves.h"
#include "files.h"
#include "json.h"
#include "output.h"
#include "terminal.h"

namespace yard::tool {
namespace {

namespace fs = std::filesystem;

// The calls of one op.
struct BakedOp {
  std::string op;
  std::string kernel;  // that served most of them; of equals the first by name
  uint64_t calls = 0, served = 0;
  std::vector<std::pair<std::string, uint64_t>> kernels;  // and how many each served, most first
  std::vector<CountedCall> classes;                       // most frequent first
  std::vector<std::string> unable;  // calls that another kernel served and this one cannot

  bool from_plugin = false;  // its kernel exists only after a plugin has been opened

  bool conflict() const { return kernels.size() > 1; }
};

struct Baked {
  std::string source;             // the file the calls come from
  std::vector<BakedOp> ops;       // by name
  std::vector<CountedCall> lost;  // calls that no kernel can run
  UnknownOps unknown;             // whose calls were skipped
  uint64_t calls = 0;

  bool conflict() const {
    for (const BakedOp& op : ops)
      if (op.conflict()) return true;
    return false;
  }
};

// Calls of an op that comments list; further ones are only counted.
constexpr size_t kMostShown = 8;

std::string title(const Baked& b) {
  return fmt::format("Written by yard bake from {}: {} call{} of {} op{}.", b.source, b.calls,
                     b.calls == 1 ? "" : "s", b.ops.size(), b.ops.size() == 1 ? "" : "s");
}

// The lines of a comment, each after `mark`.
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

bool is_word(std::string_view s) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !s.empty() && letter(s[0]) && std::all_of(s.begin(), s.end(), [&](char c) {
    return letter(c) || (c >= '0' && c <= '9');
  });
}

// Keywords, also of later standards, and namespaces that a program must not extend.
constexpr std::string_view kReserved =
    " alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t "
    "char32_t char8_t class co_await co_return co_yield compl concept const const_cast "
    "consteval constexpr constinit continue contract_assert decltype default delete do "
    "double dynamic_cast else enum explicit export extern false float for friend goto if "
    "inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq "
    "posix private protected public register reinterpret_cast requires return short signed "
    "sizeof static static_assert static_cast std struct switch template this thread_local "
    "throw true try typedef typeid typename union unsigned using virtual void volatile "
    "wchar_t while xor xor_eq ";

bool is_reserved(std::string_view word) {
  return kReserved.find(fmt::format(" {} ", word)) != kReserved.npos ||
         word.find("__") != word.npos ||
         (word[0] == '_' && word.size() > 1 && word[1] >= 'A' && word[1] <= 'Z');
}

// Whether it is a valid namespace: words with :: between them.
bool is_namespace(const std::string& text) {
  for (std::string_view rest = text;;) {
    const size_t at = rest.find("::");
    if (!is_word(rest.substr(0, at)) || is_reserved(rest.substr(0, at))) return false;
    if (at == std::string_view::npos) return true;
    rest.remove_prefix(at + 2);
  }
}

// Equal calls give equal text.
std::string bake_yaml(const Baked& baked) {
  Config config;
  std::string to = "# " + title(baked) + "\n";
  for (const BakedOp& op : baked.ops) {
    to += comment(op, "# ");
    // A plugin is opened with the first call, after the file has been read.
    config.static_kernel_map[op.op] = {op.kernel, op.from_plugin, {}};
  }
  return to + to_yaml(config);
}

// `name_space` has been checked.
std::string bake_header(const Baked& baked, const std::string& name_space) {
  std::string rows;
  for (const BakedOp& op : baked.ops)
    rows += comment(op, "    // ") + fmt::format("    {{\"{}\", \"{}\"}},\n", op.op, op.kernel);
  return fmt::format(
      R"(// {0} Generate it again instead of editing it.
#pragma once

#include <yard/runtime.h>

#include <string_view>

namespace {1} {{

inline constexpr ::yard::MappedKernel kKernels[] = {{
{2}}};

// The kernel that an op was baked with; empty: none.
constexpr std::string_view kernel_of(std::string_view op) noexcept {{
  return ::yard::mapped_kernel(kKernels, op);
}}

// Serves these ops with these kernels from now on. An error, and no change, if one does not exist.
inline ::yard::Status install(::yard::Runtime& runtime) {{
  return runtime.set_static_map(::yard::StaticMap(kKernels));
}}

}}  // namespace {1}
)",
      title(baked), name_space, rows);
}

// The kernels that would serve the calls. `at_start`: the kernels that exist when a program reads its rules.
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
    const auto it = std::find_if(op.kernels.begin(), op.kernels.end(),
                                 [&](const auto& k) { return k.first == kernel; });
    if (it != op.kernels.end())
      add_count(it->second, c.count);
    else
      op.kernels.emplace_back(kernel, c.count);
  }
  for (auto& [name, op] : ops) {
    std::sort(op.kernels.begin(), op.kernels.end(), [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
    std::sort(op.classes.begin(), op.classes.end(), [](const CountedCall& a, const CountedCall& b) {
      return a.count != b.count ? a.count > b.count : a.call < b.call;
    });
    op.kernel = op.kernels[0].first, op.served = op.kernels[0].second;
    const OpInfo* known = at_start.find_op(name);
    op.from_plugin = known == nullptr ||
                     std::none_of(known->kernels.begin(), known->kernels.end(),
                                  [&id = op.kernel](const KernelInfo& k) { return k.id == id; });
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

// Why nothing is written, one line for each reason; empty if all is well.
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
  Table table({{"op"},
               {"kernel"},
               {"calls", Align::kRight},
               {"served", Align::kRight},
               {"distinct", Align::kRight}});
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
  const Listing at_start = runtime->list();  // reading calls opens plugins
  UnknownOps unknown;
  const auto calls = read_trace(*runtime, q.trace, &unknown);
  if (!q.json) print_unknown_ops(q.trace, unknown);
  if (!calls.ok()) return fail(kUsage, calls.status());
  Baked b = bake(*runtime, at_start, *calls, fs::path(q.trace).filename().string());
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
  if (!q.yaml.empty())
    if (const Status s = write_output(q.yaml, bake_yaml(b)); !s.ok()) return fail(kFailed, s);
  if (!q.header.empty())
    if (const Status s = write_output(q.header, bake_header(b, q.name_space)); !s.ok())
      return fail(kFailed, s);
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
  c->add_option("--trace", q->trace, "The calls: a recording (YARD_RECORD), or a list of CallSpecs")
      ->required()
      ->type_name("FILE")
      ->check(existing_file());
  add_config_option(*c, q->config);
  c->add_option("--yaml", q->yaml, "Write a rule file with static_kernel_map")->type_name("FILE");
  c->add_option("--header", q->header, "Write a C++ header with a table fixed at compile time")
      ->type_name("FILE");
  c->add_option("--namespace", q->name_space, "Namespace of the header; otherwise baked")
      ->type_name("NAME");
  c->add_flag("--majority", q->majority,
              "Where several kernels serve an op: the one that serves most calls");
  c->add_flag("--json", q->json, "JSON for programs instead of text");
  c->footer(
      "Selects the kernel of each call on this machine, and maps the op to it. Without --yaml\n"
      "and --header the rule file is printed. Equal calls give equal files. Nothing is run.\n"
      "\n"
      "A map has one kernel for an op: where several kernels or none serve the calls of an op,\n"
      "nothing is written and the exit code is 1. With --majority the kernel that serves most\n"
      "calls is used.\n"
      "\n"
      "Examples:\n"
      "  yard bake --trace calls.txt                            print the rule file\n"
      "  yard bake --trace calls.txt --yaml baked.yaml          a rule file, to be included\n"
      "  yard bake --trace calls.txt --header baked.h --namespace acme::baked\n"
      "  yard bake --trace calls.txt --config rules.yaml --majority --json");
}

}  // namespace yard::tool
