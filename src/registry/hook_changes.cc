// SPDX-License-Identifier: Apache-2.0
// Adding and removing hooks and implementations of dispatched functions, as parts of a change.
#include <fmt/format.h>

#include "registry/changes.h"
#include "registry/declarations.h"

namespace yard::registry {
namespace {

std::string title(const Hook& h) {
  return h.group.empty() ? fmt::format("hook '{}'", h.name)
                         : fmt::format("function '{}' of group '{}'", h.name, h.group);
}

Status conflict(std::string message) { return Status(Code::kConflict, std::move(message)); }

// An error if `declared`, the declarations of its name, has none of its signature.
template <class Declarations>
Status check_signature(std::string_view what, const Hook& h, const Declarations& declared) {
  for (const auto* d : declared)
    if (d->signature == h.signature) return {};
  if (declared.empty()) return {};
  return conflict(
      fmt::format("{} of backend '{}' has another signature than its declaration\n"
                  "  declared: {}\n  provided: {}",
                  what, h.backend, declared[0]->signature, h.signature));
}

Status check_function(const Hook& h) {
  return check_signature(fmt::format("function '{}/{}'", h.group, h.name), h,
                         function_sites(h.group, h.name));
}

// Compared with what the program declares and other backends provide under its name.
Status check_hook(const State& state, const Hook& hook) {
  const auto declared = declared_hooks(hook.name);
  YARD_RETURN_IF_ERROR(check_signature(title(hook), hook, declared));
  const Hook* other = nullptr;
  for (const auto& h : state.hooks) {
    if (h->name != hook.name) continue;
    other = h.get();
    if (h->signature != hook.signature && declared.empty())
      return conflict(
          fmt::format("hook '{}' of backend '{}' has another signature than that of backend '{}'\n"
                      "  known: {}\n  new:   {}",
                      hook.name, hook.backend, h->backend, h->signature, hook.signature));
  }
  // An unknown name is accepted even if the hook may only override: its declaration may come later. Until then it is
  // listed as undeclared and never called.
  const bool only_adds = (hook.d.flags & (YARD_HOOK_ADDS | YARD_HOOK_OVERRIDES)) == YARD_HOOK_ADDS;
  if (!only_adds || (declared.empty() && other == nullptr)) return {};
  return conflict(fmt::format(
      "hook '{}' of backend '{}' may only add a name, and this one {}; overriding is another "
      "permission",
      hook.name, hook.backend,
      other != nullptr ? fmt::format("is provided by backend '{}'", other->backend)
                       : "is declared by the program"));
}

}  // namespace

Status add_hook(State& state, const std::shared_ptr<Hook>& hook) {
  auto& list = hook->group.empty() ? state.hooks : state.functions;
  for (const auto& h : list) {
    if (h->name != hook->name || h->group != hook->group || h->backend != hook->backend) continue;
    if (same(*h, *hook)) return {};
    return conflict(fmt::format("{} is provided by backend '{}' already, and differs: {}",
                                title(*hook), hook->backend, difference(*h, *hook)));
  }
  YARD_RETURN_IF_ERROR(hook->group.empty() ? check_hook(state, *hook) : check_function(*hook));
  list.push_back(hook);
  return {};
}

void remove_hooks(State& state, std::vector<std::shared_ptr<const void>>& removed,
                  const std::function<bool(const Hook&)>& goes) {
  for (auto* list : {&state.hooks, &state.functions})
    std::erase_if(*list, [&](const std::shared_ptr<const Hook>& h) {
      if (!goes(*h)) return false;
      removed.push_back(h);
      return true;
    });
}

}  // namespace yard::registry
