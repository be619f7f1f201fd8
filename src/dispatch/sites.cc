// SPDX-License-Identifier: Apache-2.0
// Ops as callers know them: by name, with whatever must be loaded for them first.
#include <fmt/format.h>

#include "base/text.h"
#include "dispatch/core.h"
#include "dispatch/signature.h"

namespace yard::detail {

bool Core::first_need(std::string_view op, const registry::OpRecord* op_record) const {
  if (loader == nullptr) return false;
  std::atomic<bool>* needed =
      op_record != nullptr ? &of_index(op_record->op->index).needed : nullptr;
  if (needed != nullptr && needed->load(std::memory_order_acquire)) return false;
  if (select::inside_select()) return false;  // where nothing may be published
  if (!loader->need(PluginOffer::kOp, op)) return false;
  if (needed != nullptr) needed->store(true, std::memory_order_release);
  return true;
}

bool Core::in_use(std::string_view op) const {
  const auto s = snapshot();
  const registry::OpRecord* op_record = s->state->find(op);
  return op_record != nullptr &&
         of_index(op_record->op->index).needed.load(std::memory_order_acquire);
}

Status Core::unknown_op(const registry::State& state, std::string_view name) const {
  std::vector<std::string> names;
  for (const auto& [n, f] : state.op_records) names.push_back(n);
  Status s(Code::kUnknownOp,
           fmt::format("op '{}' is not known{}", name, base::did_you_mean(name, names)));
  if (loader != nullptr)
    for (std::string& line : loader->refused_for(PluginOffer::kOp, name)) s.note(std::move(line));
  return s;
}

namespace {

// How many tensors there are, if no other parameter comes before one and none is optional; else 0.
uint8_t leading_tensors(const op::Schema& schema) {
  size_t n = 0;
  while (n < schema.params.size() && schema.params[n].is_tensor() && !schema.params[n].optional)
    ++n;
  for (size_t i = n; i < schema.params.size(); ++i)
    if (schema.params[i].is_tensor()) return 0;
  return static_cast<uint8_t>(n);
}

void aim(Site& site, uint32_t index, uint32_t count, uint8_t leading) noexcept {
  site.count.store(count, std::memory_order_relaxed);
  site.leading.store(leading, std::memory_order_relaxed);
  site.index.store(index, std::memory_order_release);
}

}  // namespace

// A packed op may come back with another schema.
Status Core::attach_again(Site& site) {
  Status why;
  const Site* again = attach(site.name, site.letters, &why);
  if (again == nullptr) return why;
  if (again != &site)
    aim(site, again->index.load(std::memory_order_acquire),
        again->count.load(std::memory_order_relaxed),
        again->leading.load(std::memory_order_relaxed));
  return {};
}

Site* Core::attach(std::string_view name, std::string_view letters, Status* why) {
  auto s = snapshot();
  const registry::OpRecord* op_record = s->state->find(name);
  if (first_need(name, op_record)) {
    s = snapshot();
    op_record = s->state->find(name);
  }
  if (op_record == nullptr) {
    *why = unknown_op(*s->state, name);
    return nullptr;
  }
  if (letters != kPacked) {
    *why = dispatch::check_signature(*op_record->op->program, letters);
    if (!why->ok()) return nullptr;
  }
  // An index belongs to one schema for ever, a site to a name.
  std::atomic<Site*>* packed =
      letters == kPacked ? &of_index(op_record->op->index).packed : nullptr;
  Site* found = packed != nullptr ? packed->load(std::memory_order_acquire) : nullptr;
  if (found == nullptr)
    for (found = sites_.load(std::memory_order_acquire);
         found != nullptr && (found->name != name || found->letters != letters);)
      found = found->next;
  const uint32_t count = op_record->op->program->arg_count();
  const uint8_t leading = leading_tensors(op_record->op->program->schema());
  if (found != nullptr) {
    aim(*found, op_record->op->index, count, leading);
    if (packed != nullptr) packed->store(found, std::memory_order_release);
    return found;
  }
  // Two threads may make one each; both serve.
  static std::atomic<uint64_t> last_id{0};
  auto* site = new Site{this,
                        last_id.fetch_add(1, std::memory_order_relaxed) + 1,
                        {op_record->op->index},
                        {count},
                        {leading},
                        letters != kPacked,
                        std::string(name),
                        std::string(letters)};
  site->next = sites_.load(std::memory_order_relaxed);
  while (!sites_.compare_exchange_weak(site->next, site, std::memory_order_release)) {
  }
  if (packed != nullptr) packed->store(site, std::memory_order_release);
  return site;
}

}  // namespace yard::detail
