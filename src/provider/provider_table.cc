// SPDX-License-Identifier: Apache-2.0
#include "provider/provider_table.h"

#include <fmt/format.h>
#include <yard/function.h>

#include "base/append_list.h"
#include "base/log.h"
#include "base/reclaimer.h"
#include "base/results.h"
#include "base/text.h"
#include "dispatch/scope.h"
#include "provider/by_scope.h"
#include "registry/declarations.h"
#include "select/reasons.h"

namespace yard::detail {

const FunctionTable kFunctionsOff;

// A null table is the master switch.
struct FunctionScopes : provider::ByScope<provider::ProviderTable> {};

}  // namespace yard::detail

namespace yard::provider {

using detail::FunctionScopes;

namespace {

base::InternedTexts g_reason_texts;  // of the program's verifiers
base::InternedTexts g_backend_names;
constexpr int32_t kInterned = 1 << 20;
constexpr uint32_t kMostTexts = 4096;

bool is_interned(int32_t code) noexcept { return code >= kInterned; }

}  // namespace

Implementation::Implementation(std::shared_ptr<const registry::Hook> h) : hook(std::move(h)) {
  run = hook->d.function;
  verify = hook->d.verify;
  self = hook->d.self;
  backend = g_backend_names.intern(hook->backend)->text.c_str();
  ran = runs.id();
}

void Implementation::retire(const Implementation* i) noexcept {
  base::if_memory_allows([&] {  // else it is leaked
    base::reclaimer().retire(const_cast<Implementation*>(i),
                             [](void* p) { delete static_cast<Implementation*>(p); },
                             {static_cast<const detail::FunctionRow*>(i)});
  });
}

std::shared_ptr<const Implementation> Implementation::make(
    std::shared_ptr<const registry::Hook> hook) {
  return {new Implementation(std::move(hook)), &Implementation::retire};
}

bool Implementation::has_text(int32_t reason) const noexcept {
  if (is_interned(reason) || reason < YARD_REASON_OWN) return true;
  return static_cast<size_t>(reason - YARD_REASON_OWN) < hook->reasons.size();
}

std::string Implementation::text_of(int32_t reason, const int64_t figures[3]) const {
  if (is_interned(reason)) {
    const std::string_view text = g_reason_texts.text(static_cast<uint32_t>(reason - kInterned));
    return registry::fill_in(text, figures);
  }
  if (reason >= YARD_REASON_OWN) {
    if (has_text(reason))
      return registry::fill_in(hook->reasons[static_cast<size_t>(reason - YARD_REASON_OWN)],
                               figures);
    return fmt::format("reason {}, for which the backend has no text", reason);
  }
  return select::reason_meaning(reason);
}

void Implementation::refused(const yard_verdict_t& v) const {
  const int32_t reason = v.reason > YARD_REASON_NONE ? v.reason : int32_t{YARD_REASON_REFUSED};
  for (std::atomic<int32_t>& logged : logged_) {
    int32_t known = logged.load(std::memory_order_relaxed);
    if (known == reason) return;
    if (known != YARD_REASON_NONE) continue;
    if (logged.compare_exchange_strong(known, reason, std::memory_order_relaxed))
      return base::log(
          LogLevel::kInfo, "dispatch",
          fmt::format("Backend '{}' refuses a call of function '{}/{}': {}", hook->backend,
                      hook->group, hook->name, text_of(reason, v.figures)));
    if (known == reason) return;
  }
}

void Implementation::broken(const std::string& text) const {
  base::log(LogLevel::kWarn, "dispatch",
            fmt::format("The verifier of backend '{}' for function '{}/{}' is broken: {}",
                        hook->backend, hook->group, hook->name, text));
}

namespace {

std::shared_ptr<const Implementation> implementation_for(
    const ProviderTable* before, const std::shared_ptr<const registry::Hook>& hook) {
  if (before != nullptr)
    for (const ProviderTable::Entry& e : before->entries)
      if (e.implementation->hook == hook) return e.implementation;
  return Implementation::make(hook);
}

void exchange(detail::FunctionSite& site, const detail::FunctionTable* next) {
  const ProviderTable* old = as_table(site.table.exchange(next, std::memory_order_acq_rel));
  if (old == nullptr) return;
  base::reclaimer().retire(const_cast<ProviderTable*>(old),
                           [](void* p) { delete static_cast<ProviderTable*>(p); },
                           {static_cast<const detail::FunctionTable*>(old)});
}

}  // namespace

std::unique_ptr<const ProviderTable> ProviderTable::make(const Situation& situation,
                                                         const detail::FunctionSite& site,
                                                         const ProviderTable* before) {
  auto to = std::make_unique<ProviderTable>();
  for (Provider& p : function_providers(situation, site.group, site.name, site.signature)) {
    auto implementation = implementation_for(before, p.hook);
    if (p.eligibility.eligible()) to->list.push_back(implementation.get());
    to->entries.push_back({std::move(implementation), std::move(p.eligibility)});
  }
  to->originals = before != nullptr ? before->originals : std::make_shared<base::Counter>();
  to->strict = situation.policy().strict.value_or(false);
  to->rows = to->list.data(), to->count = static_cast<uint32_t>(to->list.size());
  to->original = to->originals->id();
  if (const auto& file = situation.snapshot.policy->file; file != nullptr)
    if (const auto& n = file->config.settings.max_fallback_attempts)
      to->fallbacks = static_cast<size_t>(*n);
  to->update_plain();
  return to;
}

void ProviderTable::update_plain() const noexcept {
  const auto is_plain = [this] {
    for (const Entry& e : entries)
      if (e.eligibility.probes() != nullptr || e.implementation->suspect.load()) return false;
    return true;
  };
  plain.store(is_plain());
  // The store may have overwritten that of a thread that has just made an implementation suspect.
  if (plain.load() && !is_plain()) plain.store(false);
}

bool ProviderTable::same_as(const ProviderTable& other) const {
  if (entries.size() != other.entries.size() || list != other.list || strict != other.strict ||
      fallbacks != other.fallbacks)
    return false;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry &a = entries[i], &b = other.entries[i];
    if (a.implementation != b.implementation || !a.eligibility.same_as(b.eligibility)) return false;
  }
  return true;
}

