// SPDX-License-Identifier: Apache-2.0
#include "exec/states.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/text.h"
#include "exec/executor.h"
#include "op/bind.h"

namespace yard::exec {
namespace {

const char* type_name(op::Kind kind) {
  switch (kind) {
    case op::Kind::kInt: return "an int";
    case op::Kind::kFloat: return "a float";
    case op::Kind::kBool: return "a bool";
    case op::Kind::kString: return "a string";
    default: return "a tensor";
  }
}

std::string wrong_value(const op::Param& p, const yard_value_t& got) {
  if (p.kind != op::Kind::kEnum)
    return fmt::format("invalid option '{}': expected {}", p.name, type_name(p.kind));
  std::string text =
      fmt::format("invalid option '{}': expected {}", p.name, base::one_of(p.enumerators));
  if (got.tag != YARD_TAG_STRING) return text;
  const std::string_view word(got.u.string, got.count);
  return text +
         fmt::format(", got {}{}", base::excerpt(word), base::did_you_mean(word, p.enumerators));
}

// Converts a value to the option's type; false if that is not possible.
bool convert(const op::Param& p, const yard_value_t& from, yard_value_t& to) {
  to = from;
  switch (p.kind) {
    case op::Kind::kInt: return from.tag == YARD_TAG_INT;
    case op::Kind::kBool: return from.tag == YARD_TAG_BOOL;
    case op::Kind::kString: return from.tag == YARD_TAG_STRING;
    case op::Kind::kFloat:
      if (from.tag == YARD_TAG_INT) to.tag = YARD_TAG_FLOAT, to.u.f = static_cast<double>(from.u.i);
      return to.tag == YARD_TAG_FLOAT;
    case op::Kind::kEnum: {
      if (from.tag != YARD_TAG_STRING) return false;
      const std::string_view word(from.u.string, from.count);
      const auto it = std::find(p.enumerators.begin(), p.enumerators.end(), word);
      if (it == p.enumerators.end()) return false;
      to = {};
      to.tag = YARD_TAG_INT, to.u.i = it - p.enumerators.begin();
      return true;
    }
    default: return false;
  }
}

bool is_registered(const registry::State& registry, const registry::Kernel& kernel) {
  const registry::OpRecord* const op = registry.find(kernel.op);
  if (op == nullptr) return false;
  const auto it = op->kernels.find(kernel.id);
  return it != op->kernels.end() && it->second.get() == &kernel;
}

}  // namespace

Result<std::vector<yard_named_value_t>> kernel_options(const registry::Kernel& kernel,
                                                       const std::vector<OwnedValue>& given) {
  std::vector<yard_named_value_t> to;
  const op::Schema none;
  const op::Schema& schema = kernel.options != nullptr ? *kernel.options : none;
  const auto bad = [](std::string what) { return Status(Code::kInvalidArgument, std::move(what)); };
  for (const OwnedValue& g : given) {
    if (schema.index_of(g.name) >= 0) continue;
    std::vector<std::string> names;
    for (const op::Param& p : schema.params) names.push_back(p.name);
    return bad(fmt::format("it has no option '{}'{}", g.name, base::did_you_mean(g.name, names)));
  }
  for (const op::Param& p : schema.params) {
    yard_named_value_t v{p.name.c_str(), op::default_value(p)};
    const auto it = std::find_if(given.begin(), given.end(),
                                 [&](const OwnedValue& g) { return g.name == p.name; });
    if (it != given.end()) {
      yard_value_t value = it->value;
      if (value.tag == YARD_TAG_STRING) value.u.string = it->text.c_str();
      if (!convert(p, value, v.value)) return bad(wrong_value(p, value));
    } else if (v.value.tag == YARD_TAG_NONE && !p.optional) {
      return bad(fmt::format("its option '{}' has no default and was not given", p.name));
    }
    to.push_back(v);
  }
  return to;
}

Status check_weights(const registry::Kernel& kernel, const Weights& given) {
  if (kernel.weights == nullptr) return {};
  std::vector<std::string> names;
  for (const op::Param& p : kernel.weights->params) names.push_back(p.name);
  for (const auto& [name, view] : given)
    if (kernel.weights->index_of(name) < 0)
      return Status(Code::kInvalidArgument,
                    fmt::format("it has no weight '{}'{}", name, base::did_you_mean(name, names)));
  for (const op::Param& p : kernel.weights->params)
    if (!p.optional &&
        std::none_of(given.begin(), given.end(), [&](const auto& w) { return w.first == p.name; }))
      return Status(Code::kInvalidArgument, fmt::format("its weight '{}' is not loaded", p.name));
  return {};
}

bool StateBudget::fits(uint64_t wanted, uint64_t held) const noexcept {
  const uint64_t most = most_bytes;
  return wanted <= most && held <= most - wanted;
}

bool StateBudget::take(uint64_t wanted) noexcept {
  uint64_t held = bytes;
  do {
    if (!fits(wanted, held)) return false;
  } while (!bytes.compare_exchange_weak(held, held + wanted));
  ++states;
  return true;
}

void StateBudget::give_back(uint64_t taken) noexcept { --states, bytes -= taken; }

State::~State() {
  const base::FloatState restored;
  kernel_->d.destroy(kernel_->d.self, made_);
  // A forked child counts its own states only.
  if (budget_ != nullptr && forks_ == base::forks()) budget_->give_back(bytes_);
}

bool State::charge(std::shared_ptr<StateBudget> budget, uint64_t bytes) noexcept {
  if (budget == nullptr) return true;
  if (!budget->take(bytes)) return false;
  budget_ = std::move(budget), bytes_ = bytes, forks_ = base::forks();
  return true;
}

void State::keep(std::shared_ptr<const Weights> weights, const op::Program& program) {
  weights_ = std::move(weights);
  for (size_t i = 0; i < weights_->size(); ++i)
    if (const int at = program.index_of((*weights_)[i].first); at >= 0)
      arguments_.emplace_back(static_cast<uint32_t>(at), i);
}

const std::string* State::find_other_argument(const yard_value_t* args) const noexcept {
  for (const auto& [at, i] : arguments_) {
    const auto& [name, loaded] = (*weights_)[i];
    if (args[at].tag != YARD_TAG_TENSOR) return &name;
    const TensorView given(*args[at].u.tensor);
    if (given.data() != loaded.data() || given.dtype() != loaded.dtype() ||
        given.device() != loaded.device() || !std::ranges::equal(given.shape(), loaded.shape()) ||
        !std::ranges::equal(given.strides(), loaded.strides()))
      return &name;
  }
  return nullptr;
}

void States::set_options(std::vector<OwnedValue> options) { options_ = std::move(options); }

void States::set_weights(Weights weights) {
  auto given = std::make_shared<const Weights>(std::move(weights));
  std::list<Kept> ended;  // outside the lock: destroy is plugin code
  std::lock_guard lock(lock_);
  has_weights_.store(!given->empty(), std::memory_order_relaxed);
  weights_ = std::move(given);
  ++loads_;
  ended.swap(kept_);
}

std::shared_ptr<State> States::find(const std::shared_ptr<const registry::Kernel>& kernel,
                                    const op::Program& program, CallFrame& frame,
                                    const yard_value_t* args, std::span<const yard_value_t> own,
                                    int32_t& code) {
  auto state = find_or_make(kernel, program, frame, args, own, code);
  if (state == nullptr) return nullptr;
  const std::string* const other = state->find_other_argument(args);
  if (other == nullptr) return state;
  std::snprintf(frame.error, sizeof frame.error,
                "it was prepared for the '%s' that was loaded, and the call passes another tensor",
                other->c_str());
  code = YARD_DECLINED;
  return nullptr;
}

std::shared_ptr<State> States::find_or_make(const std::shared_ptr<const registry::Kernel>& kernel,
                                            const op::Program& program, CallFrame& frame,
                                            const yard_value_t* args,
                                            std::span<const yard_value_t> own, int32_t& code) {
  std::vector<int64_t> key;
  for (const std::string& f : kernel->state_fields)
    if (const auto field = program.field(f)) key.push_back(op::read(*field, args));
  // The last one used comes first.
  const auto find_known = [&]() -> Kept* {
    for (auto it = kept_.begin(); it != kept_.end(); ++it)
      if (it->kernel == kernel.get() && it->key == key) {
        kept_.splice(kept_.begin(), kept_, it);
        return &*it;
      }
    return nullptr;
  };
  const auto refuse = [&](uint64_t bytes) {
    std::snprintf(frame.error, sizeof frame.error,
                  "its state would hold %llu bytes, and all states together hold at most %llu "
                  "(state_bytes)",
                  static_cast<unsigned long long>(bytes),
                  static_cast<unsigned long long>(budget_->most_bytes.load()));
    code = YARD_DECLINED;
    return nullptr;
  };
  uint64_t loads;
  {
    std::lock_guard lock(lock_);
    loads = loads_;
    if (const Kept* const known = find_known()) {
      if (known->state != nullptr) return known->state;
      // It is made again only if it would fit now.
      if (!budget_->fits(known->bytes, budget_->bytes)) return refuse(known->bytes);
    }
  }
  // Without the lock: create() and prepare() may call ops.
  uint64_t bytes = 0;
  auto state = make(kernel, program, frame, own, code, bytes);
  if (state == nullptr) return nullptr;
  const bool fits = state->charge(budget_, bytes);
  {
    std::list<Kept> ended;  // outside the lock
    std::lock_guard lock(lock_);
    if (loads != loads_) return fits ? state : refuse(bytes);
    Kept* to = find_known();
    if (to != nullptr && to->state != nullptr) {  // another thread was first
      ended.push_back({kernel.get(), {}, std::move(state)});
      return to->state;
    }
    if (to == nullptr) to = &kept_.emplace_front(Kept{kernel.get(), std::move(key), {}});
    to->bytes = bytes;
    if (fits) to->state = state;
    if (kept_.size() > kKept) ended.splice(ended.begin(), kept_, std::prev(kept_.end()));
  }
  if (!fits) return refuse(bytes);
  // The call may have begun before its kernel was removed, and drop_removed() may have run since. Checked after storing:
  // a removal that is not seen here drops the state itself.
  if (budget_ != nullptr && !is_registered(*budget_->registry(), *kernel)) drop_removed();
  return state;
}

std::shared_ptr<State> States::make(const std::shared_ptr<const registry::Kernel>& kernel,
                                    const op::Program& program, CallFrame& frame,
                                    std::span<const yard_value_t> own, int32_t& code,
                                    uint64_t& bytes) {
  const yard_kernel_t& d = kernel->d;
  // Another kernel may take these options or weights.
  const auto decline = [&](const Status& why) {
    std::snprintf(frame.error, sizeof frame.error, "%s", std::string(why.message()).c_str());
    code = YARD_DECLINED;
    return nullptr;
  };
  const auto options = kernel_options(*kernel, options_);
  if (!options.ok()) return decline(options.status());
  std::shared_ptr<const Weights> weights;
  {
    std::lock_guard lock(lock_);
    weights = weights_;
  }
  if (const Status s = check_weights(*kernel, *weights); !s.ok()) return decline(s);
  const base::FloatState restored;
  void* made = nullptr;
  code = detail::enter_kernel(frame.call, [&] {
    return d.create(&frame.call, options->data(), static_cast<uint32_t>(options->size()), &made);
  });
  if (code != YARD_OK) return nullptr;
  auto state = std::make_shared<State>(kernel, made);  // destroys it if a later step fails
  frame.call.state = made;
  state->keep(weights, program);
  if (d.load != nullptr && !weights->empty()) {
    std::vector<yard_named_value_t> named;
    for (const auto& [name, view] : *weights) named.push_back({name.c_str(), Value(view).c()});
    code = detail::enter_kernel(frame.call, [&] {
      return d.load(&frame.call, named.data(), static_cast<uint32_t>(named.size()));
    });
  }
  if (code == YARD_OK && d.prepare != nullptr)
    code = detail::enter_kernel(frame.call, [&] {
      return d.prepare(&frame.call, own.data(), static_cast<uint32_t>(own.size()));
    });
  if (code == YARD_OK && d.state_bytes != nullptr) {
    code = detail::enter_kernel(frame.call, [&]() -> int32_t {
      const int64_t held = d.state_bytes(d.self, made);
      bytes = static_cast<uint64_t>(std::max<int64_t>(held, 0));
      if (held >= 0) return YARD_OK;
      std::snprintf(frame.error, sizeof frame.error, "it returned a negative size of its state");
      return YARD_FAULT;
    });
  }
  frame.call.state = nullptr;
  return code == YARD_OK ? state : nullptr;
}

void States::drop_removed() {
  const auto registry = budget_->registry();
  std::list<Kept> ended;
  std::lock_guard lock(lock_);
  for (auto it = kept_.begin(); it != kept_.end();) {
    const auto at = it++;
    if (!is_registered(*registry, *at->kernel)) ended.splice(ended.begin(), kept_, at);
  }
}

States::Held States::held() const {
  Held to;
  std::lock_guard lock(lock_);
  for (const Kept& k : kept_)
    if (k.state != nullptr) ++to.states, to.bytes += k.bytes;
  return to;
}

}  // namespace yard::exec
