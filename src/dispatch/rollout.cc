// SPDX-License-Identifier: Apache-2.0
// Rules in rollout: an overlay that some calls are sent to, timed beside the others.
#include <fmt/format.h>

#include <algorithm>

#include "dispatch/call.h"
#include "dispatch/watched.h"
#include "select/health_key.h"

namespace yard::detail {
namespace {

// What calls are told apart by when their times are compared: op, device, dtypes and sizes.
uint64_t kind_of(const policy::Rollout& rollout, const Entry& entry, const yard_value_t* args) {
  const op::Program& program = entry.program();
  const uint32_t index = entry.candidates().op_record().op->index;
  const std::vector<op::Field>* const sizes = rollout.sizes(index, program);
  const select::CallKind kind =
      sizes != nullptr ? select::call_kind(program, *sizes, args)
                       : select::call_kind(program, select::health_dims(program), args);
  uint64_t hash = index;
  const auto add = [&](uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  };
  add(static_cast<uint64_t>(kind.device.type) << 32 | static_cast<uint32_t>(kind.device.index));
  add(kind.dtypes);
  for (const uint8_t bucket : kind.sizes.get()) add(bucket);
  return hash;
}

}  // namespace

Status Core::begin_rollout(std::shared_ptr<const policy::FileRules> file, const RolloutRule& rule) {
  return edit_policy([&](const registry::State& state, policy::ProcessPolicy& p) {
    YARD_RETURN_IF_ERROR(check_modes(file->config, *p.modes));
    auto next = std::make_shared<policy::ProcessPolicy>(p);
    next->file = file;
    next->rollout = nullptr;
    std::vector<policy::Rollout::OpSizes> sizes(state.index_count());
    for (const auto& [name, op_record] : state.op_records)
      sizes[op_record->op->index] = {op_record->op->program,
                                     select::health_dims(*op_record->op->program)};
    p.rollout = std::make_shared<policy::Rollout>(rule, std::move(next), std::move(sizes));
    return Status();
  });
}

Status Core::end_rollout() {
  return edit_policy([&](const auto&, policy::ProcessPolicy& p) {
    p.rollout = nullptr;
    return Status();
  });
}

Status run_tallied(base::ThreadRecord& thread, const Core& core, const Entry& entry,
                   const exec::Plan& plan, const exec::Request& request,
                   const policy::Rollout& rollout, bool in_rollout) {
  policy::RolloutTally& tally = rollout.tally(kind_of(rollout, entry, request.args), in_rollout);
  exec::Outcome outcome;
  const auto start = std::chrono::steady_clock::now();
  Status s = run_watched(thread, core, entry, plan, request, outcome);
  // A caller's mistake says nothing about rules.
  if (s.error_class() != ErrorClass::kCaller)
    tally.add(static_cast<uint64_t>((std::chrono::steady_clock::now() - start).count()),
              !outcome.failures.empty());
  return s;
}

void tally_unserved(const policy::Rollout& rollout, const Entry& entry, const yard_value_t* args,
                    const Status& why) {
  if (why.error_class() != ErrorClass::kCaller)
    rollout.tally(kind_of(rollout, entry, args), true).add_unserved();
}

bool takes_rollout(const policy::Rollout& rollout, const Entry& entry, const Options* options,
                   const ScopeState* scope) {
  const op::Labels& known = entry.candidates().settings().labels;
  const bool said = (options != nullptr && !options->labels.empty()) ||
                    (scope != nullptr && !scope->content.labels.empty());
  if (rollout.rule().labels.empty() || !said) return rollout.takes(known);
  op::Labels all = call_labels(options, scope);  // those of the call and the scope come first
  for (const auto& label : known)
    if (std::none_of(all.begin(), all.end(), [&](const auto& l) { return l.first == label.first; }))
      all.push_back(label);
  return rollout.takes(all);
}

}  // namespace yard::detail
