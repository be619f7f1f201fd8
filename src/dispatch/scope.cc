// SPDX-License-Identifier: Apache-2.0
#include "dispatch/scope.h"

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "base/mutex.h"
#include "base/reclaimer.h"
#include "base/text.h"

namespace yard::detail {

std::string ScopeContent::text() const {
  std::string t;
  if (!policy.empty()) t = to_string(policy);
  for (const auto& [k, v] : labels) t += "\nlabel " + base::quote(k) + '=' + base::quote(v);
  const auto flag = [&](const char* name, const std::optional<bool>& on) {
    if (on) t += std::string("\n") + name + (*on ? " on" : " off");
  };
  flag("inference", inference);
  flag("deterministic", deterministic);
  if (!mode.empty()) t += "\nmode " + base::quote(mode);
  for (const std::string& b : backends) t += "\nbackend " + base::quote(b);
  if (device) t += "\ndevice " + to_string(*device);
  return t;
}

ScopeContent ScopeContent::under(const ScopeContent& inner) const {
  ScopeContent both = *this;
  both.policy = merge(policy, inner.policy);
  for (const auto& [k, v] : inner.labels) both.labels[k] = v;
  if (inner.inference) both.inference = inner.inference;
  if (inner.deterministic) both.deterministic = inner.deterministic;
  if (!inner.mode.empty()) both.mode = inner.mode;
  both.backends = inner.backends;
  for (const std::string& b : backends)
    if (std::ranges::find(both.backends, b) == both.backends.end()) both.backends.push_back(b);
  if (inner.device) both.device = inner.device;
  return both;
}

namespace {

using StatePtr = std::shared_ptr<const ScopeState>;

// States by the text of their content. The most recent ones are kept alive.
struct States {
  static constexpr size_t kKept = 64;
  base::Mutex mutex{base::Rank::kScopes};
  std::unordered_map<std::string, std::weak_ptr<const ScopeState>> by_text;
  std::deque<StatePtr> kept;
};
std::atomic<uint64_t> g_last_id{0};
uint64_t next_scope_id() { return g_last_id.fetch_add(1, std::memory_order_relaxed) + 1; }

ScopeContent provider_content(const ScopeContent& c) {
  const Policy& p = c.policy;
  ScopeContent to;
  to.backends = c.backends, to.device = c.device;
  to.policy.reference_only = p.reference_only;
  to.policy.allow_vendors = p.allow_vendors, to.policy.deny_vendors = p.deny_vendors;
  to.policy.backends = p.backends;
  return to;
}

StatePtr intern(ScopeContent content) {
  const std::string text = content.text();
  ScopeContent part = provider_content(content);
  const std::string part_text = part.text();
  StatePtr providers;
  if (!part_text.empty() && part_text != text) providers = intern(std::move(part));
  StatePtr let_go;  // freed after the lock is released
  States& states = base::process_wide<States>();
  const std::lock_guard lock(states.mutex);
  auto& found = states.by_text[text];
  if (StatePtr state = found.lock()) return state;
  auto state = std::make_shared<ScopeState>();
  state->problem = validate(content.policy);
  if (!text.empty()) state->id = next_scope_id();
  // Functions fail in an invalid scope, as ops do.
  if (!part_text.empty() || !state->problem.ok()) {
    state->id |= ThreadHead::kProviders;
    state->providers = providers != nullptr && state->problem.ok() ? providers->id : state->id;
    state->keep_providers = std::move(providers);
  }
  state->policy_id = state->id;
  if (!state->problem.ok()) state->problem.note("set by a scope of this thread");
  if (content.inference.value_or(false)) state->flags |= YARD_CALL_INFERENCE;
  if (content.deterministic.value_or(false)) state->flags |= YARD_CALL_DETERMINISTIC;
  state->content = std::move(content);
  found = state;
  states.kept.push_back(state);
  if (states.kept.size() > States::kKept) {
    let_go = std::move(states.kept.front());
    states.kept.pop_front();
  }
  if (states.by_text.size() > 4 * States::kKept)
    std::erase_if(states.by_text, [](const auto& s) { return s.second.expired(); });
  return state;
}

// Returns the state of `spec` inside `outer`. The spec keeps the state, or `own` does.
const ScopeState* find_state(ScopeSpec& spec, const ScopeState* outer, StatePtr& own) {
  const bool traced = outer != nullptr && outer->tracer != nullptr;
  const uint64_t id = outer != nullptr ? outer->id : 0;
  int n = 0;
  for (const ScopeSpec::Inside& i : spec.inside) {
    if (i.outer == id) return i.state.get();
    ++n;
  }
  StatePtr state = intern(outer != nullptr ? outer->content.under(spec.content) : spec.content);
  if (traced || n >= ScopeSpec::kInside) {
    own = traced ? detail::traced(state.get(), outer->tracer) : std::move(state);
    return own.get();
  }
  std::unique_ptr<ScopeSpec::Inside> made(new ScopeSpec::Inside{id, std::move(state)});
  return spec.inside
      .find_or_append(std::move(made),
                      [](const auto& a, const auto& b) { return a.outer == b.outer; })
      .state.get();
}

}  // namespace

StatePtr traced(const ScopeState* outer, Tracer* tracer) {
  auto state = std::make_shared<ScopeState>(outer != nullptr ? *outer : ScopeState());
  state->id = next_scope_id() | ThreadHead::kTraced | (state->id & ThreadHead::kProviders);
  state->tracer = tracer;
  return state;
}

}  // namespace yard::detail

