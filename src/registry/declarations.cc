// SPDX-License-Identifier: Apache-2.0
#include "registry/declarations.h"

#include <memory>

#include "base/append_list.h"

namespace yard::registry {

using detail::FunctionSite;

namespace {

constinit base::AppendList<HookDeclaration> g_hooks;
constinit base::AppendList<FunctionSite> g_functions;
constinit base::InternedTexts g_backend_numbers;

template <class To, class T>
std::vector<To*> items(const base::AppendList<T>& list, bool only_declared) {
  std::vector<To*> to;
  for (T& i : list)
    if (!only_declared || i.declared.load(std::memory_order_acquire) > 0) to.push_back(&i);
  return to;
}

}  // namespace

std::vector<const HookDeclaration*> declared_hooks() {
  return items<const HookDeclaration>(g_hooks, true);
}

std::vector<const HookDeclaration*> declared_hooks(std::string_view name) {
  std::vector<const HookDeclaration*> to = declared_hooks();
  std::erase_if(to, [&](const HookDeclaration* d) { return d->name != name; });
  return to;
}

uint32_t backend_number(std::string_view name) {
  return g_backend_numbers.intern(name)->number + 1;
}

std::vector<FunctionSite*> all_function_sites() { return items<FunctionSite>(g_functions, false); }
std::vector<FunctionSite*> function_sites() { return items<FunctionSite>(g_functions, true); }

std::vector<FunctionSite*> function_sites(std::string_view group, std::string_view name) {
  std::vector<FunctionSite*> to = function_sites();
  std::erase_if(to, [&](const FunctionSite* s) { return s->group != group || s->name != name; });
  return to;
}

}  // namespace yard::registry

namespace yard::detail {

const HookDeclaration* declare_hook(const char* name, const char* signature) noexcept {
  auto made = std::make_unique<HookDeclaration>();
  made->name = name != nullptr ? name : "", made->signature = signature;
  HookDeclaration& d = registry::g_hooks.find_or_append(
      std::move(made),
      [](const auto& a, const auto& b) { return a.name == b.name && a.signature == b.signature; });
  d.declared.fetch_add(1, std::memory_order_acq_rel);
  return &d;
}

void undeclare_hook(const HookDeclaration* d) noexcept {
  const_cast<HookDeclaration*>(d)->declared.fetch_sub(1, std::memory_order_acq_rel);
}

const char* name_of(const HookDeclaration* d) noexcept { return d->name.c_str(); }

FunctionSite* declare_function(const FunctionDeclaration& d) noexcept {
  auto made = std::make_unique<FunctionSite>();
  made->group = d.group != nullptr ? d.group : "", made->name = d.name != nullptr ? d.name : "";
  made->signature = d.signature;
  made->repeatable = d.repeatable;
  made->id = 1;
  FunctionSite* site =
      &registry::g_functions.find_or_append(std::move(made), [](const auto& a, auto& b) {
        b.id = a.id + 1;
        return a.group == b.group && a.name == b.name && a.signature == b.signature &&
               a.repeatable == b.repeatable;
      });
  if (d.samples != nullptr) {
    site->take_samples.store(d.take_samples, std::memory_order_relaxed);
    site->samples.store(d.samples, std::memory_order_release);
  }
  site->declared.fetch_add(1, std::memory_order_acq_rel);
  return site;
}

void undeclare_function(FunctionSite* site) noexcept {
  // The samples may be code of a library that is unloaded with this object.
  site->samples.store(nullptr, std::memory_order_release);
  site->declared.fetch_sub(1, std::memory_order_acq_rel);
}

}  // namespace yard::detail
