// SPDX-License-Identifier: Apache-2.0
// Filter, verify, order.
#include "select/select.h"

#include <fmt/format.h>
#include <yard/detail/guard.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>

#include "select/health_key.h"

#include "select/program_mode.h"

namespace yard::select {
namespace {

thread_local constinit int t_depth = 0;

struct Inside {
  Inside() { ++t_depth; }
  ~Inside() { --t_depth; }
};

// One call being judged.
struct Bench {
  const CandidateSet& candidates;
  const yard_value_t* args;
  uint32_t count;
  uint32_t flags;
  Device device;
  Notes* notes;
  bool heeds_breakers = true;
};

void reject(yard_verdict_t& v, int32_t reason, int64_t a = 0, int64_t b = 0, int64_t c = 0) {
  v.reason = reason;
  v.figures[0] = a, v.figures[1] = b, v.figures[2] = c;
}

int32_t reason_of(uint32_t limit) {
  switch (limit) {
    case YARD_LIMIT_MIN: return YARD_REASON_DIM_TOO_SMALL;
    case YARD_LIMIT_MAX: return YARD_REASON_DIM_TOO_LARGE;
    case YARD_LIMIT_MULTIPLE: return YARD_REASON_DIM_NOT_MULTIPLE;
    case YARD_LIMIT_EQUALS: return YARD_REASON_SCALAR;
    case YARD_LIMIT_DTYPE: return YARD_REASON_DTYPE;
    case YARD_LIMIT_ALIGN: return YARD_REASON_ALIGNMENT;
    case YARD_LIMIT_RANK: return YARD_REASON_RANK;
    case YARD_LIMIT_ABSENT: return YARD_REASON_OPTIONAL_PRESENT;
    case YARD_LIMIT_PRESENT: return YARD_REASON_OPTIONAL_ABSENT;
    default: return YARD_REASON_LAYOUT;
  }
}

// Figures of a failed limit: its index, what was found, and of limits on tensors the argument's index.
void check_limit(const Bench& b, const registry::Kernel& k, const Limit& l, yard_verdict_t& v) {
  int64_t found = 0;
  if (op::holds(l.predicate, b.args, found)) return;
  const int32_t reason = reason_of(k.limits[l.index].kind);
  switch (reason) {
    case YARD_REASON_OPTIONAL_PRESENT:
    case YARD_REASON_OPTIONAL_ABSENT: return reject(v, reason, l.index);
    case YARD_REASON_DTYPE:
    case YARD_REASON_ALIGNMENT:
    case YARD_REASON_RANK:
    case YARD_REASON_LAYOUT:
      return reject(v, reason, l.index, found, l.predicate.field.sources[0].arg);
    default: return reject(v, reason, l.index, found);
  }
}

void verify(const Bench& b, const KernelCandidate& c, yard_verdict_t& verdict, std::string* text) {
  const registry::Kernel& k = *c.kernel;
  int64_t read[YARD_MAX_ARGS * 4];
  for (size_t i = 0; i < c.verify_fields.size(); ++i)
    read[i] = op::read(c.verify_fields[i], b.args);
  yard_query_t query{};
  query.size = sizeof query, query.flags = b.flags, query.host = b.candidates.host();
  query.self = k.d.self, query.args = b.args, query.count = b.count, query.read = read;
  query.device = {b.device.type, b.device.index};
  int32_t code = YARD_OK;
  try {
    code = k.d.verify(&query, &verdict);
  } catch (const std::exception& e) {
    reject(verdict, YARD_REASON_VERIFIER_BROKEN);
    if (text != nullptr) *text = e.what();
  } catch (...) {
    if (detail::thread_is_unwinding()) throw;
    reject(verdict, YARD_REASON_VERIFIER_BROKEN);
    if (text != nullptr) *text = "an exception that is no std::exception";
  }
  if (code != YARD_OK && verdict.reason == YARD_REASON_NONE) verdict.reason = YARD_REASON_REFUSED;
  verdict.pad_ = kByVerifier;
}

std::string breaker_text(const health::BreakerStatus& breaker, bool whole) {
  const auto what =
      whole ? std::string("all its calls")
            : "such calls (" +
                  health::describe_call(breaker.key.device, breaker.key.dtypes, breaker.key.sizes) +
                  ")";
  if (breaker.until == health::kManual)
    return fmt::format("its breaker for {} was opened manually", what);
  const auto left =
      std::chrono::ceil<std::chrono::seconds>(breaker.until - std::chrono::steady_clock::now());
  return fmt::format("its breaker for {} is open; probes begin in {} s", what,
                     std::max<int64_t>(left.count(), 0));
}

// Whether health holds the call back from the kernel.
bool is_held(const Bench& b, const KernelCandidate& c, yard_verdict_t& v, std::string* text) {
  const health::HealthSnapshot* view = b.candidates.settings().health.get();
  if (view == nullptr) return false;
  if (view->is_lost(b.device)) {
    reject(v, YARD_REASON_UNHEALTHY);
    if (text != nullptr) *text = fmt::format("device {} is lost", to_string(b.device));
    return true;
  }
  if (!b.heeds_breakers) return false;
  const health::BreakerStatus* breaker = c.breaker_for(b.candidates.program(), b.device, b.args);
  if (breaker == nullptr || breaker->state != BreakerState::kOpen) return false;
  reject(v, YARD_REASON_UNHEALTHY);
  if (text != nullptr) *text = breaker_text(*breaker, breaker == c.breaker);
  return true;
}

yard_verdict_t judge(const Bench& b, const KernelCandidate& c, std::string* text) {
  yard_verdict_t v = c.fixed;
  if (v.reason != YARD_REASON_NONE) return v;
  const registry::Kernel& k = *c.kernel;
  if (b.device.type != k.backend->d.device_type) {
    reject(v, YARD_REASON_DEVICE, b.device.type, k.backend->d.device_type);
    return v;
  }
  if ((b.flags & YARD_CALL_DETERMINISTIC) != 0 && (k.d.flags & YARD_KERNEL_DETERMINISTIC) == 0)
    reject(v, YARD_REASON_NOT_DETERMINISTIC);
  else if ((b.flags & YARD_CALL_CAPTURING) != 0 && (k.d.flags & YARD_KERNEL_CAPTURE_SAFE) == 0)
    reject(v, YARD_REASON_NOT_CAPTURE_SAFE);
  else if ((b.flags & YARD_CALL_INFERENCE) == 0 && (k.d.flags & YARD_KERNEL_INFERENCE_ONLY) != 0)
    reject(v, YARD_REASON_INFERENCE_ONLY);
  for (size_t i = 0; i < c.limits.size() && v.reason == YARD_REASON_NONE; ++i)
    check_limit(b, k, c.limits[i], v);
  if (v.reason == YARD_REASON_NONE && is_held(b, c, v, text)) return v;
  // What costs something comes last: the probe once per device, the verifier every time.
  if (v.reason == YARD_REASON_NONE && k.backend->d.probe != nullptr) {
    const registry::Probe& probe = k.backend->probe(b.device, b.candidates.host());
    if (!probe.available) {
      reject(v, YARD_REASON_UNAVAILABLE);
      if (text != nullptr) *text = refusal(probe);
    }
  }
  if (v.reason == YARD_REASON_NONE && k.d.verify != nullptr) verify(b, c, v, text);
  return v;
}

double estimate(const Bench& b, const KernelCandidate& c) {
  if (c.kernel->d.cost == nullptr) return -1;
  int64_t fields[YARD_MAX_ARGS * 4];
  for (size_t i = 0; i < c.cost_fields.size(); ++i)
    fields[i] = op::half_octave_floor(op::read_apart(c.cost_fields[i], b.args));
  try {
    const double ns =
        c.kernel->d.cost(c.kernel->d.self, fields, static_cast<uint32_t>(c.cost_fields.size()));
    return std::isfinite(ns) && ns >= 0 ? ns : -1;
  } catch (...) {
    if (detail::thread_is_unwinding()) throw;
    return -1;  // no estimate; the kernel itself may still be fine
  }
}

}  // namespace

bool inside_select() noexcept { return t_depth > 0; }
int select_depth() noexcept { return t_depth; }

namespace {

constexpr int32_t kNoRule = INT32_MAX;

struct Able {
  uint16_t index;
  double cost;
  int tier;
  int32_t rule = kNoRule;  // the best that names it; smaller is better
  double priority;
};

// What the rules that hold for this call make of those that can take it.
void apply_rules(const Bench& b, std::vector<Able>& able) {
  const policy::OpRules& rules = *b.candidates.settings().rules;
  thread_local policy::Matches kept;
  policy::Matches m = std::move(kept);  // a verifier may have called an op
  rules.match({b.args, b.flags, b.device, &b.candidates.settings().labels}, m);
  const auto each = [&](uint32_t kernel, const auto& f) {
    for (const uint16_t i : b.candidates.named_by(kernel))
      for (Able& a : able)
        if (a.index == i) f(a);
  };
  for (const uint32_t r : m.rules)
    each(rules.rules()[r].kernel,
         [&](Able& a) { a.rule = std::min(a.rule, static_cast<int32_t>(r)); });
  for (const uint32_t s : m.scores)
    each(rules.scores()[s].kernel, [&](Able& a) {
      a.priority += rules.scores()[s].add;
      if (b.notes != nullptr) b.notes->entries[a.index].scores.push_back(s);
    });
  for (const uint32_t s : m.scores)
    each(rules.scores()[s].kernel, [&](Able& a) { a.priority *= rules.scores()[s].multiply; });
  kept = std::move(m);
}

// Best first. Candidates stand in the order of their ids, so stable sorts settle ties by id.
void sort(std::vector<Able>& able) {
  // A kernel that the op is mapped to comes before what rules say.
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
      return x.priority > y.priority;
    });
    first = last;
  }
}

