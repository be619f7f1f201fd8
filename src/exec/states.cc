// SPDX-License-Identifier: Apache-2.0
#include "exec/states.h"

#include <fmt/format.h>

#include "base/float_state.h"
#include "base/tasks.h"
#include "base/text.h"
#include "exec/executor.h"
#include "op/bind.h"

namespace yard::exec {
namespace {

Status invalid(std::string text) { return Status(Code::kInvalidArgument, std::move(text)); }

Status convert(const op::Param& p, yard_value_t& v) {
  const auto expected = [&](std::string_view what) {
    return invalid(fmt::format("invalid option '{}': expected {}", p.name, what));
  };
  const auto check = [&](uint32_t tag, const char* name) {
    return v.tag == tag ? Status() : expected(name);
  };
  if (p.kind == op::Kind::kFloat && v.tag == YARD_TAG_INT)
    v = op::scalar(static_cast<double>(v.u.i));
  switch (p.kind) {
    case op::Kind::kInt: return check(YARD_TAG_INT, "an int");
    case op::Kind::kFloat: return check(YARD_TAG_FLOAT, "a float");
    case op::Kind::kBool: return check(YARD_TAG_BOOL, "a bool");
    case op::Kind::kEnum: break;
    default: return check(YARD_TAG_STRING, "a string");
  }
  const std::string words = base::one_of(p.enumerators);
  if (v.tag != YARD_TAG_STRING) return expected(words);
  const std::string_view word(v.u.string, v.count);
  const auto it = std::ranges::find(p.enumerators, word);
  if (it == p.enumerators.end())
    return expected(fmt::format("{}, got {}{}", words, base::excerpt(word),
                                base::did_you_mean(word, p.enumerators)));
  v = op::scalar(int64_t{it - p.enumerators.begin()});
  return {};
}

bool is_registered(const registry::State& registry, const registry::Kernel& kernel) {
  const registry::OpRecord* const op = registry.find(kernel.op);
  if (op == nullptr) return false;
  const auto it = op->kernels.find(kernel.id);
  return it != op->kernels.end() && it->second.get() == &kernel;
}

bool same_tensor(const TensorView& a, const TensorView& b) {
  return a.data() == b.data() && a.dtype() == b.dtype() && a.device() == b.device() &&
         std::ranges::equal(a.shape(), b.shape()) && std::ranges::equal(a.strides(), b.strides());
}

}  // namespace

struct KernelState {
  const std::shared_ptr<const registry::Kernel> kernel;
  void* const made;
  // A kernel may hold pointers to these tensors.
  const std::shared_ptr<const Weights> weights;
  // Holds an argument and a weight, by index, for each weight that is also an argument.
  std::vector<std::pair<uint32_t, size_t>> arguments = {};
  std::shared_ptr<StateBudget> budget = {};  // counts this state, unless null
  uint64_t bytes = 0, forks = base::forks();

