// SPDX-License-Identifier: Apache-2.0
#include "dispatch/recent.h"

namespace yard::dispatch {

using detail::Recent;
using detail::RecentCalls;
using detail::Site;
using detail::TensorForm;

namespace {

constexpr int kThreadLocal = 2;  // our index in ThreadRecord::locals

RecentCalls& make_recent(base::ThreadRecord& thread) {
  base::set_thread_exit_hook(kThreadLocal, [](void* p) { delete static_cast<RecentCalls*>(p); });
  auto* made = new RecentCalls;
  thread.locals[kThreadLocal] = made;
  thread.recent = made;
  return *made;
}

bool store(Recent& last, const Entry& entry, const yard_value_t* args) noexcept {
  const op::Program& program = entry.program();
  const auto tensors = program.plain_tensors();
  if (tensors.empty() || tensors.size() > Recent::kTensors) return false;
  if (program.arg_count() > Recent::kArgs) return false;
  if (entry.recipe().reads_scalars()) return false;
  uint8_t n = 0;
  for (uint32_t i = 0; i < program.arg_count(); ++i) {
    const uint32_t tag = args[i].tag;
    if (tag == YARD_TAG_STRING || tag == YARD_TAG_LIST || tag == YARD_TAG_NONE) return false;
    last.tags[i] = static_cast<uint8_t>(tag);
    if (tag != YARD_TAG_TENSOR) continue;
    // The first is the one that is written: nothing else has to be apart from anything.
    if (n == 0 && tensors[0] != i) return false;
    if (n == Recent::kTensors) return false;
    const yard_tensor_t& t = *args[i].u.tensor;
    const auto rank = static_cast<uint32_t>(t.ndim);
    if ((t.facts & YARD_FACTS_COMPACT) == 0 || rank > TensorForm::kRank || t.data == nullptr)
      return false;
    TensorForm& form = last.forms[n++];
    form.facts = t.facts;
    const uint64_t span = op::span_of(t.facts);
    form.bytes = span < uint64_t{1} << 58 ? span * 64 : ~uint64_t{0};
    for (uint32_t d = 0; d < rank; ++d) form.sizes[d] = t.shape[d];
  }
  last.arg_count = static_cast<uint8_t>(program.arg_count());
  return n == tensors.size();
}

}  // namespace

Recent& recent_place(base::ThreadRecord& thread, uint64_t site_id) {
  return recent(thread.recent != nullptr ? *thread.recent : make_recent(thread), site_id);
}

void remember(Recent& last, const Site& site, uint64_t scope, const Found& f,
              const yard_value_t* args) noexcept {
  const uint64_t found = scope == 0 ? f.entry.generation() : f.overlays;
  if (last.site == site.id && last.scope == scope && last.found == found &&
      (++last.misses & 3) != 0)
    return;
  last.site = 0;
  if (!store(last, f.entry, args)) return;
  last.version = scope == 0 ? &site.core->version(f.entry.contest().family().op->index)
                            : &site.core->overlays_version;
  last.found = found;
  last.entry = &f.entry, last.plan = &f.plan;
  last.evictions = &f.entry.eviction_count(), last.seen = f.evictions;
  last.typed =
      f.plan.direct.load(std::memory_order_relaxed) ? f.plan.attempts[0].kernel->d.typed : nullptr;
  last.host = site.core->host, last.self = f.plan.self, last.counter = f.plan.counter;
  last.flags = f.flags;
  last.misses = 0;
  last.scope = scope;
  last.site = site.id;
}

}  // namespace yard::dispatch
