// SPDX-License-Identifier: Apache-2.0
#include "exec/states.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/fork.h"
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
  return {};
}

States::States(Registry registry) : registry_(std::move(registry)) {
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
  before.reset(weights_.exchange(given.release()));
  base::in_this_order();
  ++here.loads;
  ended.swap(here.kept);
}

std::shared_ptr<State> States::find(const std::shared_ptr<const registry::Kernel>& kernel,
                                    const op::Program& program, CallFrame& frame,
                                    const yard_value_t* args, const Arguments& own, int32_t& code) {
  std::vector<int64_t> key;
  for (const std::string& f : kernel->state_fields)
    if (const auto field = program.field(f)) key.push_back(op::read(*field, args));
  Cache& here = cache();
  const auto known = [&]() -> std::shared_ptr<State> {
    for (auto it = here.kept.begin(); it != here.kept.end(); ++it)
      if (it->kernel == kernel.get() && it->key == key) {
        here.kept.splice(here.kept.begin(), here.kept, it);
        return it->state;
      }
    return nullptr;
  };
  uint64_t loads;
  {
    std::lock_guard lock(here.lock);
    loads = here.loads;
    if (auto state = known()) return state;
  }
  // Without the lock: create() and prepare() may call ops.
  auto state = make(kernel, frame, own, code);
  if (state == nullptr) return nullptr;
  if (here.forks != base::forks()) return state;  // this is a child forked meanwhile
  {
    std::list<Kept> ended;
    std::lock_guard lock(here.lock);
    if (loads != here.loads) return state;
    if (auto other = known()) {  // another thread was first
      ended.push_back({kernel.get(), {}, std::move(state)});
      return other;
    }
    here.kept.push_front({kernel.get(), std::move(key), state});
    if (here.kept.size() > kKept)
      ended.splice(ended.begin(), here.kept, std::prev(here.kept.end()));
  }
  // The call may have begun before its kernel was removed, and drop_removed() may have run since. Checked after storing:
  // a removal that is not seen here drops the state itself.
  if (registry_ && !is_registered(*registry_(), *kernel)) drop_removed();
  return state;
}

std::shared_ptr<State> States::make(const std::shared_ptr<const registry::Kernel>& kernel,
                                    CallFrame& frame, const Arguments& own, int32_t& code) {
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
  state->keep(weights);
  if (d.load != nullptr && !weights->empty()) {
    std::vector<yard_named_value_t> named;
    for (const auto& [name, view] : *weights) named.push_back({name.c_str(), Value(view).c()});
    code = detail::enter_kernel(frame.call, [&] {
      return d.load(&frame.call, named.data(), static_cast<uint32_t>(named.size()));
    });
  }
  if (code == YARD_OK && d.prepare != nullptr)
    code = detail::enter_kernel(frame.call,
                                [&] { return d.prepare(&frame.call, own.args, own.count); });
  frame.call.state = nullptr;
  return code == YARD_OK ? state : nullptr;
}

void States::drop_removed() {
  const auto registry = registry_();
  Cache& here = cache();
  std::list<Kept> ended;
  std::lock_guard lock(here.lock);
  for (auto it = here.kept.begin(); it != here.kept.end();) {
    const auto at = it++;
    if (!is_registered(*registry, *at->kernel)) ended.splice(ended.begin(), here.kept, at);
  }
}

size_t States::size() const {
  Cache& here = cache();
  std::lock_guard lock(here.lock);
  return here.kept.size();
}

}  // namespace yard::exec