// How many the mode that the program has added puts first.
size_t apply_mode(const Bench& b, const std::vector<Able>& able, Order& order) {
  std::vector<ModeCandidate> candidates;
  candidates.reserve(able.size());
  for (const Able& a : able) {
    const registry::Kernel& k = *b.candidates.all()[a.index].kernel;
    candidates.push_back({k.id, k.backend->vendor, k.kind, a.priority, a.cost});
  }
  const Asked asked{b.candidates, b.args, b.count, b.flags, b.device};
  const size_t named =
      ask_mode(asked, candidates, order, b.notes != nullptr ? &b.notes->mode_text : nullptr);
  if (b.notes != nullptr) b.notes->by_mode = named;
  return named;
}

// After the first choices come those of the chain, then the others.
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

std::vector<Able> find_able(const Bench& b) {
  const std::vector<KernelCandidate>& all = b.candidates.all();
  if (b.notes != nullptr) b.notes->entries.assign(all.size(), {});
  std::vector<Able> able;
  able.reserve(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    std::string* text = b.notes != nullptr ? &b.notes->entries[i].text : nullptr;
    const yard_verdict_t v = judge(b, all[i], text);
    double cost = -1;
    if (v.reason == YARD_REASON_NONE) {
      cost = estimate(b, all[i]);
      able.push_back({static_cast<uint16_t>(i), cost, all[i].tier, kNoRule, all[i].priority});
    }
    if (b.notes != nullptr) b.notes->entries[i].verdict = v, b.notes->entries[i].estimate_ns = cost;
  }
  return able;
}

}  // namespace

