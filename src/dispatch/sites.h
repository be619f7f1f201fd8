// SPDX-License-Identifier: Apache-2.0
// Ops as callers know them: by name, with whatever must be loaded for them first.
#pragma once

#include <yard/detail/memo.h>

#include "base/append_list.h"
#include "dispatch/published.h"
#include "op/program.h"
#include "registry/changes.h"

namespace yard::dispatch {

// The letters of a site that is called with packed arguments, whose tags each call checks.
inline constexpr std::string_view kPackedLetters = "*";

// An op and the snapshot that owns its record.
struct FoundOp {
  std::shared_ptr<const Snapshot> snapshot;
  const registry::OpRecord* record;

  const std::shared_ptr<Entry>& entry() const { return snapshot->entries[record->op->index]; }
};

class Sites {
 public:
  explicit Sites(Core& core) : core_(core) {}
  Sites(const Sites&) = delete;
  Sites& operator=(const Sites&) = delete;

  // The site of calls of an op with a signature (yard/detail/params.h), or kPackedLetters. Null after an error, which is
  // left in `why`. Lives as long as the core. This and the next functions: outside of guards, holding no lock.
  Site* attach(std::string_view name, std::string_view letters, Status* why);
  // Finds the op of a site again after it was removed; it may have other parameters now, if the site is packed.
  Status attach_again(Site& site);
  // An op by name, loaded if need be. The error of an unknown name suggests others.
  Result<FoundOp> find(std::string_view name) const;

  // An op is asked for by name: plugins that offer it are loaded, the first time and while it is not known (`op_record`
  // is null). True if the caller must look it up again.
  bool first_need(std::string_view op, const registry::OpRecord* op_record) const;
  // Whether first_need() has been called for an op that is known.
  bool in_use(std::string_view op) const;
  // As if first_need() had not been called for the first `count` indices.
  void forget_needed(uint32_t count);
  // The error for a name that no op has: with the most similar name, and plugins that were refused and offer it.
  Status unknown_op(const registry::State& state, std::string_view name) const;

 private:
  struct OfIndex {
    std::atomic<Site*> packed{nullptr};  // the site of calls by name and from C
    std::atomic<bool> needed{false};     // see first_need()
  };

  Core& core_;
  // Not inline: what every call reads stays near the beginning of the core.
  const std::unique_ptr<ByIndex<OfIndex>> by_index_ = std::make_unique<ByIndex<OfIndex>>();
  base::OwnedAppendList<Site> sites_;
};

}  // namespace yard::dispatch