const ProviderTable* as_table(const detail::FunctionTable* t) noexcept {
  return t != nullptr && t != &detail::kFunctionsOff ? static_cast<const ProviderTable*>(t)
                                                     : nullptr;
}

void publish(detail::FunctionSite& site, std::unique_ptr<const ProviderTable> table) {
  const ProviderTable* const made = table.release();
  exchange(site, made != nullptr ? made : &detail::kFunctionsOff);
  // An implementation that became suspect while the table was made has updated the table before it.
  if (made != nullptr) made->update_plain();
}

void publish(detail::FunctionSite& site, uint64_t scope,
             std::shared_ptr<const ProviderTable> table) {
  FunctionScopes::add(site.scoped, scope, std::move(table));
  update_plain(site);  // as above
}

void withdraw_scoped(detail::FunctionSite& site) { FunctionScopes::withdraw(site.scoped); }

void withdraw(detail::FunctionSite& site) {
  exchange(site, nullptr);
  withdraw_scoped(site);
}

void update_plain(const detail::FunctionSite& site) {
  base::ThreadRecord& thread = base::this_thread();
  {
    base::Guard guard(thread);
    if (const ProviderTable* table = as_table(guard.protect(site.table))) table->update_plain();
  }
  base::Guard guard(thread);
  if (const FunctionScopes* scopes = guard.protect(site.scoped))
    for (const FunctionScopes::Entry& e : scopes->entries())
      if (e.value != nullptr) e.value->update_plain();
}

}  // namespace yard::provider

namespace yard::detail {

using provider::Implementation;

int32_t ProgramTexts::number(const char* text) noexcept {
  for (const Known& k : known_) {
    const char* const t = k.text.load(std::memory_order_acquire);
    if (t == text) return k.number;
    if (t == nullptr) break;
  }
  const auto* item = provider::g_reason_texts.intern(text, provider::kMostTexts);
  const int32_t n = item != nullptr ? provider::kInterned + static_cast<int32_t>(item->number)
                                    : int32_t{YARD_REASON_REFUSED};
  if (!learning_.exchange(true, std::memory_order_acquire)) {
    for (Known& k : known_)
      if (k.text.load(std::memory_order_relaxed) == nullptr) {
        k.number = n;
        k.text.store(text, std::memory_order_release);
        break;
      }
    learning_.store(false, std::memory_order_release);
  }
  return n;
}

std::string number_text(double number) { return fmt::format("{:.9g}", number); }

std::string quoted_text(std::string_view text) {
  constexpr size_t kMost = 60;
  return fmt::format("\"{}\"{}", text.substr(0, kMost), text.size() > kMost ? "..." : "");
}

const FunctionTable* scoped_table(const FunctionSite& site, const ThreadHead& thread,
                                  Guard& guard) noexcept {
  const FunctionScopes* const scopes = guard.protect(site.scoped);
  const auto* found = scopes != nullptr ? scopes->find(thread.scope_state->providers) : nullptr;
  if (found == nullptr) return nullptr;
  return found->value != nullptr ? found->value.get() : &kFunctionsOff;
}

void function_refused(const FunctionRow& row, const yard_verdict_t& v) {
  static_cast<const Implementation&>(row).refused(v);
}

void function_verifier_threw(const FunctionRow& row) {
  static_cast<const Implementation&>(row).broken("it threw: " + base::current_exception_text());
}

}  // namespace yard::detail
