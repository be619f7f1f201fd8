// SPDX-License-Identifier: Apache-2.0
// Filter, verify, order.
#include "select/select.h"

#include <fmt/format.h>
#include <yard/detail/guard.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
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
  std::optional<CallKind> kind;  // where health holds back some kinds of calls
  bool heeds_breakers = true;
};

void reject(yard_verdict_t& v, int32_t reason, int64_t a = 0, int64_t b = 0, int64_t c = 0) {
  v.reason = reason;
  v.figures[0] = a, v.figures[1] = b, v.figures[2] = c;
}

// Calls f(tensor) for the tensors of one argument, or of all of them, until f says no.
template <class F>
bool all_tensors(const Bench& b, int arg, const F& f) {
  const auto one = [&](uint32_t i) {
    const yard_value_t& v = b.args[i];
    if (v.tag == YARD_TAG_TENSOR) return f(i, *v.u.tensor);
    if (v.tag == YARD_TAG_LIST)
      for (uint32_t k = 0; k < v.count; ++k)
        if (!f(i, *v.u.list[k])) return false;
    return true;
  };
  if (arg >= 0) return one(static_cast<uint32_t>(arg));
  for (uint32_t i = 0; i < b.count; ++i)
    if (!one(i)) return false;
  return true;
}

// Figures of a failed limit: its index, what was found, the argument's index where one is concerned.
void check_limit(const Bench& b, const Limit& limit, int64_t index, yard_verdict_t& verdict) {
  const yard_limit_t& l = limit.l;
  const auto integer = [&](int32_t reason, auto fails) {
    int64_t v;
    if (op::find(limit.field, b.args, v) && fails(v)) reject(verdict, reason, index, v);
  };
  const auto facts = [&](int32_t reason, auto fails) {
    all_tensors(b, limit.arg, [&](uint32_t i, const yard_tensor_t& t) {
      const int64_t found = fails(t.facts);
      if (found >= 0) reject(verdict, reason, index, found, i);
      return found < 0;
    });
  };
  const auto lacks = [](uint64_t bit) {
    return [bit](uint64_t f) -> int64_t { return (f & bit) != 0 ? -1 : 0; };
  };
  switch (l.kind) {
    case YARD_LIMIT_MIN:
      return integer(YARD_REASON_DIM_TOO_SMALL, [&](int64_t v) { return v < l.a; });
    case YARD_LIMIT_MAX:
      return integer(YARD_REASON_DIM_TOO_LARGE, [&](int64_t v) { return v > l.a; });
    case YARD_LIMIT_MULTIPLE:
      return integer(YARD_REASON_DIM_NOT_MULTIPLE, [&](int64_t v) { return v % l.a != 0; });
    case YARD_LIMIT_EQUALS: return integer(YARD_REASON_SCALAR, [&](int64_t v) { return v != l.a; });
    case YARD_LIMIT_DTYPE:
      return facts(YARD_REASON_DTYPE, [&](uint64_t f) -> int64_t {
        const uint64_t dtype = f & YARD_FACTS_DTYPE;
        return ((static_cast<uint64_t>(l.a) >> dtype) & 1) != 0 ? -1 : static_cast<int64_t>(dtype);
      });
    case YARD_LIMIT_COMPACT: return facts(YARD_REASON_LAYOUT, lacks(YARD_FACTS_COMPACT));
    case YARD_LIMIT_INNER_DENSE: return facts(YARD_REASON_LAYOUT, lacks(YARD_FACTS_INNER_DENSE));
    case YARD_LIMIT_PLAIN: return facts(YARD_REASON_LAYOUT, lacks(YARD_FACTS_PLAIN));
    case YARD_LIMIT_ALIGN:
      return facts(YARD_REASON_ALIGNMENT, [&](uint64_t f) -> int64_t {
        const int64_t align = int64_t{1} << ((f & YARD_FACTS_ALIGN) >> YARD_FACTS_ALIGN_SHIFT);
        return align >= l.a ? -1 : align;
      });
    case YARD_LIMIT_RANK:
      return facts(YARD_REASON_RANK, [&](uint64_t f) -> int64_t {
        const auto rank = static_cast<int64_t>((f & YARD_FACTS_RANK) >> YARD_FACTS_RANK_SHIFT);
        return rank >= l.a && rank <= l.b ? -1 : rank;
      });
    case YARD_LIMIT_ABSENT:
      if (b.args[limit.arg].tag != YARD_TAG_NONE)
        reject(verdict, YARD_REASON_OPTIONAL_PRESENT, index);
      return;
    case YARD_LIMIT_PRESENT:
      if (b.args[limit.arg].tag == YARD_TAG_NONE)
        reject(verdict, YARD_REASON_OPTIONAL_ABSENT, index);
      return;
    default: return;
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
  verdict.flags = kByVerifier;
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
  const health::BreakerStatus* breaker = c.breaker;
  for (const health::BreakerStatus* h : c.key_breakers)
    if (breaker == nullptr && b.kind->is_of(h->key)) breaker = h;
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
    check_limit(b, c.limits[i], static_cast<int64_t>(i), v);
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
    fields[i] = bucket_edge(op::read_apart(c.cost_fields[i], b.args));
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
  Bench b{candidates, args, count, flags, device_of(args, count), notes, {}};
  if (!candidates.health_dims().empty())
    b.kind = call_kind(candidates.program(), candidates.health_dims(), args);
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
