// SPDX-License-Identifier: Apache-2.0
#include "dispatch/recent.h"

namespace yard::dispatch {

void Recent::store(const Entry& entry, const yard_value_t* args, const exec::Plan* found,
                   uint64_t seen) noexcept {
  const auto tensors = entry.program().plain_tensors();
  if (tensors.empty() || !entry.recipe().one_word() || entry.recipe().reads_scalars()) return;
  entry_id = 0;
  uint32_t n = 0;
  for (const uint8_t arg : tensors) {
    const yard_tensor_t& t = *args[arg].u.tensor;
    // Strides are not remembered, so they must follow from the sizes.
    if ((t.facts & YARD_FACTS_COMPACT) == 0 || n + 1 + static_cast<uint32_t>(t.ndim) > kWords)
      return;
    words[n++] = t.facts;
    for (int32_t i = 0; i < t.ndim; ++i) words[n++] = static_cast<uint64_t>(t.shape[i]);
  }
  plan = found;
  evictions = seen;
  entry_id = entry.id();
}

RecentCalls& make_recent(base::ThreadRecord& thread) {
  base::set_thread_exit_hook(kThreadLocal, [](void* p) { delete static_cast<RecentCalls*>(p); });
  auto* made = new RecentCalls;
  thread.locals[kThreadLocal] = made;
  return *made;
}

}  // namespace yard::dispatch
