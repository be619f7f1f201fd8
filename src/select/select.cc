// SPDX-License-Identifier: Apache-2.0
// Filter, verify, order; and modes that the program has added.
#include "select/select.h"

#include <fmt/format.h>
#include <yard/detail/guard.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/float_state.h"
#include "base/lists.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
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
  Notes* notes;
  const std::vector<policy::Ruling>& rulings;
  bool respects_breakers = true;
};

// Figures of a failed limit: its index, the value found (of optional arguments none), and of limits on tensors the
// argument's index.
void check_limit(const Selection& s, const Limit& l, yard_verdict_t& v) {
  int64_t found = 0;
  if (op::holds(l.predicate, s.args, found)) return;
  if (l.predicate.field.kind == op::Field::Kind::kPresence) found = 0;
  reject(v, l.reason, l.index, found, l.arg);
}

void verify(const Selection& s, const KernelCandidate& c, yard_verdict_t& verdict,
            std::string* text) {
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
    if (text != nullptr) *text = base::current_exception_text();
  }
  if (code != YARD_OK && verdict.reason == YARD_REASON_NONE) verdict.reason = YARD_REASON_REFUSED;
  verdict.flags = kByVerifier;
}

void check_health(const Selection& s, const KernelCandidate& c, yard_verdict_t& v,
                  std::string* text) {
  const health::HealthSnapshot* view = s.candidates.settings().health.get();
  if (view == nullptr) return;
  if (view->is_lost(s.device)) {
    reject(v, YARD_REASON_UNHEALTHY);
    if (text != nullptr) *text = fmt::format("device {} is lost", to_string(s.device));
    return;
  }
  if (!s.respects_breakers) return;
  const health::BreakerStatus* breaker = c.breaker_for(s.candidates.program(), s.device, s.args);
  if (breaker == nullptr || breaker->state != BreakerState::kOpen) return;
  reject(v, YARD_REASON_UNHEALTHY);
  if (text == nullptr) return;
  const std::string calls =
      breaker == c.breaker ? "all its calls"
                           : fmt::format("such calls ({})", health::to_string(breaker->key.kind));
  *text = fmt::format("its breaker for {} {}", calls, open_breaker_text(*breaker));
}

// Transforms that the call needs for the kernel must be allowed, and possible for the host.
void check_transforms(const Selection& s, const KernelCandidate& c, yard_verdict_t& v) {
  for (const NeededTransform& t : c.needed_transforms(s.args)) {
    const auto no = [&](NoTransform why) {
      return reject(v, YARD_REASON_TRANSFORM, t.param, t.kinds, static_cast<int64_t>(why));
    };
    if (s.candidates.clauses().find(policy::Clause::Act::kNoTransforms) != nullptr)
      return no(NoTransform::kForbidden);
    if (s.device.type != Device{}.type) return no(NoTransform::kOtherDevice);
    if (!op::is_copyable(t.from)) return no(NoTransform::kNotCopyable);
  }
}

yard_verdict_t check(const Selection& s, const KernelCandidate& c, std::string* text) {
  yard_verdict_t v = c.fixed;
  const registry::Kernel& k = *c.kernel;
  const auto fine = [&] { return v.reason == YARD_REASON_NONE; };
  const auto has = [](uint32_t flags, uint32_t flag) { return (flags & flag) != 0; };
  if (!fine()) return v;
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
  if (fine()) check_transforms(s, c, v);
  if (fine()) check_health(s, c, v, text);
  // Expensive checks come last: the probe runs once per device, the verifier every time.
  if (fine() && k.backend->d.probe != nullptr) {
    const registry::DeviceProbe& probe = k.backend->probe(s.device, s.candidates.host());
    if (!probe.available) reject(v, YARD_REASON_UNAVAILABLE);
    if (!probe.available && text != nullptr) *text = refusal(probe);
  }
  if (fine() && k.d.verify != nullptr) verify(s, c, v, text);
  return v;
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
    return -1;  // no estimate; the kernel itself may still be fine
  }
}

struct Able {
  uint16_t index;
  double cost;
  int tier;
  uint32_t rule;  // the best that names it, an index into the clauses
  double priority;
  bool transforms;  // it needs an argument transformed
};

