// SPDX-License-Identifier: Apache-2.0
// Ops as callers know them: by name, with whatever must be loaded for them first.
#pragma once

#include <yard/detail/memo.h>

#include "dispatch/published.h"

namespace yard::dispatch {

// The letters of a site that is called with packed arguments, whose tags each call checks.
inline constexpr std::string_view kPackedLetters = "*";

// An op, and the snapshot that owns its record.
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
  // Returns the site of calls of an op with a signature (yard/detail/params.h), or kPackedLetters.
  // It lives as long as the core. After an error, which is left in `why`, returns null.
  Site* attach(std::string_view name, std::string_view letters, Status* why);
  // Finds the op of a site again after it was removed. A packed site may get other parameters.
  Status attach_again(Site& site);
  // Finds an op by name, and loads it if need be.
  Result<FoundOp> find(std::string_view name) const;

  // Loads the plugins that offer an op, the first time and while it is not known (`op_record` is
  // null). Returns true if the caller must look the op up again.
  bool first_need(std::string_view op, const registry::OpRecord* op_record) const;
  // Whether first_need() has been called for an op that is known.
  bool in_use(std::string_view op) const;
  // Forgets calls of first_need() for the first `count` indices.
  void forget_needed(uint32_t count);
  // The error for an unknown op, with the most similar name and refused plugins that offer it.
  Status unknown_op(const registry::State& state, std::string_view name) const;

 private:
  struct OfIndex {
    std::atomic<Site*> packed{nullptr};  // the site of calls by name and from C
    std::atomic<bool> needed{false};     // by first_need()
  };

  Core& core_;
  // Not inline: what every call reads stays near the beginning of the core.
  const std::unique_ptr<ByIndex<OfIndex>> by_index_ = std::make_unique<ByIndex<OfIndex>>();
  base::OwnedAppendList<Site> sites_;
};

}  // namespace yard::dispatch
