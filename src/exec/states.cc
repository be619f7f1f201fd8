// SPDX-License-Identifier: Apache-2.0
#include "exec/states.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
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

States::States(StatesOwner* owner) : owner_(owner) {
  auto none = std::make_unique<Loaded>(std::make_shared<Weights>());
  cache_ = new Cache;  // nothing throws after it
  weights_ = none.release();
}

States::~States() {
  Cache* c = cache_.load(std::memory_order_acquire);
  if (c->forks == base::forks()) delete c;
  delete weights_.load(std::memory_order_acquire);
}

States::Cache& States::cache() const {
  const uint64_t forks = base::forks();
  Cache* c = cache_.load(std::memory_order_acquire);
  while (c->forks != forks) {
    auto* made = new Cache;
    if (cache_.compare_exchange_strong(c, made, std::memory_order_acq_rel)) return *made;
    delete made;
  }
  return *c;
}

bool States::first_in_process() const {
  Cache& here = cache();
  return !here.seen.load(std::memory_order_relaxed) && !here.seen.exchange(true);
}

void States::set_options(std::vector<OwnedValue> options) { options_ = std::move(options); }

void States::set_weights(Weights weights) {
  auto given = std::make_unique<Loaded>(std::make_shared<const Weights>(std::move(weights)));
  Cache& here = cache();
  std::unique_ptr<Loaded> before;
  std::list<Kept> ended;  // outside the lock: destroy is plugin code
  std::lock_guard lock(here.lock);
  has_weights_.store(!(*given)->empty(), std::memory_order_relaxed);
  before.reset(weights_.exchange(given.release()));
  base::in_this_order();
  ++here.loads;
  ended.swap(here.kept);
}

uint64_t States::most_bytes() const noexcept {
  return owner_ != nullptr ? owner_->most_bytes() : UINT64_MAX;
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
  Cache& here = cache();
  // The last one used comes first.
  const auto find_known = [&]() -> Kept* {
    for (auto it = here.kept.begin(); it != here.kept.end(); ++it)
      if (it->kernel == kernel.get() && it->key == key) {
        here.kept.splice(here.kept.begin(), here.kept, it);
        return &*it;
      }
    return nullptr;
  };
  const auto refuse = [&](uint64_t bytes) {
    std::snprintf(frame.error, sizeof frame.error,
                  "its state would hold %llu bytes, and the bound (state_bytes) is %llu",
                  static_cast<unsigned long long>(bytes),
                  static_cast<unsigned long long>(most_bytes()));
    code = YARD_DECLINED;
    return nullptr;
  };
  uint64_t loads, dropped = 0, since = 0;
  bool look = false;  // for room, which takes a while where there are many instances
  {
    std::lock_guard lock(here.lock);
    loads = here.loads;
    if (Kept* const known = find_known()) {
      if (known->state != nullptr) {
        if (owner_ != nullptr) known->used = owner_->now();
        return known->state;
      }
      if (known->bytes > most_bytes()) return refuse(known->bytes);
      constexpr uint32_t kSeldom = 64;
      dropped = known->bytes, since = std::exchange(known->used, owner_->next());
      look = std::has_single_bit(++known->refused) || known->refused % kSeldom == 0;
    }
  }
  if (dropped > 0 && !(look && owner_->has_room(dropped, since))) {
    std::snprintf(frame.error, sizeof frame.error,
                  "its state was dropped, and others that were used since fill the bound "
                  "(state_bytes)");
    code = YARD_DECLINED;
    return nullptr;
  }
  // Without the lock: create() and prepare() may call ops.
  uint64_t bytes = 0;
  auto state = make(kernel, program, frame, own, code, bytes);
  if (state == nullptr) return nullptr;
  const bool fits = bytes <= most_bytes();
  if (here.forks != base::forks())  // this is a child forked meanwhile
    return fits ? state : refuse(bytes);
  {
    std::list<Kept> ended;  // outside the lock
    std::lock_guard lock(here.lock);
    if (loads != here.loads) return fits ? state : refuse(bytes);
    Kept* to = find_known();
    if (to != nullptr && to->state != nullptr) {  // another thread was first
      ended.push_back({kernel.get(), {}, std::move(state)});
      return to->state;
    }
    if (to == nullptr) to = &here.kept.emplace_front(Kept{kernel.get(), std::move(key), {}});
    to->bytes = bytes, to->refused = 0;
    if (owner_ != nullptr) to->used = owner_->next();
    if (fits) to->state = state;
    if (here.kept.size() > kKept)
      ended.splice(ended.begin(), here.kept, std::prev(here.kept.end()));
  }
  if (owner_ == nullptr) return state;
  // The call may have begun before its kernel was removed, and drop_removed() may have run since. Checked after storing:
  // a removal that is not seen here drops the state itself.
  if (!is_registered(*owner_->registry_now(), *kernel)) drop_removed();
  if (!fits) return refuse(bytes);
  if (bytes > 0) owner_->drop_beyond_bound();
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
    std::lock_guard lock(cache().lock);
    weights = *weights_.load(std::memory_order_acquire);
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
  const auto registry = owner_->registry_now();
  Cache& here = cache();
  std::list<Kept> ended;
  std::lock_guard lock(here.lock);
  for (auto it = here.kept.begin(); it != here.kept.end();) {
    const auto at = it++;
    if (!is_registered(*registry, *at->kernel)) ended.splice(ended.begin(), here.kept, at);
  }
}

size_t States::size() const { return held().states; }

States::Held States::held() const {
  Held to;
  Cache& here = cache();
  std::lock_guard lock(here.lock);
  for (const Kept& k : here.kept) {
    if (k.state == nullptr) continue;
    ++to.states, to.bytes += k.bytes;
    if (k.bytes > 0) to.oldest = std::min(to.oldest, k.used);
  }
  return to;
}

uint64_t States::bytes_used_since(uint64_t since) const {
  uint64_t bytes = 0;
  Cache& here = cache();
  std::lock_guard lock(here.lock);
  for (const Kept& k : here.kept)
    if (k.state != nullptr && k.used >= since) bytes += k.bytes;
  return bytes;
}

std::shared_ptr<State> States::drop_oldest() {
  Cache& here = cache();
  std::lock_guard lock(here.lock);
  for (auto it = here.kept.end(); it != here.kept.begin();) {
    --it;
    if (it->state == nullptr || it->bytes == 0) continue;
    return std::move(it->state);
  }
  return nullptr;
}

}  // namespace yard::exec
