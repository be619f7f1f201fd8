// SPDX-License-Identifier: Apache-2.0
#include "function/table.h"

#include "base/reclaimer.h"
#include "registry/function_sites.h"

namespace yard::detail {
const FunctionTable kFunctionsOff;
}  // namespace yard::detail

namespace yard::function {
namespace {

std::shared_ptr<const Implementation> reuse(const Table* before, const registry::Hook& hook) {
  if (before != nullptr)
    for (const Table::Entry& e : before->entries)
      if (e.implementation->hook.get() == &hook) return e.implementation;
  return nullptr;
}

// Whether all functions that choose by this key could run the backend.
bool serves_all(const Situation& situation, const detail::FunctionSite& site,
                const std::string& backend) {
  for (const detail::FunctionSite* other : registry::function_sites()) {
    if (other == &site || other->point != site.point) continue;
    bool served = false;
    for (const Candidate& c : candidates(situation, other->group, other->name, other->signature))
      served |= c.hook->backend == backend && c.reason == YARD_REASON_NONE;
    if (!served) return false;
  }
  return true;
}

}  // namespace

std::unique_ptr<const Table> Table::make(const Situation& situation,
                                         const detail::FunctionSite& site, const Table* before,
                                         bool checked) {
  auto to = std::make_unique<Table>();
  for (Candidate& c : candidates(situation, site.group, site.name, site.signature)) {
    auto implementation = reuse(before, *c.hook);
    if (implementation == nullptr) implementation = Implementation::make(c.hook);
    if (c.reason == YARD_REASON_NONE) to->list.push_back(implementation.get());
    const bool partial =
        c.reason == YARD_REASON_NONE && !serves_all(situation, site, c.hook->backend);
    to->entries.push_back(
        {std::move(implementation), c.reason, std::move(c.detail), partial, std::move(c.breaker)});
  }
  to->originals = before != nullptr ? before->originals : std::make_shared<base::Counter>();
  to->strict = situation.snapshot.policy->in_force.strict.value_or(false);
  to->checked = checked;
  to->rows = to->list.data(), to->count = static_cast<uint32_t>(to->list.size());
  to->original = to->originals->id();
  if (const auto& file = situation.snapshot.policy->file; file != nullptr)
    if (const auto& n = file->config.settings.max_fallback_attempts)
      to->fallbacks = static_cast<size_t>(*n);
  to->settle_way();
  return to;
}

void Table::settle_way() const noexcept {
  const auto short_way = [this] {
    if (checked) return false;
    for (const Entry& e : entries)
      if (e.probes() != nullptr || e.implementation->suspect.load()) return false;
    return true;
  };
  plain.store(short_way());
  // Whoever became suspect meanwhile has been overwritten.
  if (plain.load() && !short_way()) plain.store(false);
}

bool Table::same_as(const Table& other) const {
  if (entries.size() != other.entries.size() || list != other.list || strict != other.strict ||
      checked != other.checked || fallbacks != other.fallbacks)
    return false;
  for (size_t i = 0; i < entries.size(); ++i)
    if (entries[i].implementation != other.entries[i].implementation ||
        entries[i].reason != other.entries[i].reason ||
        entries[i].detail != other.entries[i].detail ||
        entries[i].partial != other.entries[i].partial ||
        entries[i].probes() != other.entries[i].probes() ||
        entries[i].breaker_text() != other.entries[i].breaker_text())
      return false;
  return true;
}

const Table* as_table(const detail::FunctionTable* t) noexcept {
  return t != nullptr && t != &detail::kFunctionsOff ? static_cast<const Table*>(t) : nullptr;
}

namespace {

void exchange(detail::FunctionSite& site, const detail::FunctionTable* next) {
  const Table* old = as_table(site.table.exchange(next, std::memory_order_acq_rel));
  if (old == nullptr) return;
  base::reclaimer().retire(const_cast<Table*>(old), [](void* p) { delete static_cast<Table*>(p); },
                           {static_cast<const detail::FunctionTable*>(old)});
}

}  // namespace

void publish(detail::FunctionSite& site, std::unique_ptr<const Table> table) {
  const Table* const made = table.release();
  exchange(site, made != nullptr ? made : &detail::kFunctionsOff);
  // Who became suspect while it was made has told the table before it.
  if (made != nullptr) made->settle_way();
}

void withdraw(detail::FunctionSite& site) { exchange(site, nullptr); }

}  // namespace yard::function