// Best first. Candidates are in the order of their ids, so stable sorts break ties by id.
void sort(std::vector<Able>& able) {
  // The static kernel comes before those that rules name.
  const auto group = [](const Able& a) { return std::tuple(a.tier >= 0, a.rule, a.tier); };
  std::stable_sort(able.begin(), able.end(),
                   [&](const Able& x, const Able& y) { return group(x) < group(y); });
  for (auto first = able.begin(); first != able.end();) {
    auto last = first;
    bool all_estimate = true;
    for (; last != able.end() && group(*last) == group(*first); ++last)
      all_estimate &= last->cost >= 0;
    std::stable_sort(first, last, [&](const Able& x, const Able& y) {
      if (all_estimate && x.cost != y.cost) return x.cost < y.cost;
      return x.priority != y.priority ? x.priority > y.priority : x.transforms < y.transforms;
    });
    first = last;
  }
}

std::vector<std::string> ids_of_mode(const Selection& s, const std::vector<Able>& able) {
  const ModeProvider& provider = s.candidates.mode().program->provider;
  const op::Labels& labels = s.candidates.settings().labels;
  const op::Program& program = s.candidates.program();
  std::vector<ModeCall::Candidate> candidates;
  for (const Able& a : able) {
    const registry::Kernel& k = *s.candidates.all()[a.index].kernel;
    candidates.push_back({k.id, k.backend->vendor, k.kind, a.priority, a.cost});
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
size_t apply_mode(const Selection& s, const std::vector<Able>& able, Order& order) {
  const auto warn = [&](const std::string& text) {
    base::log(LogLevel::kWarn, "select",
              fmt::format("mode '{}' {}", s.candidates.mode().program->name, text));
  };
  const char* op = s.candidates.program().name().c_str();
  std::string why = "it gave no answer";
  std::vector<std::string> ids;
  try {
    ids = ids_of_mode(s, able);
  } catch (...) {
    why = fmt::format("it threw: {}", base::current_exception_text());
    warn(fmt::format("was asked for a kernel of op '{}': {}", op, why));
  }
  auto next = order.begin();
  for (const std::string& id : ids) {
    const auto at = std::find_if(
        next, order.end(), [&](uint16_t i) { return s.candidates.all()[i].kernel->id == id; });
    if (at != order.end()) {
      std::rotate(next, at, at + 1);
      ++next;
    } else if (s.candidates.op_record().kernels.count(id) == 0) {
      warn(fmt::format("names '{}', and op '{}' has no such kernel", id, op));
    }
  }
  const auto named = static_cast<size_t>(next - order.begin());
  if (s.notes == nullptr) return named;
  s.notes->by_mode = named;
  if (named == 0)
    s.notes->mode_text = ids.empty() ? why : fmt::format("'{}' cannot serve the call", ids[0]);
  return named;
}

// Moves the kernels of the fallback chain behind the first choices, before all others.
void follow_chain(const std::vector<uint16_t>& chain, size_t first, Order& order, Notes* notes) {
  if (order.size() < first + 2) return;
  auto next = order.begin() + static_cast<ptrdiff_t>(first);
  for (const uint16_t wanted : chain) {
    const auto at = std::find(next, order.end(), wanted);
    if (at == order.end()) continue;
    if (notes != nullptr) notes->entries[wanted].by_chain = true;
    std::rotate(next, at, at + 1);
    ++next;
  }
}

std::vector<Able> find_able(const Selection& s) {
  const std::vector<KernelCandidate>& all = s.candidates.all();
  const policy::Clauses& clauses = s.candidates.clauses();
  if (s.notes != nullptr) s.notes->entries.assign(all.size(), {});
  std::vector<Able> able;
  able.reserve(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    Notes::Entry* note = s.notes != nullptr ? &s.notes->entries[i] : nullptr;
    // Clauses come before what the call itself rules out; those with conditions come after the machine.
    const uint32_t excluded = s.rulings[i].excluded;
    const bool by_machine =
        all[i].fixed.reason != YARD_REASON_NONE && clauses.always(i).excluded == kNoClause;
    const yard_verdict_t v = excluded != kNoClause && !by_machine
                                 ? verdict_of(clauses, excluded)
                                 : check(s, all[i], note != nullptr ? &note->text : nullptr);
    if (note != nullptr) note->verdict = v;
    if (v.reason != YARD_REASON_NONE) continue;
    double cost = estimate(s, all[i]);
    std::vector<NeededTransform> transforms = all[i].needed_transforms(s.args);
    for (const NeededTransform& t : transforms)
      if (cost >= 0) cost += t.ns;
    able.push_back({static_cast<uint16_t>(i), cost, clauses.tier(i), kNoClause,
                    static_cast<double>(all[i].kernel->priority), !transforms.empty()});
    if (note != nullptr) note->estimate_ns = cost, note->transforms = std::move(transforms);
  }
  return able;
}

Order order_in(const Selection& s, const policy::ClauseGroup& group, std::vector<Able> able) {
  using Takes = policy::ClauseGroup::Takes;
  constexpr double kMost = std::numeric_limits<double>::max();
  for (size_t i = 0; i < able.size() && group.rules; ++i) {
    const policy::Ruling& r = s.rulings[able[i].index];
    able[i].rule = r.chosen;
    able[i].priority = std::clamp((able[i].priority + r.add) * r.multiply, -kMost, kMost);
  }
  if (group.takes == Takes::kMapped) std::erase_if(able, [](auto& a) { return a.tier >= 0; });
  if (group.takes == Takes::kChosen)
    std::erase_if(able, [](auto& a) { return a.rule == kNoClause; });
  sort(able);
  Order order;
  order.reserve(able.size());
  for (const Able& a : able) {
    order.push_back(a.index);
    if (s.notes == nullptr) continue;
    s.notes->entries[a.index].rule = a.tier < 0 ? kNoClause : a.rule;
    s.notes->entries[a.index].priority = a.priority;
  }
  const bool has_mode = s.candidates.mode().program != nullptr && !order.empty();
  const size_t named = has_mode ? apply_mode(s, able, order) : 0;
  follow_chain(s.candidates.clauses().chain(), std::max<size_t>(named, 1), order, s.notes);
  if (named > 0)
    order.by = Mode::kProgram;
  else if (!able.empty() && able[0].tier < 0)
    order.by = Mode::kStatic;
  else if (!able.empty() && able[0].rule != kNoClause)
    order.by = group.mode == Mode::kHotReload ? Mode::kHotReload : Mode::kConfig;
  return order;
}

Order order_in_groups(const Selection& s, std::vector<Able> able) {
  const std::span<const policy::ClauseGroup> groups = s.candidates.clauses().groups();
  if (groups.size() == 1) return order_in(s, groups[0], std::move(able));
  Order all;
  for (const policy::ClauseGroup& group : groups) {
    const Order order = order_in(s, group, able);
    all.insert(all.end(), order.begin(), order.end());
    all.modes.resize(all.size(), order.by);
    std::erase_if(able, [&](const Able& a) { return base::contains(order, a.index); });
  }
  if (!all.empty()) all.by = all.modes[0];
  return all;
}

}  // namespace

int select_depth() noexcept { return t_depth; }

Order select(const CandidateSet& candidates, const yard_value_t* args, uint32_t count,
             uint32_t flags, Notes* notes) {
  const DepthGuard depth;
  thread_local std::unique_ptr<policy::Rulings> kept;
  // A verifier may call an op, whose selection makes one of its own.
  std::unique_ptr<policy::Rulings> rulings =
      kept != nullptr ? std::move(kept) : std::make_unique<policy::Rulings>();
  Selection s{candidates, args, count, flags, device_of(args, count), notes, rulings->kernels};
  candidates.clauses().evaluate({args, flags, s.device, &candidates.settings().labels}, *rulings);
  std::vector<Able> able = find_able(s);
  // Open breakers are ignored where they would leave no kernel.
  if (able.empty() && candidates.settings().health != nullptr) {
    s.respects_breakers = false;
    able = find_able(s);
  }
  Order order = order_in_groups(s, std::move(able));
  kept = std::move(rulings);
  if (!order.empty()) {
    const op::ArgumentMap* map = candidates.all()[order[0]].kernel->map.get();
    order.transforms = map != nullptr && map->needs_transform(args);
  }
  return order;
}

}  // namespace yard::select
