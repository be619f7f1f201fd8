// SPDX-License-Identifier: Apache-2.0
// What rules would do to the calls that have been seen, before they are put in force.
#include <fmt/format.h>

#include <algorithm>

#include "dispatch/core.h"
#include "select/explain.h"
#include "select/reasons.h"

namespace yard::detail {
namespace {

struct Known {
  op::Call call;
  const registry::Kernel* kernel;  // of the entry, which is held
};

// Some at a time, so that calls that need a plan wait for the lock only briefly. From the youngest to the
// oldest: what goes meanwhile is the oldest, and so none is skipped.
template <class F>
void for_each_class(std::mutex& plans, const Entry& entry, const F& f) {
  constexpr size_t kAtATime = 256;
  for (size_t end = SIZE_MAX; end > 0;) {
    std::vector<Known> some;
    {
      const std::lock_guard lock(plans);
      const auto& classes = entry.classes();
      end = std::min(end, classes.size());
      const size_t begin = end - std::min(end, kAtATime);
      for (size_t i = begin; i < end; ++i)
        some.push_back({classes[i].representative, classes[i].plan->attempts[0].kernel});
      end = begin;
    }
    for (const Known& k : some)
      if (!f(k)) return;
  }
}

// What kept the kernel out; and where that was the word for another one, what kept that out.
std::string why_not(const select::CandidateSet& candidates, const Known& known) {
  select::Notes notes;
  const op::Call& call = known.call;
  (void)select::select(candidates, call.args(), call.count(), call.flags(), &notes);
  const auto passed_over = [&](size_t i) {
    const int32_t reason = notes.entries[i].verdict.reason;
    return reason == YARD_REASON_LOCKED_OUT || reason == YARD_REASON_NOT_MAPPED;
  };
  const auto note = [&](size_t i) {
    const select::KernelCandidate& c = candidates.all()[i];
    const yard_verdict_t& v = notes.entries[i].verdict;
    return fmt::format("{}: {}: {}", c.kernel->id, select::reason_name(v.reason),
                       select::describe(candidates, c, v, notes.entries[i].text));
  };
  const size_t none = candidates.all().size();
  size_t own = none, wanted = none;
  for (size_t i = 0; i < none; ++i) {
    if (candidates.all()[i].kernel->id == known.kernel->id)
      own = i;
    else if (wanted == none && !passed_over(i))
      wanted = i;
  }
  if (own == none) return wanted == none ? "no other kernel may" : note(wanted);
  return wanted == none || !passed_over(own) ? note(own) : note(wanted) + "; " + note(own);
}

}  // namespace

std::vector<Core::Orphan> Core::left_without(const std::shared_ptr<const policy::FileRules>& file,
                                             size_t most) const {
  const auto s = snapshot();
  Root& r = root();
  policy::ProcessPolicy policy = *s->policy;
  policy.file = file;
  std::vector<std::string> backends;
  for (const auto& [name, backend] : s->state->backends) backends.push_back(name);
  policy.settle(backends);

  std::vector<std::shared_ptr<const Entry>> entries(s->owners().begin(), s->owners().end());
  {
    const std::lock_guard lock(r.plans);
    for (auto& overlay : s->overlays())
      // A call that forces its kernel answers for that itself.
      if (overlay->policy_override->constraints.force.empty())
        entries.push_back(std::move(overlay));
  }
  std::vector<Orphan> to;
  for (const auto& entry : entries) {
    if (entry == nullptr) continue;
    const registry::OpRecord& op_record = entry->candidates().op_record();
    auto settings = settings_for(policy, op_record);
    const PolicyOverride none;
    const PolicyOverride& extra =
        entry->policy_override != nullptr ? *entry->policy_override : none;
    const auto candidates = select::CandidateSet::make(
        s->state->op_records.find(op_record.op->name)->second, merge(policy.in_force, extra.policy),
        extra.constraints, {host, s->forked}, settings_for(std::move(settings), extra));
    size_t found = 0;
    for_each_class(r.plans, *entry, [&](const Known& k) {
      const bool able =
          !select::select(candidates, k.call.args(), k.call.count(), k.call.flags()).empty();
      // A verifier that forked: in the child the lock may be held by nobody who could let go.
      if (&r != &root()) return false;
      if (able) return true;
      to.push_back(
          {op::to_string(k.call.to_spec(entry->program())), k.kernel->id, why_not(candidates, k)});
      return ++found < most;
    });
    if (&r != &root()) break;
  }
  return to;
}

}  // namespace yard::detail
