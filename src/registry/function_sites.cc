// SPDX-License-Identifier: Apache-2.0
#include "registry/function_sites.h"

#include <fmt/format.h>

namespace yard::registry {

using detail::FunctionSite;

namespace {
std::atomic<FunctionSite*> g_sites{nullptr};
}  // namespace

std::vector<FunctionSite*> all_function_sites() {
  std::vector<FunctionSite*> to;
  for (FunctionSite* s = g_sites.load(std::memory_order_acquire); s != nullptr; s = s->next)
    to.push_back(s);
  return to;
}

std::vector<FunctionSite*> function_sites() {
  std::vector<FunctionSite*> to = all_function_sites();
  std::erase_if(
      to, [](const FunctionSite* s) { return s->declared.load(std::memory_order_acquire) <= 0; });
  return to;
}

std::vector<FunctionSite*> function_sites(std::string_view group, std::string_view name) {
  std::vector<FunctionSite*> to = function_sites();
  std::erase_if(to, [&](const FunctionSite* s) { return s->group != group || s->name != name; });
  return to;
}

Status check_function(const Hook& h) {
  const auto declared = function_sites(h.group, h.name);
  for (const FunctionSite* s : declared)
    if (s->signature == h.signature) return {};
  if (declared.empty()) return {};
  return Status(Code::kConflict,
                fmt::format("function '{}/{}' of backend '{}' has another signature than its "
                            "declaration\n  declared: {}\n  provided: {}",
                            h.group, h.name, h.backend, declared[0]->signature, h.signature));
}

}  // namespace yard::registry

namespace yard::detail {

namespace {
void put_samples(FunctionSite& site, const FunctionDeclaration& d) noexcept {
  if (d.samples == nullptr) return;
  site.take_samples.store(d.take_samples, std::memory_order_relaxed);
  site.samples.store(d.samples, std::memory_order_release);
}
}  // namespace

FunctionSite* declare_function(const FunctionDeclaration& d) noexcept {
  static std::atomic<uint64_t> last_id{0};
  auto* made = new FunctionSite;
  made->group = d.group != nullptr ? d.group : "", made->name = d.name != nullptr ? d.name : "";
  made->signature = d.signature;
  made->point = d.choice != nullptr ? d.choice : made->group + "/" + made->name;
  made->repeatable = d.repeatable;
  put_samples(*made, d);
  const FunctionSite* seen = nullptr;
  for (;;) {
    FunctionSite* head = registry::g_sites.load(std::memory_order_acquire);
    for (FunctionSite* s = head; s != seen; s = s->next)
      if (s->group == made->group && s->name == made->name && s->signature == made->signature &&
          s->point == made->point && s->repeatable == made->repeatable) {
        delete made;
        put_samples(*s, d);
        s->declared.fetch_add(1, std::memory_order_acq_rel);
        return s;
      }
    seen = head;
    made->id = last_id.fetch_add(1, std::memory_order_relaxed) + 1;
    made->declared.store(1, std::memory_order_relaxed);
    made->next = head;
    if (registry::g_sites.compare_exchange_strong(head, made, std::memory_order_acq_rel))
      return made;
  }
}

void undeclare_function(FunctionSite* site) noexcept {
  // They may be of a library that goes with this object.
  site->samples.store(nullptr, std::memory_order_release);
  site->declared.fetch_sub(1, std::memory_order_acq_rel);
}

}  // namespace yard::detail
