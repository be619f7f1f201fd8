// SPDX-License-Identifier: Apache-2.0
#include "random_world.h"

#include "dispatch/core.h"
#include "dispatch/policy_changes.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace yard::testing {

thread_local std::vector<int> t_ran_kernels;
thread_local int32_t t_answer = YARD_OK;

uint64_t mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0x9e3779b97f4a7c15ull;
  return h ^ (h >> 29);
}

namespace {

const RandomKernel& kernel_of(void* self) { return *static_cast<const RandomKernel*>(self); }

int32_t run(yard_call_t* call, const yard_value_t*, uint32_t) {
  t_ran_kernels.push_back(kernel_of(call->self).number);
  return t_answer;
}

uint64_t hash_tensor(uint64_t h, const yard_tensor_t& t) {
  h = mix(h, t.facts & 0x7fffffffu);
  for (int i = 0; i < t.ndim; ++i) h = mix(h, static_cast<uint64_t>(t.shape[i]));
  // The strides of a compact tensor follow from its shape, except for sizes of one, which do not
  // matter.
  if ((t.facts & YARD_FACTS_COMPACT) == 0)
    for (int i = 0; i < t.ndim; ++i) h = mix(h, static_cast<uint64_t>(t.strides[i]));
  return h;
}

}  // namespace

uint64_t hash_value(uint64_t h, const yard_value_t& v) {
  h = mix(h, v.tag);
  switch (v.tag) {
    case YARD_TAG_NONE: return h;
    case YARD_TAG_TENSOR: return hash_tensor(h, *v.u.tensor);
    case YARD_TAG_LIST:
      for (uint32_t i = 0; i < v.count; ++i) h = hash_tensor(h, *v.u.list[i]);
      return mix(h, v.count);
    case YARD_TAG_STRING:
      for (uint32_t i = 0; i < v.count; ++i) h = mix(h, static_cast<uint8_t>(v.u.string[i]));
      return h;
    default: return mix(h, static_cast<uint64_t>(v.u.i));
  }
}

namespace {

// Accepts or refuses by a hash of exactly the declared values, the flags and the device.
int32_t verify(const yard_query_t* q, yard_verdict_t* verdict) {
  const RandomKernel& k = kernel_of(q->self);
  uint64_t h = mix(mix(k.salt, q->flags), static_cast<uint64_t>(q->device.index));
  for (size_t i = 0; i + 1 < k.verify_reads.size(); ++i)
    h = k.whole[i] < 0 ? mix(h, static_cast<uint64_t>(q->read[i]))
                       : hash_value(h, q->args[k.whole[i]]);
  if (k.verify_reads.empty())
    for (uint32_t i = 0; i < q->count; ++i) h = hash_value(h, q->args[i]);
  if (h % 16 == 0) throw std::runtime_error("broken");
  if (h % 3 == 0) verdict->reason = YARD_REASON_REFUSED;
  return YARD_OK;
}

double cost(void* self, const int64_t* fields, uint32_t count) {
  uint64_t h = kernel_of(self).salt;
  for (uint32_t i = 0; i < count; ++i) h = mix(h, static_cast<uint64_t>(fields[i]));
  return h % 10 == 0 ? -1.0 : static_cast<double>(h % 7);
}

int32_t probe(void* self, const yard_host_t*, yard_device_t device, yard_verdict_t* why) {
  if ((reinterpret_cast<uintptr_t>(self) >> device.index & 1) != 0)
    why->reason = YARD_REASON_UNAVAILABLE;
  return YARD_OK;
}

constexpr int64_t kLimits[] = {0, 1, 2, 3, 4, 8, 12, 16, 64, 100, 1000};
constexpr const char* kBackends[] = {"plain", "acme", "other", "gpu"};

}  // namespace

World::World(uint64_t seed, int kernels)
    : random_(seed), runtime_(RuntimeSettings{false, 512, false}) {
  lean_ = random_.chance(40);
  make_schema();
  program_ = op::Program::compile(schema_).value();
  fields_ = program_->field_names();
  for (const op::Param& p : program_->schema().params) {
    if (p.is_tensor()) tensors_.push_back(p.name);
    if (p.optional) optionals_.push_back(p.name);
  }
  add_backends();
  add_modes();
  for (int i = 0; i < kernels; ++i) {
    auto k = make_kernel(next_++);
    Changes c;
    c.add_kernel(k->d);
    runtime_.apply(std::move(c)).or_throw();
    present_.push_back(kernels_.emplace_back(std::move(k)).get());
  }
  if (random_.chance(50)) runtime_.set_policy(policy()).or_throw();
  if (random_.chance(50)) change_config();
}

