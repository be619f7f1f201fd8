// SPDX-License-Identifier: Apache-2.0
// Filters, verifies and orders kernels, and applies modes that the program has added.
#include "select/select.h"

#include <fmt/format.h>
#include <yard/detail/guard.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "base/float_state.h"
#include "base/lists.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "base/thread_record.h"
#include "op/numbers.h"
#include "select/reasons.h"

namespace yard::select {
namespace {

thread_local constinit int t_depth = 0;

struct DepthGuard : base::ForeignCode {
  DepthGuard() { ++t_depth; }
  ~DepthGuard() { --t_depth; }
};

using policy::kNoClause;

struct Selection {
  const CandidateSet& candidates;
  const yard_value_t* args;
  uint32_t count, flags;
  Device device;
  const std::vector<policy::Ruling>& rulings;
  Notes& notes;
  bool respects_breakers = true;

  const KernelCandidate& candidate(size_t i) const { return candidates.all()[i]; }
};

// The figures are the index of the limit, the value (0 for optionals), and the argument's index.
void check_limit(const Selection& s, const Limit& l, yard_verdict_t& v) {
  int64_t found = 0;
  if (op::holds(l.predicate, s.args, found)) return;
  if (l.predicate.field.kind == op::Field::Kind::kPresence) found = 0;
  reject(v, l.reason, l.index, found, l.arg);
}

void verify(const Selection& s, const KernelCandidate& c, Notes::Entry& note) {
  yard_verdict_t& verdict = note.verdict;
  const registry::Kernel& k = *c.kernel;
  int64_t read[YARD_MAX_ARGS * 4];
  const std::vector<op::Field>& fields = c.verify_reads.fields;
  for (size_t i = 0; i < fields.size(); ++i) read[i] = op::read(fields[i], s.args);
  yard_query_t query{};
  query.size = sizeof query, query.flags = s.flags, query.host = s.candidates.host();
  query.self = k.d.self, query.args = s.args, query.count = s.count, query.read = read;
  query.device = {s.device.type, s.device.index};
  int32_t code = YARD_OK;
  const base::FloatState restored;
  try {
    code = k.d.verify(&query, &verdict);
  } catch (...) {
    if (detail::thread_is_unwinding()) throw;
    reject(verdict, YARD_REASON_VERIFIER_BROKEN);
    note.text = base::current_exception_text();
  }
  if (code != YARD_OK && verdict.reason == YARD_REASON_NONE) verdict.reason = YARD_REASON_REFUSED;
  verdict.flags = kByVerifier;
}

void check_health(const Selection& s, const KernelCandidate& c, Notes::Entry& note) {
  const health::HealthSnapshot* view = s.candidates.settings().health.get();
  if (view == nullptr) return;
  if (view->is_lost(s.device)) {
    reject(note.verdict, YARD_REASON_UNHEALTHY);
    note.text = fmt::format("device {} is lost", to_string(s.device));
    return;
  }
  if (!s.respects_breakers) return;
  const health::BreakerStatus* breaker = c.breaker_for(s.candidates.program(), s.device, s.args);
  if (breaker == nullptr || breaker->state != BreakerState::kOpen) return;
  reject(note.verdict, YARD_REASON_UNHEALTHY);
  const std::string calls =
      breaker == c.breaker ? "all its calls"
                           : fmt::format("such calls ({})", health::to_string(breaker->key.kind));
  note.text = fmt::format("its breaker for {} {}", calls, open_breaker_text(*breaker));
}

void check_transforms(const Selection& s, const KernelCandidate& c, Notes::Entry& note) {
  note.transforms = c.needed_transforms(s.args);
  for (const NeededTransform& t : note.transforms) {
    const auto no = [&](NoTransform why) {
      return reject(note.verdict, YARD_REASON_TRANSFORM, t.param, t.kinds,
                    static_cast<int64_t>(why));
    };
    if (s.candidates.clauses().find(policy::Clause::Act::kNoTransforms) != nullptr)
      return no(NoTransform::kForbidden);
    if (s.device.type != Device{}.type) return no(NoTransform::kOtherDevice);
    if (!op::is_copyable(t.from)) return no(NoTransform::kNotCopyable);
  }
}

void check(const Selection& s, const KernelCandidate& c, Notes::Entry& note) {
  yard_verdict_t& v = note.verdict = c.fixed;
  const registry::Kernel& k = *c.kernel;
  const auto fine = [&] { return v.reason == YARD_REASON_NONE; };
  const auto has = [](uint32_t flags, uint32_t flag) { return (flags & flag) != 0; };
  if (!fine()) return;
  if (s.device.type != k.backend->d.device_type)
    reject(v, YARD_REASON_DEVICE, s.device.type, k.backend->d.device_type);
  else if (has(s.flags, YARD_CALL_DETERMINISTIC) && !has(k.d.flags, YARD_KERNEL_DETERMINISTIC))
    reject(v, YARD_REASON_NOT_DETERMINISTIC);
  else if (has(s.flags, YARD_CALL_CAPTURING) && !has(k.d.flags, YARD_KERNEL_CAPTURE_SAFE))
    reject(v, YARD_REASON_NOT_CAPTURE_SAFE);
  else if (!has(s.flags, YARD_CALL_INFERENCE) && has(k.d.flags, YARD_KERNEL_INFERENCE_ONLY))
    reject(v, YARD_REASON_INFERENCE_ONLY);
  else if (!has(s.flags, YARD_CALL_LOADED) && k.needs_weights)
    reject(v, YARD_REASON_NOT_LOADED);
  for (size_t i = 0; i < c.device_needs.size() && fine(); ++i)
    if (!has_feature(s.candidates.host(), s.device, k.needs[c.device_needs[i]].name))
      reject(v, YARD_REASON_DEVICE_FEATURE, c.device_needs[i], s.device.index);
  for (size_t i = 0; i < c.limits.size() && fine(); ++i) check_limit(s, c.limits[i], v);
  if (fine()) check_transforms(s, c, note);
  if (fine()) check_health(s, c, note);
  // Expensive checks come last. A probe runs once per device, a verifier every time.
  if (fine() && k.backend->d.probe != nullptr) {
    const registry::DeviceProbe& probe = k.backend->probe(s.device, s.candidates.host());
    if (!probe.available) {
      reject(v, YARD_REASON_UNAVAILABLE);
      note.text = refusal(probe);
    }
  }
  if (fine() && k.d.verify != nullptr) verify(s, c, note);
}

double estimate(const Selection& s, const KernelCandidate& c) {
  if (c.kernel->d.cost == nullptr) return -1;
  int64_t fields[YARD_MAX_ARGS * 4];
  for (size_t i = 0; i < c.cost_fields.size(); ++i)
    fields[i] = op::half_octave_floor(op::read_apart(c.cost_fields[i], s.args));
  const base::FloatState restored;
  try {
    const double ns =
        c.kernel->d.cost(c.kernel->d.self, fields, static_cast<uint32_t>(c.cost_fields.size()));
    return std::isfinite(ns) && ns >= 0 ? ns : -1;
  } catch (...) {
    if (detail::thread_is_unwinding()) throw;
    return -1;  // the kernel itself may still work
  }
}

// Puts the best first. Candidates come in the order of ids, so stable sorts break ties by id.
void sort(const Selection& s, Order& order) {
  const auto note = [&](uint16_t i) -> Notes::Entry& { return s.notes.entries[i]; };
  // The static kernel comes before the kernels that rules name.
  const auto group = [&](uint16_t i) {
    const int tier = s.candidates.clauses().tier(i);
    return std::tuple(tier >= 0, note(i).rule, tier);
  };
  std::ranges::stable_sort(order, {}, group);
  for (auto first = order.begin(); first != order.end();) {
    const auto last =
        std::find_if(first, order.end(), [&](uint16_t i) { return group(i) != group(*first); });
    const bool all_estimate =
        std::all_of(first, last, [&](uint16_t i) { return note(i).estimate_ns >= 0; });
    std::for_each(first, last, [&](uint16_t i) { note(i).by_estimate = all_estimate; });
    std::stable_sort(first, last, [&](uint16_t i, uint16_t k) {
      const Notes::Entry &x = note(i), &y = note(k);
      if (all_estimate && x.estimate_ns != y.estimate_ns) return x.estimate_ns < y.estimate_ns;
      return x.priority != y.priority ? x.priority > y.priority
                                      : x.transforms.empty() > y.transforms.empty();
    });
    first = last;
  }
}

std::vector<std::string> ids_of_mode(const Selection& s, const Order& order) {
  const ModeProvider& provider = s.candidates.mode().program->provider;
  const op::Labels& labels = s.candidates.settings().labels;
  const op::Program& program = s.candidates.program();
  std::vector<ModeCall::Candidate> candidates;
  for (const uint16_t i : order) {
    const registry::Kernel& k = *s.candidate(i).kernel;
    const Notes::Entry& note = s.notes.entries[i];
    candidates.push_back({k.id, k.backend->vendor, k.kind, note.priority, note.estimate_ns});
  }
  std::vector<std::string> ids;
  std::vector<int64_t> read;
  for (const op::Field& f : s.candidates.mode_reads().fields) read.push_back(op::read(f, s.args));
  if (provider.plan)
    ids = provider.plan(
        {program.name(), read, {s.args, s.count}, s.flags, s.device, labels, candidates});
  if (ids.empty() && provider.kernel) {
    const op::Call call = op::Call::capture(program, s.args, s.flags, labels);
    ids.push_back(provider.kernel(op::to_string(call.to_spec(program))));
    std::erase(ids, "");
  }
  return ids;
}

// Puts the kernels that the mode names first, in its order, and returns their number.
size_t apply_mode(const Selection& s, Order& order) {
  const auto warn = [&](const std::string& text) {
    base::log(LogLevel::kWarn, "select",
              fmt::format("mode '{}' {}", s.candidates.mode().program->name, text));
  };
  const char* op = s.candidates.program().name().c_str();
  std::string why = "it gave no answer";
  std::vector<std::string> ids;
  try {
    ids = ids_of_mode(s, order);
  } catch (...) {
    why = fmt::format("it threw: {}", base::current_exception_text());
    warn(fmt::format("was asked for a kernel of op '{}': {}", op, why));
  }
  auto next = order.begin();
  for (const std::string& id : ids) {
    const auto at = std::find_if(next, order.end(),
                                 [&](uint16_t i) { return s.candidate(i).kernel->id == id; });
    if (at != order.end()) {
      std::rotate(next, at, at + 1);
      ++next;
    } else if (s.candidates.op_record().kernels.count(id) == 0) {
      warn(fmt::format("names '{}', and op '{}' has no such kernel", id, op));
    }
  }
  s.notes.by_mode = static_cast<size_t>(next - order.begin());
  if (s.notes.by_mode == 0)
    s.notes.mode_text = ids.empty() ? why : fmt::format("'{}' cannot serve the call", ids[0]);
  return s.notes.by_mode;
}

// Moves the kernels of the fallback chain behind the first choices, before all others.
void follow_chain(const Selection& s, size_t first, Order& order) {
  if (order.size() < first + 2) return;
  auto next = order.begin() + static_cast<ptrdiff_t>(first);
  for (const uint16_t wanted : s.candidates.clauses().chain()) {
    const auto at = std::find(next, order.end(), wanted);
    if (at == order.end()) continue;
    s.notes.entries[wanted].by_chain = true;
    std::rotate(next, at, at + 1);
    ++next;
  }
}

Order find_able(const Selection& s) {
  const policy::Clauses& clauses = s.candidates.clauses();
  s.notes.entries.assign(s.candidates.all().size(), {});
  Order able;
  for (size_t i = 0; i < s.notes.entries.size(); ++i) {
    const KernelCandidate& c = s.candidate(i);
    Notes::Entry& note = s.notes.entries[i];
    // Clauses come before what the call rules out. Clauses with conditions come after the machine.
    const uint32_t excluded = s.rulings[i].excluded;
    const bool by_machine =
        c.fixed.reason != YARD_REASON_NONE && clauses.always(i).excluded == kNoClause;
    if (excluded != kNoClause && !by_machine)
      note.verdict = verdict_of(clauses, excluded);
    else
      check(s, c, note);
    if (note.verdict.reason != YARD_REASON_NONE) continue;
    able.push_back(static_cast<uint16_t>(i));
    note.estimate_ns = estimate(s, c);
    for (const NeededTransform& t : note.transforms)
      if (note.estimate_ns >= 0) note.estimate_ns += t.ns;
  }
  return able;
}

Order order_in(const Selection& s, const policy::ClauseGroup& group, Order order) {
  using Takes = policy::ClauseGroup::Takes;
  constexpr double kMost = std::numeric_limits<double>::max();
  const policy::Clauses& clauses = s.candidates.clauses();
  const policy::Ruling no_rules;
  for (const uint16_t i : order) {
    const policy::Ruling& r = group.rules ? s.rulings[i] : no_rules;
    const auto priority = static_cast<double>(s.candidate(i).kernel->priority);
    s.notes.entries[i].rule = clauses.tier(i) < 0 ? kNoClause : r.chosen;
    s.notes.entries[i].priority = std::clamp((priority + r.add) * r.multiply, -kMost, kMost);
  }
  std::erase_if(order, [&](uint16_t i) {
    if (group.takes == Takes::kMapped) return clauses.tier(i) >= 0;
    return group.takes == Takes::kChosen && s.notes.entries[i].rule == kNoClause;
  });
  sort(s, order);
  const bool has_mode = s.candidates.mode().program != nullptr && !order.empty();
  const size_t named = has_mode ? apply_mode(s, order) : 0;
  follow_chain(s, std::max<size_t>(named, 1), order);
  if (named > 0)
    order.by = Mode::kProgram;
  else if (!order.empty() && clauses.tier(order[0]) < 0)
    order.by = Mode::kStatic;
  else if (!order.empty() && s.notes.entries[order[0]].rule != kNoClause)
    order.by = group.mode == Mode::kHotReload ? Mode::kHotReload : Mode::kConfig;
  return order;
}

Order order_in_groups(const Selection& s, Order able) {
  const std::span<const policy::ClauseGroup> groups = s.candidates.clauses().groups();
  if (groups.size() == 1) return order_in(s, groups[0], std::move(able));
  Order all;
  for (const policy::ClauseGroup& group : groups) {
    const Order order = order_in(s, group, able);
    all.insert(all.end(), order.begin(), order.end());
    all.modes.resize(all.size(), order.by);
    std::erase_if(able, [&](uint16_t i) { return base::contains(order, i); });
  }
  if (!all.empty()) all.by = all.modes[0];
  return all;
}

}  // namespace

int select_depth() noexcept { return t_depth; }

Order select(const CandidateSet& candidates, const yard_value_t* args, uint32_t count,
             uint32_t flags, Notes* notes) {
  const DepthGuard depth;
  policy::Rulings rulings;
  Notes own;
  Selection s{candidates,
              args,
              count,
              flags,
              device_of(args, count),
              rulings.kernels,
              notes != nullptr ? *notes : own};
  candidates.clauses().evaluate({args, flags, s.device, &candidates.settings().labels}, rulings);
  Order able = find_able(s);
  // If open breakers leave no kernel, ignore them.
  if (able.empty() && candidates.settings().health != nullptr) {
    s.respects_breakers = false;
    able = find_able(s);
  }
  Order order = order_in_groups(s, std::move(able));
  order.transforms = !order.empty() && !s.notes.entries[order[0]].transforms.empty();
  return order;
}

}  // namespace yard::select
