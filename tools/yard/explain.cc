// SPDX-License-Identifier: Apache-2.0
// yard explain: shows which kernel a call would run, and why the others would not run.
#include <fmt/format.h>
#include <yard/log.h>
#include <yard/runtime.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

#include "arguments.h"
#include "commands.h"
#include "config/file.h"
#include "json.h"
#include "live/remote.h"
#include "output.h"
#include "terminal.h"

namespace yard::tool {
namespace {

struct ExplainQuestion {
  std::string call, config;
  PolicyFlags policy;
  int64_t pid = 0;           // 0 for this process
  std::string not_with_pid;  // an option that has no effect on another process
  bool json = false;
};

Candidate read_candidate(const Json& c) {
  Candidate to;
  to.id = text_at(c, "id"), to.vendor = text_at(c, "vendor"), to.backend = text_at(c, "backend");
  to.kind = parse_kind(text_at(c, "kind")).value_or(Kind::kDefault);
  to.priority = static_cast<int>(std::clamp(number_at(c, "priority"), -2e9, 2e9));
  to.adjusted_priority = number_at(c, "adjusted_priority");
  to.verdict = text_at(c, "verdict"), to.reason = text_at(c, "reason");
  to.detail = text_at(c, "detail"), to.placed_by = text_at(c, "placed_by");
  if (value_at(c, "estimate_ns").is_number()) to.estimate_ns = number_at(c, "estimate_ns");
  for (const Json& t : list_at(c, "transforms"))
    to.transforms.push_back(
        {text_at(t, "argument"), text_at(t, "what"), number_at(t, "estimate_ns")});
  for (const Json& s : list_at(c, "scores"))
    to.scores.push_back(
        {text_at(s, "name"), text_at(s, "place"), number_at(s, "add"), number_at(s, "multiply")});
  return to;
}

// Reads the result of Explanation::to_json().
Explanation read_explanation(const Json& j) {
  Explanation to;
  to.op = text_at(j, "op"), to.call = printable(text_at(j, "call"));
  to.selected = text_at(j, "selected"), to.generation = count_at(j, "generation");
  for (const Json& c : list_at(j, "candidates")) to.candidates.push_back(read_candidate(c));
  for (const Json& n : list_at(j, "policy"))
    to.policy.push_back({text_at(n, "field"), text_at(n, "value"), text_at(n, "source")});
  for (const Json& c : list_at(j, "counterfactuals"))
    if (c.is_string()) to.counterfactuals.push_back(printable(c.get<std::string>()));
  return to;
}

// Asks a running process what it would choose under its own policy. Labels are the only call
// options that apply.
int explain_in_process(const ExplainQuestion& q) {
  if (!q.not_with_pid.empty())
    return fail(kUsage, fmt::format("--pid: expected no {} beside it: the policy is that of the "
                                    "process; labels and flags of the call can be in the CallSpec",
                                    q.not_with_pid));
  PolicyFlags labels_only;
  labels_only.label = q.policy.label;
  const auto options = need(labels_only.options(""), kUsage);
  Json args = {{"call", q.call}};
  for (const auto& [key, value] : options.labels) args["labels"][key] = value;
  auto remote = need(Remote::connect(q.pid));
  const auto result = need(remote.request("explain", args));
  const Explanation e = read_explanation(result);
  q.json ? print_json(result) : print_out("{}", e.to_text(colour()));
  return e.selected.empty() ? kFailed : kOk;
}

int explain_call(const ExplainQuestion& q) {
  if (q.pid != 0) return explain_in_process(q);
  if (const int code = use_config(Runtime::shared(), q.config); code != kOk) return code;
  const auto call = need(Runtime::shared().parse(q.call), kUsage);
  const auto options = need(q.policy.options(call.op), kUsage);
  const auto e = need(Runtime::shared().explain(q.call, options));
  q.json ? print_json(Json::parse(e.to_json())) : print_out("{}", e.to_text(colour()));
  return e.selected.empty() ? kFailed : kOk;
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  auto q = std::make_shared<ExplainQuestion>();
  CLI::App* c =
      app.add_subcommand("explain", "Show which kernel a call would run, and why not the others");
  c->add_option("CALLSPEC", q->call, "The call as text, in quotes")->required();
  add_config_option(*c, q->config);
  add_pid_option(*c, q->pid, "As this running process would choose, under its rules and policy");
  c->add_flag("--json", q->json, "JSON for programs instead of text");
  q->policy.add(*c);
  c->callback([q, c, &action] {
    for (const CLI::Option* o : c->get_options())
      if (o->count() > 0 && !o->get_positional() && !o->check_lname("pid") &&
          !o->check_lname("json") && !o->check_lname("label"))
        q->not_with_pid = o->get_name();
    action = [q] { return explain_call(*q); };
  });
}

}  // namespace yard::tool