void World::make_schema() {
  std::string params = random_.chance(80) ? "out!: T[*rows, d], x: T[*rows, d]"
                                          : "out!: f32[*rows, d], x: T[*rows, d]";
  const auto maybe = [&](unsigned percent, std::initializer_list<const char*> kinds) {
    if (random_.chance(percent)) params += std::string(", ") + random_.of(kinds);
  };
  maybe(50, {"w: T[d]", "w: f32[d]", "w: U[d]"});
  // A quarter of the ops have no optional parameters and no clause, so their calls take a shorter
  // path.
  if (random_.chance(25)) {
    maybe(50, {"eps: float = 1e-6"});
    schema_ = "op(" + params + ")";
    return;
  }
  maybe(60, {"bias?: T[d]", "bias?: f32[d]", "bias?: U[d]"});
  maybe(30, {"y~: T[*rows, 2*d]", "y~?: T[*rows, 2*d]"});
  maybe(40, {"mask?: i8[*rows]", "mask?: U[*rows, k]"});
  maybe(30, {"grid: T[*rows, k, d]", "grid?: U[k, d]"});
  maybe(45, {"xs: T[d][]", "xs: f32[k][]", "xs?: U[d][]", "xs: U[*rows, k][]"});
  maybe(30, {"aux!?: T[*rows]", "aux!?: f32[*rows, d]"});
  maybe(60, {"mode: enum{a, b, c} = a"});
  maybe(60, {"groups: int = 1"});
  maybe(30, {"flag: bool = false"});
  maybe(30, {"eps: float = 1e-6"});
  maybe(30, {"name: string = \"s\""});
  schema_ = "op(" + params + ")";
  if (params.find("out!: T") == 0 && random_.chance(50)) schema_ += " where out may_alias x";
}

void World::add_backends() {
  Changes c;
  yard_op_t o{};
  o.size = sizeof o, o.schema = schema_.c_str();
  c.add_op(o);
  for (const char* name : kBackends) {
    yard_backend_t b{};
    b.size = sizeof b, b.name = name;
    if (std::strcmp(name, "acme") == 0 || std::strcmp(name, "other") == 0) b.vendor = name;
    if (std::strcmp(name, "gpu") == 0) b.device_type = 2;
    if (random_.chance(25)) b.probe = probe, b.self = reinterpret_cast<void*>(random_.below(4));
    if (random_.chance(10)) b.enable = YARD_ENABLE_OFF;
    c.add_backend(b);
  }
  runtime_.apply(std::move(c)).or_throw();
}

std::string World::kernel_id(int number) const { return "k" + std::to_string(number % 10); }

std::unique_ptr<RandomKernel> World::make_kernel(int number) {
  auto k = std::make_unique<RandomKernel>();
  k->number = number, k->salt = random_.below(1u << 30);
  k->id = kernel_id(number), k->op = "op";
  k->backend = kBackends[random_.chance(10) ? 3 : random_.below(3)];
  yard_kernel_t& d = k->d;
  d.size = sizeof d, d.op = k->op.c_str(), d.id = k->id.c_str(), d.backend = k->backend.c_str();
  d.self = k.get(), d.run = run;
  const bool vendor = k->backend == "acme" || k->backend == "other";
  d.kind = vendor && random_.chance(60) ? YARD_KIND_VENDOR
           : random_.chance(25)         ? YARD_KIND_REFERENCE
                                        : YARD_KIND_DEFAULT;
  d.priority = random_.chance(50) ? 0 : static_cast<int32_t>(1 + random_.below(4) * 50);
  // This flag lets the next kernel run after more failures than the op's arguments would allow.
  if (random_.chance(70)) d.flags |= YARD_KERNEL_FAILS_BEFORE_WRITING;
  if (random_.chance(60)) d.flags |= YARD_KERNEL_DETERMINISTIC;
  if (random_.chance(60)) d.flags |= YARD_KERNEL_CAPTURE_SAFE;
  if (random_.chance(15)) d.flags |= YARD_KERNEL_INFERENCE_ONLY;
  add_limits(*k);
  if (!lean_ && random_.chance(30)) add_verifier(*k);
  if (!lean_ && random_.chance(50)) add_cost(*k);
  if (random_.chance(30)) add_params(*k);
  return k;
}

