// SPDX-License-Identifier: Apache-2.0
// yard list: the ops there are, and the kernels that compete for each.
#include <fmt/format.h>
#include <yard/runtime.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "table.h"

namespace yard::tool {
namespace {

using Json = nlohmann::ordered_json;

struct Question {
  std::string op;
  bool json = false;
};

Json text_or_null(const std::string& s) { return s.empty() ? Json() : Json(s); }

Json to_json(const std::vector<const OpInfo*>& ops) {
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
  return {{"ops", std::move(list)}};
}

std::vector<Cell> row(const KernelInfo& k) {
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

const std::vector<Column>& kernel_columns() {
  static const std::vector<Column> columns = {
      {"kernel"},    {"kind"}, {"vendor"}, {"backend"}, {"priority", Align::kRight},
      {"available"}, {""}};
  return columns;
}

void print_all(const std::vector<const OpInfo*>& ops) {
  std::vector<Column> columns = {{"op"}};
  columns.insert(columns.end(), kernel_columns().begin(), kernel_columns().end());
  Table table(columns);
  for (const OpInfo* op : ops) {
    std::string name = op->name;
    for (const KernelInfo& k : op->kernels) {
      std::vector<Cell> cells = row(k);
      cells.insert(cells.begin(), Cell{std::exchange(name, ""), Paint::kBold});
      table.add(std::move(cells));
    }
    if (op->kernels.empty()) table.add({{name, Paint::kBold}, {"no kernels", Paint::kBad}});
  }
  fmt::print("{}", table.text());
}

void print_one(const OpInfo& op) {
  fmt::print("{}\n", paint(Paint::kBold, op.name));
  if (!op.summary.empty()) fmt::print("  {}\n", op.summary);
  fmt::print("\n  {}\n\n", op.schema);
  Table table(kernel_columns());
  for (const KernelInfo& k : op.kernels) table.add(row(k));
  fmt::print("{}", op.kernels.empty() ? "  no kernels\n" : table.text(2));
}

int list(const Question& q) {
  const Listing listing = Runtime::shared().list();
  std::vector<const OpInfo*> ops;
  std::vector<std::string> names;
  for (const OpInfo& op : listing.ops) {
    names.push_back(op.name);
    if (q.op.empty() || q.op == op.name) ops.push_back(&op);
  }
  if (ops.empty() && !q.op.empty())
    return fail(kUsage, fmt::format("op '{}' is not known{}", q.op, did_you_mean(q.op, names)));
  if (q.json)
    fmt::print("{}\n", to_json(ops).dump(2));
  else if (!q.op.empty())
    print_one(*ops[0]);
  else
    print_all(ops);
  return kOk;
}

}  // namespace

void add_list(CLI::App& app, Action& action) {
  auto q = std::make_shared<Question>();
  CLI::App* c =
      app.add_subcommand("list", "The ops there are, and the kernels that compete for each");
  c->add_option("OP", q->op, "Only this op, with its schema");
  c->add_flag("--json", q->json, "JSON for programs instead of a table");
  c->footer(
      "A kernel is available when its backend works here and the processor has what it needs.\n"
      "Whether it can serve a certain call is another question: yard explain.\n"
      "\n"
      "Examples:\n"
      "  yard list                    all ops and kernels\n"
      "  yard list rms_norm           one op with its schema\n"
      "  yard list --json             {\"ops\": [{\"name\", \"schema\", \"kernels\": [...]}]}");
  c->callback([q, &action] { action = [q] { return list(*q); }; });
}

}  // namespace yard::tool
