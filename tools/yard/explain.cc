// SPDX-License-Identifier: Apache-2.0
// yard explain: which kernel a call would run, and why not the others.
#include <fmt/format.h>
#include <yard/call_spec.h>
#include <yard/runtime.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "commands.h"
#include "config_file.h"
#include "json.h"
#include "output.h"
#include "policy_flags.h"
#include "terminal.h"

namespace yard::tool {
namespace {

struct ExplainQuestion {
  std::string call, config;
  PolicyFlags policy;
  bool json = false;
};

int explain_call(const ExplainQuestion& q) {
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
      "  yard explain 'softmax(f32[4,8])' --order 'vendor:onednn|reference' --json");
  c->callback([q, &action] { action = [q] { return explain_call(*q); }; });
}

}  // namespace yard::tool
