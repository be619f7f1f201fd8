// SPDX-License-Identifier: Apache-2.0
#include "exec/plan.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace yard::exec {

Plan::Ptr Plan::make(uint64_t hash, std::span<const uint64_t> key,
                     std::span<const Attempt> attempts) {
  void* memory = ::operator new(sizeof(Plan) + key.size_bytes());
  Ptr plan(new (memory) Plan);
  plan->hash = hash;
  plan->key_words = static_cast<uint16_t>(key.size());
  if (!key.empty()) std::memcpy(static_cast<void*>(plan.get() + 1), key.data(), key.size_bytes());
  plan->attempt_count = static_cast<uint8_t>(std::min(attempts.size(), kMaxAttempts));
  plan->tries = plan->attempt_count;
  std::copy_n(attempts.begin(), plan->attempt_count, plan->attempts);
  std::fill_n(plan->modes, kMaxAttempts, Mode::kDynamic);
  const registry::Kernel& first = *attempts[0].kernel;
  plan->run = first.d.run;
  plan->self = first.d.self;
  const bool in_order = first.d.create == nullptr && (first.map == nullptr || first.map->in_order);
  plan->direct = in_order && first.d.workspace == nullptr;
  plan->only_workspace = in_order && first.d.workspace != nullptr;
  return plan;
}

}  // namespace yard::exec