void World::add_limits(RandomKernel& k) {
  const auto name = [&](const std::string& n) { return k.names.emplace_back(n).c_str(); };
  // Some kernels accept every call, so that most calls have a kernel.
  for (size_t n = random_.chance(35) ? 0 : 1 + random_.below(3); n > 0; --n) {
    yard_limit_t l{};
    l.kind = static_cast<uint32_t>(1 + random_.below(12));
    if (random_.chance(15)) l.kind = YARD_LIMIT_DTYPE;
    switch (l.kind) {
      case YARD_LIMIT_MIN:
      case YARD_LIMIT_MAX:
      case YARD_LIMIT_MULTIPLE:
      case YARD_LIMIT_EQUALS:
        l.field = name(random_.of(fields_));
        l.a = random_.of(kLimits);
        if (l.kind == YARD_LIMIT_MULTIPLE) l.a = std::max<int64_t>(l.a, 1);
        if (random_.chance(15) && l.kind != YARD_LIMIT_MULTIPLE)
          l.a = random_.of(std::array{int64_t{-1}, INT64_MIN, INT64_MAX});
        break;
      case YARD_LIMIT_ABSENT:
      case YARD_LIMIT_PRESENT:
        if (optionals_.empty()) continue;
        l.field = name(random_.of(optionals_));
        break;
      default:
        if (l.kind == YARD_LIMIT_RANK || random_.chance(70)) l.field = name(random_.of(tensors_));
        if (l.kind == YARD_LIMIT_RANK) {
          l.a = static_cast<int64_t>(random_.below(3));
          l.b = l.a + static_cast<int64_t>(random_.below(2));
        }
        if (l.kind == YARD_LIMIT_ALIGN) l.a = int64_t{1} << random_.below(7);
        if (l.kind == YARD_LIMIT_DTYPE)
          for (DType t : kTypes)
            if (l.a == 0 || random_.chance(50)) l.a |= int64_t{1} << static_cast<int>(t);
        if (l.kind == YARD_LIMIT_DTYPE && random_.chance(50)) l.a |= int64_t{1} << YARD_I8;
    }
    k.limits.push_back(l);
  }
  k.d.limits = k.limits.data(), k.d.limit_count = static_cast<uint32_t>(k.limits.size());
}

void World::add_verifier(RandomKernel& k) {
  k.d.verify = verify;
  if (random_.chance(10)) return;  // reads everything without declaring it
  for (size_t n = 1 + random_.below(3); n > 0; --n) {
    const auto& params = program_->schema().params;
    const bool field = random_.chance(60);
    const size_t arg = random_.below(params.size());
    const std::string name = field ? random_.of(fields_) : params[arg].name;
    k.verify_reads.push_back(k.names.emplace_back(name).c_str());
    k.whole.push_back(program_->field(name) ? -1 : static_cast<int>(arg));
  }
  k.verify_reads.push_back(nullptr);
  k.d.verify_reads = k.verify_reads.data();
}

void World::add_cost(RandomKernel& k) {
  for (size_t n = 1 + random_.below(2); n > 0; --n)
    k.cost_reads.push_back(k.names.emplace_back(random_.of(fields_)).c_str());
  k.cost_reads.push_back(nullptr);
  k.d.cost = cost, k.d.cost_reads = k.cost_reads.data();
}

// Tensors have no memory, so such a kernel requests too much workspace and fails before its
// arguments are copied.
void World::add_params(RandomKernel& k) {
  std::vector<const op::Param*> order;
  for (const op::Param& p : program_->schema().params) order.push_back(&p);
  if (random_.chance(50)) std::swap(order.front(), order[random_.below(order.size())]);
  for (const op::Param* p : order) {
    yard_param_t& to = k.params.emplace_back();
    to.size = sizeof to, to.name = k.names.emplace_back(p->name).c_str();
    if (p->kind != op::Kind::kTensor) continue;
    const bool two = p->trailing() == 2;
    if (random_.chance(35))
      to.layout = !two ? "row-major" : random_.of(std::array{"row-major", "column-major", "d k"});
    if (to.layout != nullptr && random_.chance(30))
      to.flags = random_.chance(50) ? YARD_PARAM_ROWS : YARD_PARAM_STRIDED;
    if (random_.chance(15) && p->dtype != DType::i8) to.dtypes = YARD_DTYPE_BIT(YARD_F32);
    if (random_.chance(15)) to.align = int64_t{1} << random_.below(7);
    if (random_.chance(15) && p->trailing() > 0) to.pad = random_.of(std::array{2, 3, 8, 16});
  }
  if (random_.chance(30)) {
    yard_param_t& constant = k.params.emplace_back();
    constant.size = sizeof constant, constant.name = "own", constant.flags = YARD_PARAM_CONSTANT;
  }
  for (const yard_param_t& p : k.params) k.param_list.push_back(&p);
  k.d.params = k.param_list.data(), k.d.param_count = static_cast<uint32_t>(k.param_list.size());
  k.d.workspace = [](void* self, const yard_value_t*, uint32_t) -> int64_t {
    t_ran_kernels.push_back(kernel_of(self).number);
    return int64_t{1} << 60;
  };
}

