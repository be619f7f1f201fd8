// SPDX-License-Identifier: Apache-2.0
#include "select/candidate_set.h"

#include "base/cpu_features.h"

namespace yard::select {

// Returns at most Buckets::kMost dimensions, in the order of the op's fields.
static std::vector<op::Field> health_dims(const op::Program& program) {
  std::vector<op::Field> dims;
  for (const std::string& name : program.field_names()) {
    const op::Field field = *program.field(name);
    const bool is_size =
        field.kind == op::Field::Kind::kDim || field.kind == op::Field::Kind::kProduct;
    if (is_size && dims.size() < health::Buckets::kMost) dims.push_back(field);
  }
  return dims;
}

Device device_of(const yard_value_t* args, uint32_t count) noexcept {
  for (uint32_t i = 0; i < count; ++i)
    for (const yard_tensor_t* t : op::tensors_of(args[i])) return {t->device.type, t->device.index};
  return {};
}

// Only the first tensor of a list counts.
static uint64_t call_dtypes(const op::Program& program, const yard_value_t* args) noexcept {
  DType dtypes[YARD_MAX_ARGS];
  size_t n = 0;
  for (uint32_t i = 0; i < program.arg_count(); ++i) {
    if (!program.schema().params[i].is_tensor()) continue;
    const auto tensors = op::tensors_of(args[i]);
    dtypes[n++] =
        tensors.empty() ? DType::invalid : static_cast<DType>(tensors[0]->facts & YARD_FACTS_DTYPE);
  }
  return health::pack_dtypes({dtypes, n});
}

health::CallKind CandidateSet::kind_of(const yard_value_t* args) const {
  health::CallKind kind{device_of(args, program().arg_count()), call_dtypes(program(), args), {}};
  for (const op::Field& f : dims_)
    kind.sizes.add(static_cast<uint64_t>(std::max<int64_t>(op::read(f, args), 0)));
  return kind;
}

// Tests whether dimensions are in these buckets. A dimension that is absent counts as 0.
static std::vector<op::Predicate> size_predicates(const health::Buckets& sizes,
                                                  const std::vector<op::Field>& dims) {
  std::vector<op::Predicate> to;
  const auto buckets = sizes.get();
  for (size_t i = 0; i < buckets.size(); ++i) {
    const auto [low, high] = health::Buckets::range(buckets[i]);
    if (low > 0)
      to.push_back({dims[i], op::IntegerTest::at_least(static_cast<int64_t>(low)), false});
    if (high < INT64_MAX)
      to.push_back({dims[i], op::IntegerTest::at_most(static_cast<int64_t>(high)), true});
  }
  return to;
}

uint64_t CandidateSet::sizes_hash(const yard_value_t* args) const noexcept {
  uint64_t hash = 0;
  for (const op::Field& f : dims_) {
    hash = (hash ^ static_cast<uint64_t>(op::read(f, args))) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

std::string call_text(const op::Program& program, const yard_value_t* args) {
  op::CallSpec spec = op::Call::capture(program, args).to_spec(program);
  for (op::SpecArg& a : spec.args)
    for (op::TensorSpec& t : tensors_of(a.value)) t.align = YARD_MAX_ALIGN;
  // Leave out outputs that follow from the inputs.
  const auto call = op::Call::from_spec(program, spec);
  return op::to_string(call.ok() ? call->to_spec(program) : spec);
}

// The device of a call is not known yet, so features of it are checked later.
static bool depends_on_call(const registry::Feature& n, const registry::Kernel& k) {
  return !n.of_processor() && n.device.index == registry::Feature::kEvery &&
         n.device.type == k.backend->d.device_type;
}

bool has_feature(const yard_host_t* host, Device device, const std::string& name) {
  if (device.type == 1) return base::has_cpu_feature(name) == 1;
  return host != nullptr && host->has_feature != nullptr &&
         host->has_feature(host->self, {device.type, device.index}, name.c_str()) == 1;
}

yard_verdict_t verdict_of(const policy::Clauses& clauses, uint32_t clause) noexcept {
  yard_verdict_t v{};
  reject(v, policy::Clauses::reason(clauses.clause(clause)), clause);
  return v;
}

policy::KernelFacts facts_of(const registry::Kernel& k) noexcept {
  return {k.id, k.backend->vendor, k.backend_name, k.kind, k.backend->d.enable != YARD_ENABLE_OFF};
}

int32_t backend_reason(const Policy& p, const registry::Backend& b) {
  Policy about;
  about.deny_vendors = p.deny_vendors, about.allow_vendors = p.allow_vendors;
  about.backends = p.backends;
  const policy::KernelFacts facts{"", b.vendor, b.name, Kind::kDefault,
                                  b.d.enable != YARD_ENABLE_OFF};
  const policy::Clauses clauses({about}, "", {&facts, 1});
  const uint32_t excluded = clauses.always(0).excluded;
  return excluded == policy::kNoClause ? YARD_REASON_NONE : verdict_of(clauses, excluded).reason;
}

yard_verdict_t machine_verdict(const registry::Kernel& k, const ProcessState& process) {
  yard_verdict_t v{};
  if (process.forked && (k.backend->d.flags & YARD_BACKEND_FORK_UNSAFE) != 0)
    reject(v, YARD_REASON_FORKED);
  for (size_t i = 0; i < k.needs.size() && v.reason == YARD_REASON_NONE; ++i) {
    const registry::Feature& f = k.needs[i];
    if (!depends_on_call(f, k) && !has_feature(process.host, f.device, f.name))
      reject(v, f.of_processor() ? YARD_REASON_CPU_FEATURE : YARD_REASON_DEVICE_FEATURE,
             static_cast<int64_t>(i), registry::Feature::kEvery);
  }
  return v;
}

namespace {

struct LimitMeaning {
  std::optional<op::Field::Kind> property;  // of an argument; unset if the limit names a field
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

// A dtype that cannot be converted fails a limit. Any other mismatch needs a transform.
void read_params(const op::ArgumentMap& map, uint32_t limits, KernelCandidate& c) {
  for (uint32_t i = 0; i < map.params.size(); ++i) {
    const op::KernelParam& p = map.params[i];
    if (p.requirements.empty()) continue;
    c.transformable.push_back(i);
    if (p.dtypes == 0) continue;
    const auto arg = static_cast<uint32_t>(p.source);
    const auto test = op::IntegerTest::one_of_mask(p.accepted());
    c.limits.push_back(
        {{op::Field::of(op::Field::Kind::kDType, arg), test}, limits + i, YARD_REASON_DTYPE, arg});
  }
}

}  // namespace

Reads Reads::resolve(const op::Program& program, const std::vector<std::string>* names) {
  Reads to;
  for (uint32_t i = 0; names == nullptr && i < program.arg_count(); ++i)
    to.args.push_back(static_cast<uint8_t>(i));
  if (names == nullptr) return to;
  for (const std::string& name : *names) {
    const auto field = program.field(name);
    to.fields.push_back(field.value_or(op::Field{}));
    const int arg = program.index_of(name);
    if (!field && arg >= 0) to.args.push_back(static_cast<uint8_t>(arg));
  }
  return to;
}

void CandidateSet::read_kernel(KernelCandidate& c) const {
  const registry::Kernel& k = *c.kernel;
  for (uint32_t i = 0; i < k.limits.size(); ++i) add_limit(program(), k.limits[i], i, c.limits);
  if (k.d.verify != nullptr)
    c.verify_reads = Reads::resolve(program(), k.reads_all ? nullptr : &k.verify_reads);
  for (uint32_t i = 0; i < k.needs.size(); ++i)
    if (depends_on_call(k.needs[i], k)) c.device_needs.push_back(i);
  if (k.map != nullptr) read_params(*k.map, static_cast<uint32_t>(k.limits.size()), c);
  for (const std::string& name : k.cost_reads) c.cost_fields.push_back(*program().field(name));
}

void CandidateSet::read_health() {
  if (settings_.health == nullptr) return;
  const health::HealthSnapshot::OfOp* of = settings_.health->of_op(record_->op->name);
  if (of == nullptr) return;
  const auto note = [&](const health::BreakerStatus& h) {
    half_open_ |= h.state == BreakerState::kHalfOpen;
    return &h;
  };
  for (KernelCandidate& c : all_) {
    for (const health::BreakerStatus& h : of->kernels)
      if (h.key.kernel == c.kernel->id) c.breaker = note(h);
    // Keys may come from an earlier op with other dimensions. They do not match its calls now.
    for (const health::BreakerStatus& h : of->keys)
      if (h.key.kernel == c.kernel->id && h.key.kind.sizes.get().size() == dims_.size())
        c.key_breakers.push_back({note(h), size_predicates(h.key.kind.sizes, dims_)});
    for (const auto& [kernel, kind] : of->counting)
      if (kernel == c.kernel->id && kind.sizes.get().size() == dims_.size())
        c.counting.push_back(size_predicates(kind.sizes, dims_));
  }
}

const health::BreakerStatus* KernelCandidate::breaker_for(const op::Program& program, Device device,
                                                          const yard_value_t* args) const noexcept {
  if (breaker != nullptr || key_breakers.empty()) return breaker;
  const uint64_t dtypes = call_dtypes(program, args);
  for (const auto& [status, sizes] : key_breakers)
    if (status->key.kind.device == device && status->key.kind.dtypes == dtypes &&
        std::all_of(sizes.begin(), sizes.end(), [&](auto& p) { return op::holds(p, args); }))
      return status;
  return nullptr;
}

std::vector<NeededTransform> KernelCandidate::needed_transforms(const yard_value_t* args) const {
  std::vector<NeededTransform> to;
  for (const uint32_t i : transformable) {
    const op::KernelParam& p = kernel->map->params[i];
    if (args[p.source].tag != YARD_TAG_TENSOR) continue;
    const yard_tensor_t& t = *args[p.source].u.tensor;
    const uint32_t kinds = p.transforms(t);
    if (kinds == 0) continue;
    const auto from = static_cast<DType>(t.facts & YARD_FACTS_DTYPE);
    // Cost hints see half octaves, too, because keys of plans hold no more.
    const int64_t size = op::detail::read_tensor(op::Field::Kind::kSize, {}, &t);
    const double bytes = static_cast<double>(op::half_octave_floor(size)) *
                         (bits(from) + bits(p.dtype_for(from))) / 8;
    to.push_back({i, kinds, from, op::transform_ns(bytes) * (p.read && p.written ? 2 : 1)});
  }
  return to;
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

bool CandidateSet::reads_labels() const noexcept {
  const policy::ClauseSources& s = clauses_.sources();
  return s.mode.program != nullptr || (s.rules != nullptr && s.rules->conditions().reads_labels());
}

static std::vector<policy::KernelFacts> all_facts(const registry::OpRecord& op_record) {
  std::vector<policy::KernelFacts> facts;
  for (const auto& [id, kernel] : op_record.kernels) facts.push_back(facts_of(*kernel));
  return facts;
}

CandidateSet::CandidateSet(CandidateParts parts)
    : record_(std::move(parts.op_record)),
      settings_(std::move(parts.settings)),
      clauses_(std::move(parts.sources), record_->op->name, all_facts(*record_)),
      dims_(health_dims(program())),
      process_(parts.process),
      saves_inputs_(clauses_.sources().policy.retry_inplace == Policy::RetryInplace::kSave &&
                    (program().has_inout() || program().has_aliases())) {
  for (const auto& [id, kernel] : record_->kernels) {
    const uint32_t excluded = clauses_.always(all_.size()).excluded;
    KernelCandidate& c = all_.emplace_back();
    c.kernel = kernel;
    c.fixed = excluded == policy::kNoClause ? machine_verdict(*kernel, process_)
                                            : verdict_of(clauses_, excluded);
    read_kernel(c);
  }
  if (mode().program != nullptr) {
    const auto& names = mode().program->provider.reads;
    mode_reads_ = Reads::resolve(program(), names ? &*names : nullptr);
  }
  read_health();
}

}  // namespace yard::select
