// SPDX-License-Identifier: Apache-2.0
// Sample calls of a runtime's ops: see yard/verify.h.
#include <yard/verify.h>

#include <fmt/format.h>

#include "dispatch/core.h"
#include "op/call.h"
#include "tune/samples.h"

namespace yard {
namespace {

template <class Rule>
void add_unmet(const Config& config, const std::vector<Rule>& rules, const char* section,
               const std::vector<bool>& met, std::vector<std::string>& to) {
  for (size_t i = 0; i < rules.size(); ++i) {
    if (met[i]) continue;
    const Rule& r = rules[i];
    std::string text = r.name.empty() ? "" : fmt::format("'{}', ", r.name);
    text += fmt::format("{}[{}]", section, i);
    if (r.at.line > 0 && r.at.file < config.sources.files.size())
      text += fmt::format(" ({}:{})", config.sources.files[r.at.file], r.at.line);
    to.push_back(std::move(text));
  }
}

}  // namespace

std::vector<std::string> unmet_rules(const Runtime& runtime, std::span<const std::string> calls) {
  const auto s = runtime.core().snapshot();
  const auto file = s->policy->file;
  if (file == nullptr) return {};
  const Config& config = file->config;
  std::vector<bool> rules(config.dispatch_rules.size()), scores(config.score.size());
  policy::Matches matches;
  for (const std::string& text : calls) {
    auto spec = op::parse_call_spec(text);
    const registry::OpRecord* op_record = spec.ok() ? s->state->find(spec->op) : nullptr;
    if (op_record == nullptr) continue;
    spec->labels.insert(spec->labels.end(), s->policy->labels.begin(), s->policy->labels.end());
    const auto call = op::Call::from_spec(*op_record->op->program, *spec, &op_record->op->d);
    const auto of_op = file->rules_for(op_record->op->program);
    if (!call.ok() || of_op == nullptr) continue;
    of_op->match({call->args(), call->flags(), call->device(), &call->labels()}, matches);
    for (const uint32_t r : matches.rules) rules[of_op->rules()[r].source] = true;
    for (const uint32_t r : matches.scores) scores[of_op->scores()[r].source] = true;
  }
  std::vector<std::string> to;
  add_unmet(config, config.dispatch_rules, "dispatch_rules", rules, to);
  add_unmet(config, config.score, "score", scores, to);
  return to;
}

Result<std::vector<std::string>> sample_calls(const Runtime& runtime, std::string_view op,
                                              std::span<const Config> configs, size_t limit) {
  auto s = runtime.core().snapshot();
  if (runtime.core().sites.first_need(op, s->state->find(op))) s = runtime.core().snapshot();
  const registry::OpRecord* op_record = s->state->find(op);
  if (op_record == nullptr) return runtime.core().sites.unknown_op(*s->state, op);
  return tune::sample_calls(*op_record->op->program, &op_record->op->d, configs, limit);
}

}  // namespace yard
