// SPDX-License-Identifier: Apache-2.0
#include "registry/hook_declarations.h"

namespace yard::registry {
namespace {

std::atomic<HookDeclaration*> g_declarations{nullptr};

struct Name {
  std::string text;
  uint32_t number = 0;
  Name* next = nullptr;
};
std::atomic<Name*> g_backends{nullptr};

// The item that `is_it`, or the one that `make` makes. Items stay for ever.
template <class T, class Is, class Make>
T* find_or_add(std::atomic<T*>& list, const Is& is_it, const Make& make) {
  T* seen = nullptr;
  T* made = nullptr;
  for (;;) {
    T* head = list.load(std::memory_order_acquire);
    for (T* i = head; i != seen; i = i->next)
      if (is_it(*i)) {
        delete made;
        return i;
      }
    seen = head;
    if (made == nullptr) made = make();
    made->next = head;
    if constexpr (requires { made->number; }) made->number = head != nullptr ? head->number + 1 : 1;
    if (list.compare_exchange_strong(head, made, std::memory_order_acq_rel)) return made;
  }
}

}  // namespace

std::vector<const HookDeclaration*> declared_hooks() {
  std::vector<const HookDeclaration*> to;
  for (const HookDeclaration* d = g_declarations.load(std::memory_order_acquire); d; d = d->next)
    if (d->hooks.load(std::memory_order_acquire) > 0) to.push_back(d);
  return to;
}

std::vector<const HookDeclaration*> declared_hooks(std::string_view name) {
  std::vector<const HookDeclaration*> to = declared_hooks();
  std::erase_if(to, [&](const HookDeclaration* d) { return d->name != name; });
  return to;
}

uint32_t backend_number(std::string_view name) {
  return find_or_add(
             g_backends, [&](const Name& n) { return n.text == name; },
             [&] {
               auto* n = new Name;
               n->text = name;
               return n;
             })
      ->number;
}

}  // namespace yard::registry

namespace yard::detail {

const HookDeclaration* declare_hook(const char* given, const char* signature) noexcept {
  const std::string_view name = given != nullptr ? given : "";
  HookDeclaration* d = registry::find_or_add(
      registry::g_declarations,
      [&](const HookDeclaration& x) { return x.name == name && x.signature == signature; },
      [&] {
        auto* made = new HookDeclaration;
        made->name = name, made->signature = signature;
        return made;
      });
  d->hooks.fetch_add(1, std::memory_order_acq_rel);
  return d;
}

void undeclare_hook(const HookDeclaration* d) noexcept {
  const_cast<HookDeclaration*>(d)->hooks.fetch_sub(1, std::memory_order_acq_rel);
}

const char* name_of(const HookDeclaration* d) noexcept { return d->name.c_str(); }

}  // namespace yard::detail