  ~KernelState() {
    // A forked child counts only its own states.
    if (budget != nullptr && forks == base::forks()) --budget->states, budget->bytes -= bytes;
  }
};

// destroy() may hang or end its thread, so it does not run on a caller's thread.
static void end_state(KernelState* s) {
  base::end_on_own_thread([s] {
    const std::unique_ptr<KernelState> ended(s);
    const base::ForeignCode inside;
    const base::FloatState restored;
    s->kernel->d.destroy(s->kernel->d.self, s->made);
  });
}

States::~States() {
  const base::EndTogether together;
  std::list<Kept> ended;  // destroyed after the lock is released
  std::lock_guard lock(lock_);
  ended.swap(kept_);
}

Result<std::vector<yard_named_value_t>> kernel_options(const registry::Kernel& kernel,
                                                       const std::vector<OwnedValue>& given) {
  const op::Schema none;
  const op::Schema& schema = kernel.options != nullptr ? *kernel.options : none;
  for (const OwnedValue& g : given)
    if (schema.index_of(g.name) < 0)
      return invalid(fmt::format("it has no option '{}'{}", g.name,
                                 base::did_you_mean(g.name, schema.param_names())));
  std::vector<yard_named_value_t> to;
  for (const op::Param& p : schema.params) {
    yard_value_t value = op::default_value(p);
    const auto it = std::ranges::find(given, p.name, &OwnedValue::name);
    if (it != given.end()) {
      value = it->value;
      if (value.tag == YARD_TAG_STRING) value.u.string = it->text.c_str();
      YARD_RETURN_IF_ERROR(convert(p, value));
    } else if (value.tag == YARD_TAG_NONE && !p.optional) {
      return invalid(fmt::format("its option '{}' has no default and was not given", p.name));
    }
    to.push_back({p.name.c_str(), value});
  }
  return to;
}

Status check_weights(const registry::Kernel& kernel, const Weights& given) {
  if (kernel.weights == nullptr) return {};
  for (const auto& [name, view] : given)
    if (kernel.weights->index_of(name) < 0)
      return invalid(fmt::format("it has no weight '{}'{}", name,
                                 base::did_you_mean(name, kernel.weights->param_names())));
  for (const op::Param& p : kernel.weights->params)
    if (!p.optional && std::ranges::find(given, p.name, &Weights::value_type::first) == given.end())
      return invalid(fmt::format("its weight '{}' is not loaded", p.name));
  return {};
}

bool StateBudget::take(uint64_t wanted) noexcept {
  uint64_t held = bytes;
  while (fits(wanted, held))
    if (bytes.compare_exchange_weak(held, held + wanted)) return ++states, true;
  return false;
}

void States::set_weights(Weights weights) {
  auto given = std::make_shared<const Weights>(std::move(weights));
  const base::EndTogether together;
  std::list<Kept> ended;  // destroyed after the lock is released
  std::lock_guard lock(lock_);
  has_weights_.store(!given->empty(), std::memory_order_relaxed);
  weights_ = std::move(given);
  ended.swap(kept_);
}

int32_t States::find(const StateRequest& r, std::shared_ptr<void>& to) {
  std::shared_ptr<KernelState> state;
  if (const int32_t code = find_or_make(r, state); code != YARD_OK) return code;
  for (const auto& [at, i] : state->arguments) {
    const auto& [name, loaded] = (*state->weights)[i];
    const yard_value_t& given = r.args[at];
    if (given.tag != YARD_TAG_TENSOR || !same_tensor(TensorView(*given.u.tensor), loaded))
      return r.frame.fail(
          YARD_DECLINED,
          fmt::format(
              "it was prepared for the '{}' that was loaded, and the call passes another tensor",
              name));
  }
  to = {state, state->made};
  return YARD_OK;
}

States::Kept* States::find_kept(const registry::Kernel& kernel, const std::vector<int64_t>& key) {
  const auto it = std::ranges::find_if(
      kept_, [&](const Kept& k) { return k.kernel == &kernel && k.key == key; });
  if (it == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, it);
  return &*it;
}

int32_t States::find_or_make(const StateRequest& r, std::shared_ptr<KernelState>& to) {
  std::vector<int64_t> key;
  for (const std::string& f : r.kernel.state_fields)
    if (const auto field = r.program.field(f)) key.push_back(op::read(*field, r.args));
  const auto refuse = [&](uint64_t bytes) {
    return r.frame.fail(YARD_DECLINED,
                        fmt::format("its state would hold {} bytes, and all states together hold "
                                    "at most {} (state_bytes)",
                                    bytes, budget_->most_bytes.load()));
  };
  {
    std::lock_guard lock(lock_);
    if (const Kept* const known = find_kept(r.kernel, key)) {
      to = known->state;
      if (to != nullptr) return YARD_OK;
      // Make the state again only if it fits now.
      if (!budget_->fits(known->bytes, budget_->bytes)) return refuse(known->bytes);
    }
  }
  // Release the lock, because create() and prepare() may call ops.
  std::shared_ptr<KernelState> made;
  if (const int32_t code = make(r, made); code != YARD_OK) return code;
  const uint64_t bytes = made->bytes;
  const bool fits = budget_ == nullptr || budget_->take(bytes);
  if (fits) made->budget = budget_;
  {
    std::list<Kept> ended;  // destroyed after the lock is released
    std::lock_guard lock(lock_);
    Kept* kept = find_kept(r.kernel, key);
    if (kept != nullptr && kept->state != nullptr) {  // another thread was first
      to = kept->state;
      return YARD_OK;
    }
    if (made->weights == weights_) {  // set_weights() has not run meanwhile
      if (kept == nullptr) kept = &kept_.emplace_front(Kept{&r.kernel, std::move(key), {}, 0});
      kept->bytes = bytes;
      if (fits) kept->state = made;
      if (kept_.size() > kKept) ended.splice(ended.begin(), kept_, std::prev(kept_.end()));
    }
  }
  if (!fits) return refuse(bytes);
  // The kernel may have been removed during this call. A later removal drops the state itself.
  if (budget_ != nullptr && !is_registered(*budget_->registry(), r.kernel)) drop_removed();
  to = std::move(made);
  return YARD_OK;
}

int32_t States::make(const StateRequest& r, std::shared_ptr<KernelState>& to) {
  const yard_kernel_t& d = r.kernel.d;
  yard_call_t& call = r.frame.call;
  const auto options = kernel_options(r.kernel, options_);
  if (!options.ok()) return r.frame.fail(YARD_DECLINED, options.status().message());
  std::shared_ptr<const Weights> weights;
  {
    std::lock_guard lock(lock_);
    weights = weights_;
  }
  if (const Status s = check_weights(r.kernel, *weights); !s.ok())
    return r.frame.fail(YARD_DECLINED, s.message());
  const base::ForeignCode inside;
  const base::FloatState restored;
  void* made = nullptr;
  int32_t code = YARD_OK;
  const auto enter = [&](const auto& function) {
    if (code == YARD_OK) code = detail::enter_kernel(call, function);
  };
  const auto count = [](const auto& list) { return static_cast<uint32_t>(list.size()); };
  enter([&] { return d.create(&call, options->data(), count(*options), &made); });
  if (code != YARD_OK) return code;
  to = {new KernelState{r.kernel.shared_from_this(), made, weights}, end_state};
  std::vector<yard_named_value_t> named;
  for (size_t i = 0; i < weights->size(); ++i) {
    const auto& [name, view] = (*weights)[i];
    named.push_back({name.c_str(), Value(view).c()});
    if (const int at = r.program.index_of(name); at >= 0)
      to->arguments.emplace_back(static_cast<uint32_t>(at), i);
  }
  call.state = made;
  if (d.load != nullptr && !named.empty())
    enter([&] { return d.load(&call, named.data(), count(named)); });
  if (d.prepare != nullptr) enter([&] { return d.prepare(&call, r.own.data(), count(r.own)); });
  if (d.state_bytes != nullptr)
    enter([&]() -> int32_t {
      const int64_t held = d.state_bytes(d.self, made);
      to->bytes = static_cast<uint64_t>(std::max<int64_t>(held, 0));
      if (held >= 0) return YARD_OK;
      return r.frame.fail(YARD_FAULT, "it returned a negative size of its state");
    });
  call.state = nullptr;
  return code;
}

void States::drop_removed() {
  const auto registry = budget_->registry();
  const base::EndTogether together;
  std::list<Kept> ended;
  std::lock_guard lock(lock_);
  for (auto it = kept_.begin(); it != kept_.end();)
    if (const auto at = it++; !is_registered(*registry, *at->kernel))
      ended.splice(ended.begin(), kept_, at);
}

States::Held States::held() const {
  Held to;
  std::lock_guard lock(lock_);
  for (const Kept& k : kept_)
    if (k.state != nullptr) ++to.states, to.bytes += k.bytes;
  return to;
}

}  // namespace yard::exec
