// SPDX-License-Identifier: Apache-2.0
// What a thread called last, as the library and the inline part of a typed call share it. Not for direct
// use.
//
// Layers of a model call an op on the same shapes again and again. A call whose tensors have the facts and
// sizes of the one before needs no check of its schema and no key, only its memory looked at: its form
// was found to fit and its plan is known. A memo belongs to its thread, owns nothing, and is believed only
// when the op's version is still the one it was made under. A call of another form just takes the longer
// way, through the library.
#pragma once

#include <yard/detail/guard.h>
#include <yard/plugin.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace yard::detail {

class Core;

// An op of a runtime as one caller calls it: by a checked C++ signature, or packed. Lives as long as its
// core; found again after fork.
struct Site {
  Core* core;
  uint64_t id;                  // no other site of the process has or had it
  std::atomic<uint32_t> index;  // of the op in snapshots
  uint32_t count;               // arguments
  bool typed;                   // the signature was checked: tags need no look
  std::string name, letters;
  Site* next = nullptr;
};

// A tensor's form. Compact, so its strides follow from its sizes.
struct TensorForm {
  static constexpr uint32_t kRank = 4;
  uint64_t facts;
  uint64_t bytes;  // at least what the tensor spans
  int64_t sizes[kRank];

  bool is_of(const yard_tensor_t& t) const noexcept {
    if (t.facts != facts) return false;
    const uint64_t rank = (facts & YARD_FACTS_RANK) >> YARD_FACTS_RANK_SHIFT;
    const int64_t* const s = t.shape;
    // Most are of rank 2 or 1.
    if (rank == 2) return ((s[0] ^ sizes[0]) | (s[1] ^ sizes[1])) == 0;
    if (rank == 1) return s[0] == sizes[0];
    return rank == 0 || (((s[0] ^ sizes[0]) | (s[1] ^ sizes[1]) | (s[2] ^ sizes[2])) == 0 &&
                         (rank == 3 || s[3] == sizes[3]));
  }
};

inline uint64_t address_of(const yard_tensor_t& t) noexcept {
  return reinterpret_cast<uintptr_t>(t.data) + t.byte_offset;
}
// Whether byte ranges surely do not meet.
inline bool apart(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) noexcept {
  return b - a >= a_bytes && a - b >= b_bytes;
}

// The last plain call of a site, with nothing aliased and every tensor's data there.
struct alignas(64) Recent {
  static constexpr uint32_t kTensors = 6, kArgs = 15;

  uint64_t site = 0;   // its id; 0: nothing yet
  uint64_t scope = 0;  // the thread's scope
  // Where the version of the op stands, and what it was. Read only when the site is the right one.
  const std::atomic<uint64_t>* version = nullptr;
  uint64_t found = 0;
  const void* entry = nullptr;  // of the op; keeps the plan while it is held
  const void* plan = nullptr;
  // Of the entry: the plan has not been let go since. Read while the entry is held.
  const std::atomic<uint64_t>* evictions = nullptr;
  uint64_t seen = 0;
  void (*typed)(void) = nullptr;  // null: the kernel must be called packed
  const yard_host_t* host = nullptr;
  void* self = nullptr;
  uint32_t counter = 0;
  uint32_t flags = 0;   // of the call, as the scope has them
  uint32_t misses = 0;  // calls of other forms since it was stored
  uint8_t arg_count = 0;
  uint8_t tags[kArgs] = {};    // of the arguments
  TensorForm forms[kTensors];  // in order; the first is the only one that is written

  // Whether the thread's memo may be used: the tensors, in order, are of its form.
  template <class... T>
  bool is_of(uint64_t site_id, uint64_t scope_id, const yard_tensor_t* out,
             const T*... in) const noexcept {
    if (site != site_id || scope != scope_id) return false;
    [[maybe_unused]] const uint64_t at = address_of(*out);
    const TensorForm* f = forms;
    if (out->data == nullptr || !f->is_of(*out)) return false;
    return (... && (++f, in->data != nullptr && f->is_of(*in) &&
                             apart(at, forms->bytes, address_of(*in), f->bytes)));
  }

  // The same for a packed call. Everything is looked at: nothing is known of its cells.
  bool is_of(uint64_t site_id, uint64_t scope_id, const yard_value_t* args,
             uint32_t count) const noexcept {
    if (site != site_id || scope != scope_id || count != arg_count) return false;
    const TensorForm* f = forms;
    uint64_t at = 0;
    for (uint32_t i = 0; i < count; ++i) {
      if (args[i].tag != tags[i]) return false;
      if (tags[i] != YARD_TAG_TENSOR) continue;
      const yard_tensor_t* t = args[i].u.tensor;
      if (t == nullptr || t->data == nullptr || !f->is_of(*t)) return false;
      if (f == forms)
        at = address_of(*t);
      else if (!apart(at, forms->bytes, address_of(*t), f->bytes))
        return false;
      ++f;
    }
    return true;
  }

  // Whether what it holds is current. The guard has announced the entry.
  bool is_current() const noexcept {
    return version->load(kReread) == found && evictions->load(kReread) == seen;
  }
};

// A thread's memos, by site.
struct RecentCalls {
  static constexpr uint32_t kSites = 64;
  Recent of[kSites];
};
inline Recent& recent(RecentCalls& calls, uint64_t site_id) noexcept {
  return calls.of[site_id % RecentCalls::kSites];
}

}  // namespace yard::detail
