// SPDX-License-Identifier: Apache-2.0
// yard list: shows the ops and their kernels.
#include <fmt/format.h>
#include <yard/log.h>
#include <yard/runtime.h>

#include <algorithm>
#include <set>

#include "arguments.h"
#include "commands.h"
#include "json.h"
#include "output.h"
#include "plugin/show.h"
#include "terminal.h"

namespace yard::tool {
namespace {

struct ListQuestion {
  std::string op;
  bool open = false, json = false;
};

Json ops_json(const std::vector<const OpInfo*>& ops, const std::vector<Announced>& waiting) {
  Json list = Json::array();
  for (const OpInfo* op : ops) {
    Json kernels = Json::array();
    for (const KernelInfo& k : op->kernels)
      kernels.push_back({{"id", k.id},
                         {"kind", to_string(k.kind)},
                         {"vendor", text_or_null(k.vendor)},
                         {"backend", k.backend},
                         {"priority", k.priority},
                         {"available", k.available},
                         {"reason", text_or_null(k.reason)}});
    list.push_back({{"name", op->name}, {"schema", op->schema}, {"kernels", std::move(kernels)}});
  }
  Json unopened = Json::array();
  for (const Announced& a : waiting)
    unopened.push_back({{"op", a.name}, {"plugin", a.plugin}, {"path", a.path}});
  return {{"ops", std::move(list)}, {"announced", std::move(unopened)}};
}

Line kernel_row(const KernelInfo& k) {
  return {{k.id, k.available ? Paint::kPlain : Paint::kDim},
          {to_string(k.kind)},
          {k.vendor.empty() ? "-" : k.vendor},
          {k.backend},
          {std::to_string(k.priority)},
          k.available ? Cell{"yes", Paint::kGood} : Cell{"no", Paint::kBad},
          {k.available        ? ""
           : k.detail.empty() ? k.reason
                              : k.reason + ": " + k.detail}};
}

constexpr const char* kKernelColumns = "kernel|kind|vendor|backend|priority>|available|";

// The kernels of a plugin are unknown until it is opened.
Line unopened_row(const Announced& a) {
  Line to(6, {"-"});
  to.push_back({fmt::format("plugin {}, not opened", a.plugin), Paint::kDim});
  return to;
}

void add_unopened(Table& table, const std::vector<Announced>& waiting, const std::string& op,
                  std::string name) {
  for (const Announced& a : waiting) {
    if (a.name != op) continue;
    Line cells = unopened_row(a);
    cells.insert(cells.begin(), Cell{std::exchange(name, ""), Paint::kBold});
    table.add(std::move(cells));
  }
}

void print_all(const std::vector<const OpInfo*>& ops, const std::vector<Announced>& waiting) {
  Table table(std::string("op|") + kKernelColumns);
  for (const OpInfo* op : ops) {
    std::string name = op->name;
    for (const KernelInfo& k : op->kernels) {
      Line cells = kernel_row(k);
      cells.insert(cells.begin(), Cell{std::exchange(name, ""), Paint::kBold});
      table.add(std::move(cells));
    }
    if (op->kernels.empty()) table.add({{name, Paint::kBold}, {"no kernels", Paint::kBad}});
    add_unopened(table, waiting, op->name, "");
  }
  const auto known = [&](const Announced& a) {
    return std::ranges::any_of(ops, [&](const OpInfo* o) { return o->name == a.name; });
  };
  std::set<std::string> new_ops;
  for (const Announced& a : waiting)
    if (!known(a)) new_ops.insert(a.name);
  for (const std::string& op : new_ops) add_unopened(table, waiting, op, op);
  print_out("{}", table.text());
}

void print_one(const OpInfo& op, const std::vector<Announced>& waiting) {
  print_out("{}\n", paint(Paint::kBold, op.name));
  if (!op.summary.empty()) print_out("  {}\n", printable(op.summary));
  print_out("\n  {}\n\n", op.schema);
  Table table(kKernelColumns);
  for (const KernelInfo& k : op.kernels) table.add(kernel_row(k));
  for (const Announced& a : waiting) table.add(unopened_row(a));
  print_out("{}", op.kernels.empty() && waiting.empty() ? "  no kernels\n" : table.text(2));
}

void print_unopened(const std::string& op, const std::vector<Announced>& waiting) {
  print_out("{}\n\n", paint(Paint::kBold, op));
  for (const Announced& a : waiting) print_out("  plugin {}, not opened: {}\n", a.plugin, a.path);
}

std::vector<Announced> unopened(const std::string& op) {
  std::vector<Announced> to = announced(Runtime::shared(), &PluginInfo::ops);
  if (!op.empty()) std::erase_if(to, [&](const Announced& a) { return a.name != op; });
  return to;
}

int list_ops(const ListQuestion& q) {
  if (q.open)
    for (const Announced& a : unopened(q.op))
      need(Runtime::shared().plugins().load(a.path), kFailed);
  const std::vector<Announced> waiting = unopened(q.op);
  const Listing listing = Runtime::shared().list();
  std::vector<const OpInfo*> ops;
  std::vector<std::string> names;
  for (const OpInfo& op : listing.ops) {
    names.push_back(op.name);
    if (q.op.empty() || q.op == op.name) ops.push_back(&op);
  }
  for (const Announced& a : announced(Runtime::shared(), &PluginInfo::ops)) names.push_back(a.name);
  if (ops.empty() && waiting.empty() && !q.op.empty())
    return fail(kUsage, fmt::format("op '{}' is not known{}", q.op, did_you_mean(q.op, names)));
  if (q.json)
    print_json(ops_json(ops, waiting));
  else if (!q.op.empty() && ops.empty())
    print_unopened(q.op, waiting);
  else if (!q.op.empty())
    print_one(*ops[0], waiting);
  else
    print_all(ops, waiting);
  return kOk;
}

}  // namespace

void add_list(CLI::App& app, Action& action) {
  const auto [c, q] =
      add_command<ListQuestion>(app, action, "list", "List ops and their kernels", list_ops);
  c->add_option("OP", q->op, "Only this op, with its schema");
  c->add_flag("--open", q->open, "Open the plugins that serve ops, to see their kernels");
}

}  // namespace yard::tool