std::string World::pattern() {
  const std::string digit = std::to_string(random_.below(10));
  return random_.chance(80) ? "k" + digit : random_.chance(50) ? "*" + digit : "k?";
}

Policy World::policy() {
  Policy p;
  constexpr Kind kKinds[] = {Kind::kDefault, Kind::kVendor, Kind::kReference};
  const auto vendor = [&] { return std::string(random_.chance(50) ? "acme" : "other"); };
  if (random_.chance(30)) p.prefer = random_.of(kKinds);
  if (random_.chance(10)) p.strict = random_.chance(50);
  if (random_.chance(5)) p.reference_only = random_.chance(50);
  if (random_.chance(20)) {
    auto& order = p.per_op["op"];
    for (size_t n = 1 + random_.below(4); n > 0; --n) {
      const std::string tokens[] = {to_string(random_.of(kKinds)), "vendor:" + vendor(),
                                    "impl:" + kernel_id(static_cast<int>(random_.below(10)))};
      order.push_back(random_.of(tokens));
    }
  }
  if (random_.chance(10)) p.allow_vendors = {vendor()};
  if (random_.chance(15)) p.deny_vendors = {vendor()};
  if (random_.chance(10)) p.allow_kernels = {"k?", pattern()};
  if (random_.chance(3)) p.allow_kernels = {pattern(), pattern(), pattern()};
  if (random_.chance(20)) p.deny_kernels = {pattern()};
  if (random_.chance(5))
    p.locks[random_.chance(50) ? "op" : "o*"] = kernel_id(static_cast<int>(random_.below(10)));
  if (random_.chance(15)) p.backends[random_.of(kBackends)] = random_.chance(50);
  if (random_.chance(15)) p.transforms[random_.chance(50) ? "op" : "*"] = random_.chance(40);
  return p;
}

void World::set_environment(Policy policy) {
  auto reading = std::make_shared<policy::Reading>();
  reading->good.policy = std::move(policy);
  dispatch::set_environment(runtime_.core(), std::move(reading)).or_throw();
}

void World::change() {
  const size_t what = random_.below(6);
  if (what == 0) return runtime_.set_policy(policy()).or_throw();
  if (what == 4) return change_config();
  if (what == 5)
    return runtime_.rules().set_labels({{"tenant", std::to_string(random_.below(3))}}).or_throw();
  Changes c;
  if (what == 1 && !present_.empty()) {
    const size_t i = random_.below(present_.size());
    c.remove_kernel("op", present_[i]->id);
    present_.erase(present_.begin() + static_cast<ptrdiff_t>(i));
    return runtime_.apply(std::move(c)).or_throw();
  }
  if (what == 2 && !present_.empty()) {
    const size_t i = random_.below(present_.size());
    auto k = make_kernel(next_++);
    k->id = present_[i]->id, k->d.id = k->id.c_str();
    c.replace_kernel(k->d);
    present_[i] = kernels_.emplace_back(std::move(k)).get();
    return runtime_.apply(std::move(c)).or_throw();
  }
  for (const RandomKernel* k : present_)
    if (k->id == kernel_id(next_)) return runtime_.apply(std::move(c.reprobe("acme"))).or_throw();
  if (present_.size() >= 8) return;
  auto k = make_kernel(next_++);
  c.add_kernel(k->d);
  present_.push_back(kernels_.emplace_back(std::move(k)).get());
  runtime_.apply(std::move(c)).or_throw();
}

}  // namespace yard::testing
