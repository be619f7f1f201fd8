// SPDX-License-Identifier: Apache-2.0
// Policy changes, their checks, and the dry run of rules.
#include "dispatch/policy_changes.h"

#include <fmt/format.h>

#include "base/lists.h"
#include "base/log.h"
#include "base/results.h"
#include "base/text.h"
#include "select/reasons.h"

namespace yard::dispatch {
namespace {

// Returns the first problem as the error, with the others as its notes.
Status check_map(const registry::State& state, const StaticMap& map) {
  Status status;
  const auto wrong = [&](Code code, std::string text) {
    status = status.ok() ? Status(code, std::move(text)) : std::move(status).note(std::move(text));
  };
  for (const auto& [op, kernel] : map) {
    const registry::OpRecord* op_record = state.find(op);
    if (op_record == nullptr)
      wrong(Code::kUnknownOp, fmt::format("the static map names op '{}', which is not known{}", op,
                                          base::did_you_mean(op, base::keys(state.op_records))));
    else if (op_record->kernels.count(kernel) == 0)
      wrong(Code::kNotFound,
            fmt::format("the static map names '{}' for op '{}', which has no such kernel{}", kernel,
                        op, base::did_you_mean(kernel, base::keys(op_record->kernels))));
  }
  return status;
}

// Calls check(mode, path for messages, key in Sources::places) for all modes that the config names.
template <class F>
Status check_each_mode(const ConfigSettings& s, const F& check) {
  if (s.mode) YARD_RETURN_IF_ERROR(check(*s.mode, "settings.mode", "settings.mode/"));
  for (const auto& [op, mode] : s.modes)
    YARD_RETURN_IF_ERROR(check(mode, "settings.modes." + op, "settings.modes/" + op));
  return {};
}

Status check_modes(const Config& config, const policy::Modes& modes) {
  return check_each_mode(config.settings, [&](const auto& mode, const std::string& path, auto&&) {
    return policy::check_mode_name(mode, &modes).note("named by " + path);
  });
}

Status check_unused(const Config& config, std::string_view mode) {
  const auto& places = config.sources.places;
  const auto check = [&](const auto& used, const std::string& path, const std::string& key) {
    if (used != mode) return Status();
    const auto at = places.find(key);
    const std::string where = at != places.end() ? policy::place_text(config, at->second) : "";
    constexpr auto kText =
        "mode '{}' is in use: {}{} of the rules in force names it; set other rules first";
    return Status(Code::kConflict, fmt::format(kText, mode, path, where));
  };
  return check_each_mode(config.settings, check);
}

// Publishes a change that cannot fail.
template <class F>
Status set_fields(Core& core, const F& set) {
  return core.published.edit_policy([&](const registry::State&, policy::ProcessPolicy& p) {
    set(p);
    return Status();
  });
}

// A field that no op has is probably misspelled, but a later op may have it. So only warn.
void warn_of_unknown_fields(const registry::State& state, const policy::ProgramMode& mode) {
  if (!mode.provider.reads) return;
  std::vector<std::string> known;
  for (const auto& [name, op_record] : state.op_records) {
    for (const std::string& f : op_record->op->program->field_names()) known.push_back(f);
    for (const auto& p : op_record->op->program->schema().params) known.push_back(p.name);
  }
  for (const std::string& name : *mode.provider.reads)
    if (!base::contains(known, name))
      base::log(LogLevel::kWarn, "select",
                fmt::format("mode '{}' reads '{}', which no op has{}", mode.name, name,
                            base::did_you_mean(name, known)));
}

Result<bool> change_if(Core& core, const StillApplies& still,
                       const std::function<Status(policy::ProcessPolicy&)>& change) {
  bool applies = true;
  const Status s = core.published.edit_policy([&](const auto&, policy::ProcessPolicy& p) {
    applies = still(p);
    return applies ? change(p) : Status(Code::kConflict, "");
  });
  if (applies && !s.ok()) return s;
  return applies;
}

// Says why the kernel is rejected, and why the kernel that rules require is, if there is one.
std::string why_not(const select::CandidateSet& candidates, const op::Call& call,
                    const registry::Kernel& kernel) {
  select::Notes notes;
  (void)select::select(candidates, call.args(), call.count(), call.flags(), &notes);
  std::string own, wanted;
  bool passed_over = false;  // for another kernel
  for (size_t i = 0; i < candidates.all().size(); ++i) {
    const select::KernelCandidate& c = candidates.all()[i];
    const yard_verdict_t& v = notes.entries[i].verdict;
    const bool locked = v.reason == YARD_REASON_LOCKED_OUT || v.reason == YARD_REASON_NOT_MAPPED;
    const bool is_own = c.kernel->id == kernel.id;
    if (!is_own && (locked || !wanted.empty())) continue;
    if (is_own) passed_over = locked;
    (is_own ? own : wanted) =
        fmt::format("{}: {}: {}", c.kernel->id, select::reason_name(v.reason),
                    select::describe(candidates, c, v, notes.entries[i].text));
  }
  if (own.empty()) return wanted.empty() ? "no other kernel may" : wanted;
  return wanted.empty() || !passed_over ? own : wanted + "; " + own;
}

}  // namespace

Status set_policy(Core& core, Policy policy) {
  YARD_RETURN_IF_ERROR(validate(policy));
  return set_fields(core, [&](policy::ProcessPolicy& p) { p.set = policy; });
}

Status set_labels(Core& core, op::Labels labels) {
  return set_fields(core, [&](policy::ProcessPolicy& p) { p.labels = labels; });
}

Status set_breakers(Core& core, const BreakerSettings& settings) {
  YARD_RETURN_IF_ERROR(validate(settings));
  return set_fields(core, [&](policy::ProcessPolicy& p) { p.breakers = settings; });
}

Status set_static_map(Core& core, StaticMap map) {
  for (const auto& [op, kernel] : map) core.sites.first_need(op, core.snapshot()->state->find(op));
  return core.published.edit_policy([&](const registry::State& state, policy::ProcessPolicy& p) {
    p.mapped = map;
    return check_map(state, map);
  });
}

Status add_mode(Core& core, std::shared_ptr<const policy::ProgramMode> mode) {
  return core.published.edit_policy([&](const registry::State& state, policy::ProcessPolicy& p) {
    auto modes = std::make_shared<policy::Modes>(*p.modes);
    if (!modes->emplace(mode->name, mode).second)
      return Status(Code::kConflict,
                    fmt::format("mode '{}' exists already; call remove_mode() first", mode->name));
    p.modes = std::move(modes);
    warn_of_unknown_fields(state, *mode);
    return Status();
  });
}

Status remove_mode(Core& core, std::string_view name) {
  return core.published.edit_policy([&](const auto&, policy::ProcessPolicy& p) -> Status {
    auto modes = std::make_shared<policy::Modes>(*p.modes);
    if (std::erase_if(*modes, [&](const auto& m) { return m.first == name; }) == 0)
      return Status(Code::kNotFound, fmt::format("the program has added no mode '{}'{}", name,
                                                 base::did_you_mean(name, base::keys(*p.modes))));
    if (p.file != nullptr) YARD_RETURN_IF_ERROR(check_unused(p.file->config, name));
    p.modes = std::move(modes);
    return Status();
  });
}

Status set_environment(Core& core, std::shared_ptr<const policy::Reading> reading) {
  return set_fields(core, [&](policy::ProcessPolicy& p) {
    p.reading = reading;
    for (auto& [backend, own] : p.own_switches) own.current = false;
  });
}

void read_own_switches(const registry::State& state, policy::ProcessPolicy& policy) {
  auto& own = policy.own_switches;
  std::erase_if(own, [&](const auto& o) { return !state.backends.contains(o.first); });
  for (const auto& [name, backend] : state.backends) {
    const auto known = own.find(name);
    if (backend->env.empty() || (known != own.end() && known->second.current)) continue;
    const char* value = std::getenv(backend->env.c_str());
    const auto last = known != own.end() ? known->second.on : std::nullopt;
    const auto& read = own[name] =
        policy::read_own_switch(backend->env, value != nullptr ? value : "", name, last);
    if (read.problem) base::log(LogLevel::kWarn, "policy", policy::to_string(*read.problem));
  }
}

bool is_in_rollout(const policy::ProcessPolicy& policy, const policy::FileRules* rules) {
  return policy.rollout != nullptr && policy.rollout->next().file.get() == rules;
}

Result<PublishedRules> set_file(Core& core, const std::shared_ptr<const policy::FileRules>& file,
                                const policy::RulesVersion& version, const StillApplies& still) {
  PublishedRules published;
  const auto applies = [&](const policy::ProcessPolicy& p) {
    return still(p) && (file != nullptr || p.file != nullptr);
  };
  const auto put = [&](policy::ProcessPolicy& p) -> Status {
    if (file != nullptr) YARD_RETURN_IF_ERROR(check_modes(file->config, *p.modes));
    auto next = std::make_shared<policy::RulesVersion>(version);
    next->number = p.version == nullptr ? 1 : p.version->number + 1;
    next->time = std::chrono::system_clock::now();
    if (p.file != nullptr) next->before = p.file->shared_config;
    if (file != nullptr) next->config = file->shared_config;
    p.version = published = std::move(next);
    p.file = file, p.rollout = nullptr;
    return {};
  };
  YARD_ASSIGN_OR_RETURN(const bool changed, change_if(core, applies, put));
  return changed ? published : nullptr;
}

Result<bool> begin_rollout(Core& core, const std::shared_ptr<const policy::FileRules>& file,
                           const StillApplies& still) {
  return change_if(core, still, [&](policy::ProcessPolicy& p) -> Status {
    YARD_RETURN_IF_ERROR(check_modes(file->config, *p.modes));
    auto next = std::make_shared<policy::ProcessPolicy>(p);
    next->file = file, next->rollout = nullptr;
    p.rollout = std::make_shared<policy::Rollout>(*file->config.rollout, std::move(next));
    return {};
  });
}

Result<bool> end_rollout(Core& core, const policy::FileRules* rules) {
  const auto still = [&](const policy::ProcessPolicy& p) { return is_in_rollout(p, rules); };
  return change_if(core, still, [](policy::ProcessPolicy& p) {
    p.rollout = nullptr;
    return Status();
  });
}

std::vector<MovedCall> moved_under(const Core& core,
                                   const std::shared_ptr<const policy::FileRules>& file,
                                   Moved which) {
  constexpr size_t kMostOfAnOp = 3;
  const uint64_t process = base::forks();
  const auto s = core.snapshot();
  policy::ProcessPolicy policy = *s->policy;
  policy.file = file;
  policy.settle(s->state->backend_names());

  std::vector<MovedCall> to;
  for (const auto& entry : core.planner.all_entries(*s)) {
    if (!entry->overlay_options.force.empty()) continue;  // a forced kernel depends on no rules
    // This cannot fail: the mode existed for the overlay, and the snapshot has all modes.
    auto parts =
        *parts_for(core, *s, policy, entry->name(), entry->overlay_key, entry->overlay_scope);
    if (which == Moved::kUnserved) parts.settings.health = nullptr;
    const select::CandidateSet candidates(std::move(parts));
    const auto able = [](const select::CandidateSet& set, const op::Call& call) {
      return select::select(set, call.args(), call.count(), call.flags());
    };
    std::set<std::vector<uint64_t>> found;  // keys, so that calls of one class are reported once
    for (const Planner::KnownCall& k : core.planner.known_calls(*entry)) {
      const op::Call& call = *k.call;
      const auto next = able(candidates, call);
      if (base::forks() != process) return to;  // a verifier has forked, and this is the child
      if (which == Moved::kUnserved && !next.empty()) continue;
      const registry::Kernel* kernel = k.kernel;
      if (kernel == nullptr) {  // no plan since the last change, and maybe no kernel
        const auto order = able(entry->candidates(), call);
        if (order.empty()) continue;
        kernel = entry->candidates().all()[order[0]].kernel.get();
      }
      const registry::Kernel* const taker =
          next.empty() ? nullptr : candidates.all()[next[0]].kernel.get();
      if (taker == kernel) continue;
      Key key;
      (void)entry->recipe().fold(call.args(), call.flags(), key);
      if (!found.insert({key.w, key.w + key.words}).second) continue;
      MovedCall& moved = to.emplace_back();
      moved.op = entry->name(), moved.from = kernel->id;
      moved.call = op::to_string(call.to_spec(entry->program()));
      if (taker != nullptr)
        moved.to = taker->id, moved.kind = taker->kind;
      else
        moved.why = why_not(candidates, call, *kernel);
      if (which == Moved::kUnserved && found.size() == kMostOfAnOp) break;
    }
  }
  return to;
}

}  // namespace yard::dispatch