namespace yard {

using detail::ScopeContent;
using detail::ScopeSpec;

template <class T, class V>
static auto set(T Policy::*field, V value) {
  return [=](ScopeContent& c) { c.policy.*field = value; };
}
template <class T, class V>
static auto set(T ScopeContent::*field, V value) {
  return [=](ScopeContent& c) { c.*field = value; };
}
static void append(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

Scope::Scope() : Scope(Policy()) {}
Scope::Scope(Policy policy) {
  ScopeContent content;
  content.policy = std::move(policy);
  spec_ = std::make_shared<ScopeSpec>(std::move(content));
}

template <class F>
Scope Scope::with(const F& change) const {
  ScopeContent c = spec_->content;
  change(c);
  return Scope(std::make_shared<ScopeSpec>(std::move(c)));
}

Scope Scope::strict(bool on) const { return with(set(&Policy::strict, on)); }
Scope Scope::prefer(Kind kind) const { return with(set(&Policy::prefer, kind)); }
Scope Scope::order(std::string op, std::vector<std::string> tokens) const {
  return with([&](auto& c) { c.policy.per_op[op] = tokens; });
}
Scope Scope::allow_vendors(std::vector<std::string> names) const {
  return with(set(&Policy::allow_vendors, names));
}
Scope Scope::deny_vendors(std::vector<std::string> names) const {
  return with([&](auto& c) { append(c.policy.deny_vendors, names); });
}
Scope Scope::allow_kernels(std::vector<std::string> globs) const {
  return with(set(&Policy::allow_kernels, globs));
}
Scope Scope::deny_kernels(std::vector<std::string> globs) const {
  return with([&](auto& c) { append(c.policy.deny_kernels, globs); });
}
Scope Scope::label(std::string name, std::string value) const {
  return with([&](auto& c) { c.labels[name] = value; });
}
Scope Scope::inference(bool on) const { return with(set(&ScopeContent::inference, on)); }
Scope Scope::deterministic(bool on) const { return with(set(&ScopeContent::deterministic, on)); }
Scope Scope::mode(std::string name) const { return with(set(&ScopeContent::mode, name)); }
Scope Scope::backend(std::string name) const {
  return with([&](auto& c) { c.backends.insert(c.backends.begin(), name); });
}
Scope Scope::device(Device device) const { return with(set(&ScopeContent::device, device)); }
Scope Scope::transforms(bool on, std::string op) const {
  return with([&](auto& c) { c.policy.transforms[op] = on; });
}

const Policy& Scope::policy() const noexcept { return spec_->content.policy; }
const std::map<std::string, std::string, std::less<>>& Scope::labels() const noexcept {
  return spec_->content.labels;
}
Status Scope::status() const { return validate(policy()); }

Scope current_scope() {
  const detail::ScopeState* now = base::this_thread().scope_state;
  return now != nullptr ? Scope(std::make_shared<ScopeSpec>(now->content)) : Scope();
}

void ScopedPolicy::enter(ScopeSpec& spec) {
  thread_ = &base::this_thread();
  outer_ = thread_->scope_state;
  detail::set_scope(*thread_, detail::find_state(spec, outer_, own_));
}

ScopedPolicy::~ScopedPolicy() {
  // If this is another thread, the thread that entered the scope has ended.
  if (detail::t_thread == thread_) detail::set_scope(*thread_, outer_);
}

}  // namespace yard
