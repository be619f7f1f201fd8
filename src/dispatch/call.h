// SPDX-License-Identifier: Apache-2.0
// Calls: the hit, and everything that is not one.
#pragma once

#include <yard/options.h>
#include <yard/plugin.h>

#include <deque>
#include <memory>
#include <vector>

#include "dispatch/core.h"

namespace yard::detail {

// A call with arguments of unknown tags (from C, or by name); null when it went well.
Status::Rep* call_packed(Site* site, const yard_value_t* args, uint32_t count);

// Whether the options can be served for this op.
Status check_options(const registry::OpRecord& op_record, const Options& o);
uint32_t call_flags(const Options& o) noexcept;
// Says which kernel a class of calls will use from now on. Once for each kernel: the log counts the rest.
void log_choice(const Entry& entry, uint16_t candidate);
// Those of the call over those of the scope.
op::Labels call_labels(const Options* o, const ScopeState* scope);
// The call as this thread would make it now, in its scope.
op::Call scoped_call(const op::Program& program, const yard_value_t* args, const Options& o);

// Tells the observer of the entry, which has one, of a call that is about to run.
void observe(const Entry& e, const yard_value_t* args, uint32_t flags, const Options* o) noexcept;

// Arguments with the facts of every tensor computed, whatever the caller's say, so that the rest may rely on
// them. Copies tensors, not data; allocates only for long lists. The caller's tensors are not written to.
class WithFacts {
 public:
  // `views`: tensors are those of TensorViews, as in all calls of typed sites.
  WithFacts(const yard_value_t* args, uint32_t count, bool views = false);
  WithFacts(const WithFacts&) = delete;
  WithFacts& operator=(const WithFacts&) = delete;
  const yard_value_t* args() const noexcept { return args_; }

 private:
  static constexpr uint32_t kRoom = 2 * YARD_MAX_ARGS;
  const yard_tensor_t* add(const yard_tensor_t* t, bool view);
  void add_list(yard_value_t& v);
  yard_tensor_t& more_room();

  const yard_value_t* args_;
  uint32_t used_ = 0, listed_ = 0;
  yard_value_t values_[YARD_MAX_ARGS];
  yard_tensor_t tensors_[kRoom];
  const yard_tensor_t* items_[kRoom];
  struct More {
    std::deque<yard_tensor_t> tensors;
    std::deque<std::vector<const yard_tensor_t*>> lists;
  };
  std::unique_ptr<More> more_;  // beyond that
};

}  // namespace yard::detail
