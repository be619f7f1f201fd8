// SPDX-License-Identifier: Apache-2.0
// Ops as callers know them: by name. Finding an op loads the plugins that offer it.
#pragma once

#include <yard/detail/memo.h>

#include "dispatch/published.h"

namespace yard::dispatch {

// The letters of a site that is called with packed arguments, whose tags each call checks.
inline constexpr std::string_view kPackedLetters = "*";

struct FoundOp {
  std::shared_ptr<const Snapshot> snapshot;
  const registry::OpRecord* record;

  const std::shared_ptr<Entry>& entry() const { return snapshot->entries[record->op->index]; }
};

class Sites {
 public:
  explicit Sites(Core& core) : core_(core) {}

  // The caller of these functions is outside of guards and holds no lock.
  //
  // Returns the site for calls of an op with a signature (yard/detail/params.h) or with
  // kPackedLetters. The site lives as long as the core. On error, sets `why` and returns null.
  Site* attach(std::string_view name, std::string_view letters, Status* why);
  // A packed site may get other parameters if its op comes back.
  Status attach_again(Site& site);
  Result<FoundOp> find(std::string_view name) const;

  // Loads the plugins that offer an op. Does so once for a known op, and each time for an unknown
  // op (`op_record` is null). Returns true if the caller must look the op up again.
  bool first_need(std::string_view op, const registry::OpRecord* op_record) const;
  bool in_use(std::string_view op) const;
  // Forgets calls of first_need() for the first `count` indices.
  void forget_needed(uint32_t count);
  // The error names the most similar op and the refused plugins that offer the op.
  Status unknown_op(const registry::State& state, std::string_view name) const;

 private:
  struct OfIndex {
    std::atomic<Site*> packed{nullptr};  // the site of calls by name and from C
    std::atomic<bool> needed{false};     // first_need() was called
  };

  Core& core_;
  // On the heap, so that the fields that every call reads stay near the beginning of the core.
  const std::unique_ptr<ByIndex<OfIndex>> by_index_ = std::make_unique<ByIndex<OfIndex>>();
  base::OwnedAppendList<Site> sites_;
};

}  // namespace yard::dispatch
