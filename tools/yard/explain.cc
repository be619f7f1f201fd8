// SPDX-License-Identifier: Apache-2.0
// yard explain: which kernel a call would run, and why not the others.
#include <fmt/format.h>
#include <yard/call_spec.h>
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
  int64_t pid = 0;           // 0: in this process
  std::string not_with_pid;  // an option that was given and has no effect on another process
  bool json = false;
};

std::vector<PolicyNote> policy_notes(const Json& from) {
  std::vector<PolicyNote> to;
  for (const Json& n : list_at(from, "policy"))
    to.push_back({text_at(n, "field"), text_at(n, "value"), text_at(n, "source")});
  return to;
}

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

// What Explanation::to_json() has written.
Explanation read_explanation(const Json& j) {
  Explanation to;
  to.op = text_at(j, "op"), to.call = printable(text_at(j, "call"));
  to.selected = text_at(j, "selected"), to.generation = count_at(j, "generation");
  for (const Json& c : list_at(j, "candidates")) to.candidates.push_back(read_candidate(c));
  to.policy = policy_notes(j);
  for (const Json& c : list_at(j, "counterfactuals"))
    if (c.is_string()) to.counterfactuals.push_back(printable(c.get<std::string>()));
  return to;
}

// As a running process would choose. Its policy applies: of the options only labels go with the call.
int explain_in_process(const ExplainQuestion& q) {
  if (!q.not_with_pid.empty())
    return fail(kUsage, fmt::format("--pid: expected no {} beside it: the policy is that of the "
                                    "process; labels and flags of the call can be in the CallSpec",
                                    q.not_with_pid));
  PolicyFlags labels_only;
  labels_only.label = q.policy.label;
  const auto options = labels_only.options("");
  if (!options.ok()) return fail(kUsage, options.status());
  Json args = {{"call", q.call}};
  for (const auto& [key, value] : options->labels) args["labels"][key] = value;
  auto remote = Remote::connect(q.pid);
  if (!remote.ok()) return fail(exit_code(remote.status()), remote.status());
  const auto result = remote->request("explain", args);
  if (!result.ok()) return fail(exit_code(result.status()), result.status());
  const Explanation e = read_explanation(*result);
  if (q.json)
    print_json(*result);
  else
    print_out("{}", e.to_text(colour()));
  return e.selected.empty() ? kFailed : kOk;
}

int explain_call(const ExplainQuestion& q) {
  if (q.pid != 0) return explain_in_process(q);
  if (const int code = use_config(Runtime::shared(), q.config); code != kOk) return code;
  const auto call = Runtime::shared().parse(q.call);
  if (!call.ok()) return fail(kUsage, call.status());
  const auto options = q.policy.options(call->op);
  if (!options.ok()) return fail(kUsage, options.status());
  const auto e = Runtime::shared().explain(q.call, *options);
  if (!e.ok()) return fail(exit_code(e.status()), e.status());
  if (q.json)
    print_json(Json::parse(e->to_json()));
  else
    print_out("{}", e->to_text(colour()));
  return e->selected.empty() ? kFailed : kOk;
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
  c->footer(
      "Runs the selector; no kernel is run and no tensor is made. Lists the kernels in the order\n"
      "in which they would be tried, then those that were rejected, each with its reason.\n"
      "Exit code 1 when no kernel can run the call, 2 when the rule file is invalid.\n"
      "\n"
      "Examples:\n"
      "  yard explain 'rms_norm(f32[8,4096], f32[4096])'\n"
      "  yard explain 'softmax(bf16[64,32000])' --prefer vendor --strict\n"
      "  yard explain 'softmax(f32[64,100;128,1])@cpu+deterministic'    padded rows, a flag\n"
      "  yard explain 'rms_norm(f32[8,64], f32[64], out=&x)'            in place\n"
      "  yard explain --config new.yaml 'softmax(f32[64,4096])'         under other rules\n"
      "  yard explain 'softmax(f32[4,8])' --order 'vendor:onednn|reference' --json\n"
      "\n"
      "In a running process, see yard ps:\n"
      "  yard explain --pid 4242 'rms_norm(f32[8,5120], f32[5120]){tenant=B}'");
  c->callback([q, c, &action] {
    for (const CLI::Option* o : c->get_options())
      if (o->count() > 0 && !o->get_positional() && !o->check_lname("pid") &&
          !o->check_lname("json") && !o->check_lname("label"))
        q->not_with_pid = o->get_name();
    action = [q] { return explain_call(*q); };
  });
}

}  // namespace yard::tool
