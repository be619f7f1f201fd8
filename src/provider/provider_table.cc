// SPDX-License-Identifier: Apache-2.0
#include "provider/provider_table.h"

#include "base/reclaimer.h"
#include "registry/declarations.h"

namespace yard::detail {
const FunctionTable kFunctionsOff;
}  // namespace yard::detail

namespace yard::provider {
namespace {

std::shared_ptr<const Implementation> implementation_for(
    const ProviderTable* before, const std::shared_ptr<const registry::Hook>& hook) {
  if (before != nullptr)
    for (const ProviderTable::Entry& e : before->entries)
      if (e.implementation->hook == hook) return e.implementation;
  return Implementation::make(hook);
}

// Whether the backend can run all other functions with the same choice key.
bool serves_all(const Situation& situation, const detail::FunctionSite& site,
                const std::string& backend) {
  for (const detail::FunctionSite* other : registry::function_sites()) {
    if (other == &site || other->point != site.point) continue;
    bool served = false;
    for (const Provider& p :
         function_providers(situation, other->group, other->name, other->signature))
      served |= p.hook->backend == backend && p.eligibility.eligible();
    if (!served) return false;
  }
  return true;
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
                                                         const ProviderTable* before,
                                                         bool checked) {
  auto to = std::make_unique<ProviderTable>();
  for (Provider& p : function_providers(situation, site.group, site.name, site.signature)) {
    auto implementation = implementation_for(before, p.hook);
    const bool eligible = p.eligibility.eligible();
    if (eligible) to->list.push_back(implementation.get());
    to->entries.push_back({std::move(implementation), std::move(p.eligibility),
                           eligible && !serves_all(situation, site, p.hook->backend)});
  }
  to->originals = before != nullptr ? before->originals : std::make_shared<base::Counter>();
  to->strict = situation.snapshot.policy->in_force.strict.value_or(false);
  to->checked = checked;
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
    if (checked) return false;
    for (const Entry& e : entries)
      if (e.eligibility.probes() != nullptr || e.implementation->suspect.load()) return false;
    return true;
  };
  plain.store(is_plain());
  // The store may have overwritten that of a thread that has made an implementation suspect meanwhile.
  if (plain.load() && !is_plain()) plain.store(false);
}

bool ProviderTable::same_as(const ProviderTable& other) const {
  if (entries.size() != other.entries.size() || list != other.list || strict != other.strict ||
      checked != other.checked || fallbacks != other.fallbacks)
    return false;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry &a = entries[i], &b = other.entries[i];
    if (a.implementation != b.implementation || a.partial != b.partial ||
        !a.eligibility.same_as(b.eligibility))
      return false;
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

void withdraw(detail::FunctionSite& site) { exchange(site, nullptr); }

}  // namespace yard::provider