Order select(const CandidateSet& candidates, const yard_value_t* args, uint32_t count,
             uint32_t flags, Notes* notes) {
  const Inside inside;
  Bench b{candidates, args, count, flags, device_of(args, count), notes};
  std::vector<Able> able = find_able(b);
  // The last kernel able to run is never ejected.
  if (able.empty() && candidates.settings().health != nullptr) {
    b.heeds_breakers = false;
    able = find_able(b);
  }
  if (candidates.settings().by_rules()) apply_rules(b, able);
  sort(able);
  Order order;
  order.reserve(able.size());
  for (const Able& a : able) {
    order.push_back(a.index);
    if (notes == nullptr) continue;
    notes->entries[a.index].rule = a.rule == kNoRule || a.tier < 0 ? -1 : a.rule;
    notes->entries[a.index].priority = a.priority;
  }
  const bool asks = candidates.settings().program != nullptr && !order.empty();
  const size_t named = asks ? apply_mode(b, able, order) : 0;
  follow_chain(candidates.chain(), std::max<size_t>(named, 1), order, notes);
  if (named > 0)
    order.by = Mode::kProgram;
  else if (!able.empty() && able[0].tier < 0)
    order.by = Mode::kStatic;
  else if (!able.empty() && able[0].rule != kNoRule)
    order.by = candidates.settings().mode == Mode::kHotReload ? Mode::kHotReload : Mode::kConfig;
  return order;
}

}  // namespace yard::select
