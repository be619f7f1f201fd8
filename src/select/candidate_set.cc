// SPDX-License-Identifier: Apache-2.0
// What can be settled before a call is known.
#include "select/candidate_set.h"

#include <algorithm>
#include <optional>

#include "base/cpu_features.h"
#include "select/health_key.h"

namespace yard::select {
namespace {

constexpr int kMappedTier = -1;

template <class List>
bool any_glob(const List& patterns, std::string_view text) {
  for (const std::string& p : patterns)
    if (glob_matches(p, text)) return true;
  return false;
}

bool lists(const std::vector<std::string>& list, std::string_view name) {
  for (const std::string& s : list)
    if (s == name) return true;
  return false;
}

// The kernel an op is locked to; an exact name beats a glob, the longest glob beats shorter ones.
const std::string* lock_of(const Policy& policy, std::string_view op) {
  if (const auto it = policy.locks.find(op); it != policy.locks.end()) return &it->second;
  const std::string* found = nullptr;
  size_t length = 0;
  for (const auto& [pattern, kernel] : policy.locks)
    if (glob_matches(pattern, op) && (found == nullptr || pattern.size() > length))
      found = &kernel, length = pattern.size();
  return found;
}

bool token_names(const std::string& token, const registry::Kernel& k) {
  if (token.starts_with("impl:")) return token.compare(5, std::string::npos, k.id) == 0;
  if (token.starts_with("vendor:"))
    return !k.backend->vendor.empty() &&
           token.compare(7, std::string::npos, k.backend->vendor) == 0;
  return token == to_string(k.kind);
}

int kind_tier(std::optional<Kind> prefer, Kind kind) {
  if (!prefer) return kind == Kind::kReference ? 1 : 0;
  if (kind == *prefer) return 0;
  // After the preferred kind: default before vendor before reference.
  int tier = 1;
  for (Kind k : {Kind::kDefault, Kind::kVendor, Kind::kReference}) {
    if (k == *prefer) continue;
    if (k == kind) return tier;
    ++tier;
  }
  return tier;
}

// Of the processor, or as the program has stated it of a device: "sve2", "cuda:sm_90".
bool has_feature(std::string_view name, const yard_host_t* host) {
  const size_t colon = name.find(':');
  if (colon == name.npos) return base::has_cpu_feature(name) == 1;
  const auto device = parse_device(name.substr(0, colon));
  if (!device || host == nullptr || host->has_feature == nullptr) return false;
  return host->has_feature(host->self, {device->type, device->index},
                           std::string(name.substr(colon + 1)).c_str()) == 1;
}

// The first feature in the list that is missing, as its index; -1 if none is.
int missing_feature(const std::string& features, const yard_host_t* host) {
  int i = 0;
  for (size_t at = 0; at < features.size(); ++i) {
    const size_t end = std::min(features.find(' ', at), features.size());
    if (end > at && !has_feature(std::string_view(features).substr(at, end - at), host)) return i;
    at = end + 1;
  }
  return -1;
}

}  // namespace

int32_t backend_reason(const Policy& p, const registry::Backend& b) {
  if (!b.vendor.empty() && lists(p.deny_vendors, b.vendor)) return YARD_REASON_DENIED_VENDOR;
  if (!b.vendor.empty() && p.allow_vendors && !lists(*p.allow_vendors, b.vendor))
    return YARD_REASON_NOT_ALLOWED_VENDOR;
  const auto it = p.backends.find(b.name);
  const bool on = it != p.backends.end() ? it->second : b.d.enable != YARD_ENABLE_OFF;
  return on ? YARD_REASON_NONE : YARD_REASON_DISABLED;
}

namespace {

// Why the kernel is out whatever the call is; NONE if it is not.
int32_t settle(const registry::Kernel& k, const Policy& p, const CallConstraints& constraints,
               const std::string* lock, const Surroundings& where, int64_t figures[3]) {
  if (!constraints.force.empty() && k.id != constraints.force) return YARD_REASON_NOT_FORCED;
  if (lock != nullptr && constraints.force.empty() && k.id != *lock) return YARD_REASON_LOCKED_OUT;
  if (any_glob(p.deny_kernels, k.id) || any_glob(constraints.deny, k.id))
    return YARD_REASON_DENIED_KERNEL;
  if (p.allow_kernels && !any_glob(*p.allow_kernels, k.id)) return YARD_REASON_NOT_ALLOWED_KERNEL;
  if (const int32_t reason = backend_reason(p, *k.backend); reason != YARD_REASON_NONE)
    return reason;
  if (p.reference_only.value_or(false) && k.kind != Kind::kReference)
    return YARD_REASON_REFERENCE_ONLY;
  if (where.forked && (k.backend->d.flags & YARD_BACKEND_FORK_UNSAFE) != 0)
    return YARD_REASON_FORKED;
  if (const int missing = missing_feature(k.features, where.host); missing >= 0) {
    figures[0] = missing;
    return YARD_REASON_CPU_FEATURE;
  }
  return YARD_REASON_NONE;
}

bool may_write_inputs(const op::Program& program) {
  const auto& clauses = program.schema().clauses;
  return program.has_inout() || std::any_of(clauses.begin(), clauses.end(), [](const auto& c) {
           return c.kind == op::Clause::Kind::kMayAlias;
         });
}

// What a kind of limit reads and tests.
struct LimitMeaning {
  std::optional<op::Field::Kind> property;  // of an argument; unset: the field that the limit names
  op::IntegerTest test;
  int32_t reason;
};

LimitMeaning meaning_of(const yard_limit_t& l) {
  using Kind = op::Field::Kind;
  using Test = op::IntegerTest;
  switch (l.kind) {
    case YARD_LIMIT_MIN: return {{}, Test::at_least(l.a), YARD_REASON_DIM_TOO_SMALL};
    case YARD_LIMIT_MAX: return {{}, Test::at_most(l.a), YARD_REASON_DIM_TOO_LARGE};
    case YARD_LIMIT_MULTIPLE: return {{}, Test::multiple_of(l.a), YARD_REASON_DIM_NOT_MULTIPLE};
    case YARD_LIMIT_EQUALS: return {{}, Test::equals(l.a), YARD_REASON_SCALAR};
    case YARD_LIMIT_DTYPE:
      return {Kind::kDType, Test::one_of_mask(static_cast<uint64_t>(l.a)), YARD_REASON_DTYPE};
    case YARD_LIMIT_COMPACT: return {Kind::kCompact, Test::equals(1), YARD_REASON_LAYOUT};
    case YARD_LIMIT_INNER_DENSE: return {Kind::kInnerDense, Test::equals(1), YARD_REASON_LAYOUT};
    case YARD_LIMIT_PLAIN: return {Kind::kPlain, Test::equals(1), YARD_REASON_LAYOUT};
    case YARD_LIMIT_ALIGN: return {Kind::kAlignment, Test::at_least(l.a), YARD_REASON_ALIGNMENT};
    case YARD_LIMIT_RANK: return {Kind::kRank, Test::range(l.a, l.b), YARD_REASON_RANK};
    case YARD_LIMIT_ABSENT: return {Kind::kPresence, Test::equals(0), YARD_REASON_OPTIONAL_PRESENT};
    default: return {Kind::kPresence, Test::equals(1), YARD_REASON_OPTIONAL_ABSENT};  // PRESENT
  }
}

void add_limit(const op::Program& program, const yard_limit_t& l, uint32_t index,
               std::vector<Limit>& to) {
  const std::string_view name = l.field != nullptr ? l.field : "";
  const auto [property, test, reason] = meaning_of(l);
  if (!property) return to.push_back({{*program.field(name), test}, index, reason, 0});
  const auto& params = program.schema().params;
  const bool presence = *property == op::Field::Kind::kPresence;
  for (uint32_t i = 0; i < params.size(); ++i)
    if (name.empty() ? params[i].is_tensor() : params[i].name == name)
      to.push_back({{op::Field::of(*property, i), test}, index, reason, presence ? 0 : i});
}

void resolve_fields(const op::Program& program, KernelCandidate& c) {
  const registry::Kernel& k = *c.kernel;
  for (uint32_t i = 0; i < k.limits.size(); ++i) add_limit(program, k.limits[i], i, c.limits);
  for (const std::string& name : k.verify_reads) {
    const auto field = program.field(name);
    c.verify_fields.push_back(field.value_or(op::Field{}));
    if (!field) c.verify_args.push_back(program.index_of(name));
  }
  for (const std::string& name : k.cost_reads) c.cost_fields.push_back(*program.field(name));
}

}  // namespace

void CandidateSet::read_settings() {
  if (settings_.program != nullptr && settings_.program->provider.reads)
    for (const std::string& name : *settings_.program->provider.reads)
      mode_fields_.push_back(program().field(name).value_or(op::Field{}));
  const auto matching = [&](const std::string& pattern) {
    std::vector<uint16_t> to;
    for (size_t i = 0; i < all_.size(); ++i)
      if (glob_matches(pattern, all_[i].kernel->id)) to.push_back(static_cast<uint16_t>(i));
    return to;
  };
  if (settings_.by_rules())
    for (const std::string& pattern : settings_.rules->kernels())
      named_.push_back(matching(pattern));
  for (const std::string& id : settings_.chain)
    for (const uint16_t i : matching(id))
      if (std::find(chain_.begin(), chain_.end(), i) == chain_.end()) chain_.push_back(i);
}

void CandidateSet::read_health() {
  if (settings_.health == nullptr) return;
  const health::HealthSnapshot::OfOp* of = settings_.health->of_op(record_->op->name);
  if (of == nullptr) return;
  const auto note = [&](const health::BreakerStatus& h) {
    half_open_ |= h.state == BreakerState::kHalfOpen;
    return &h;
  };
  const std::vector<op::Field> dims = health_dims(program());
  for (KernelCandidate& c : all_) {
    for (const health::BreakerStatus& h : of->kernels)
      if (h.key.kernel == c.kernel->id) c.breaker = note(h);
    // A key of an op that had other dimensions then is no kind of its calls now.
    for (const health::BreakerStatus& h : of->keys)
      if (h.key.kernel == c.kernel->id && h.key.sizes.get().size() == dims.size())
        c.key_breakers.push_back({note(h), size_predicates(h.key.sizes, dims)});
  }
}

bool KeyBreaker::concerns(Device device, uint64_t dtypes, const yard_value_t* args) const noexcept {
  return status->key.device == device && status->key.dtypes == dtypes &&
         std::all_of(sizes.begin(), sizes.end(),
                     [&](const op::Predicate& p) { return op::holds(p, args); });
}

const health::BreakerStatus* KernelCandidate::breaker_for(const op::Program& program, Device device,
                                                          const yard_value_t* args) const noexcept {
  if (breaker != nullptr || key_breakers.empty()) return breaker;
  const uint64_t dtypes = call_dtypes(program, args);
  for (const KeyBreaker& b : key_breakers)
    if (b.concerns(device, dtypes, args)) return b.status;
  return nullptr;
}

const health::BreakerStatus* CandidateSet::half_open_breaker(const registry::Kernel& kernel,
                                                             const yard_value_t* args) const {
  for (const KernelCandidate& c : all_) {
    if (c.kernel.get() != &kernel) continue;
    const auto* breaker = c.breaker_for(program(), device_of(args, program().arg_count()), args);
    return breaker != nullptr && breaker->state == BreakerState::kHalfOpen ? breaker : nullptr;
  }
  return nullptr;
}

CandidateSet CandidateSet::make(std::shared_ptr<const registry::OpRecord> op_record,
                                const Policy& policy, const CallConstraints& constraints,
                                const Surroundings& where, OpSettings settings) {
  CandidateSet candidates;
  candidates.settings_ = std::move(settings);
  const OpSettings& d = candidates.settings_;
  candidates.record_ = std::move(op_record);
  candidates.host_ = where.host;
  candidates.strict_ = policy.strict.value_or(false);
  candidates.saves_inputs_ =
      policy.retry_inplace == RetryInplace::kSave && may_write_inputs(candidates.program());
  const std::string& op = candidates.record_->op->name;
  const std::string* lock = lock_of(policy, op);
  const auto order = policy.per_op.find(op);
  for (const auto& [id, kernel] : candidates.record_->kernels) {
    KernelCandidate c;
    c.kernel = kernel;
    c.priority = kernel->priority;
    c.fixed.reason = settle(*kernel, policy, constraints, lock, where, c.fixed.figures);
    c.tier = kind_tier(policy.prefer, kernel->kind);
    if (order != policy.per_op.end() && lock == nullptr && constraints.force.empty()) {
      const auto& tokens = order->second;
      size_t i = 0;
      while (i < tokens.size() && !token_names(tokens[i], *kernel)) ++i;
      c.tier = static_cast<int>(i);
      if (i == tokens.size() && c.fixed.reason == YARD_REASON_NONE)
        c.fixed.reason = YARD_REASON_NOT_IN_ORDER;
    }
    // A static kernel comes first; in static mode there is no other.
    if ((d.by_map() || d.mode == Mode::kStatic) && lock == nullptr && constraints.force.empty()) {
      if (kernel->id == d.mapped)
        c.tier = kMappedTier;
      else if (d.mode == Mode::kStatic && c.fixed.reason == YARD_REASON_NONE)
        c.fixed.reason = YARD_REASON_NOT_MAPPED;
    }
    resolve_fields(candidates.program(), c);
    candidates.all_.push_back(std::move(c));
  }
  candidates.read_settings();
  candidates.read_health();
  return candidates;
}

}  // namespace yard::select
