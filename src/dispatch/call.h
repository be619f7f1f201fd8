// SPDX-License-Identifier: Apache-2.0
// Entry points of calls: from C, by name, with options.
#pragma once

#include "dispatch/core.h"
#include "dispatch/memo.h"
#include "op/bind.h"

namespace yard::dispatch {

// Makes a call without options. Returns null on success. Checks the arguments, and reads no more of
// them than the op has parameters.
Status::Rep* call(Site* site, const Cells& cells);
Status call_with_options(Site& site, const Cells& cells, const Options& options);
// The slow path of both. Makes a plan if needed, but no memo. Options and rollout may be null.
Status resolve_call(Site& site, const Cells& cells, const Options* options,
                    std::shared_ptr<const policy::Rollout> rollout = nullptr);

// Makes a call by name, whose binding the thread remembers. Returns null on success.
Status::Rep* call_named(Core& core, std::string_view op, std::span<const Arg> args);
struct NamedCall {
  Site* site;
  std::shared_ptr<const op::Program> program;  // owns the text of defaults
  op::Arguments arguments;

  Cells cells() const noexcept { return {arguments.values, arguments.count}; }
};
Result<NamedCall> bind_named(Core& core, std::string_view op, std::span<const Arg> args);

inline Cells cells_of(const Site& site, const yard_value_t* args) noexcept {
  return {args, site.count.load(std::memory_order_relaxed), site.typed ? Cells::kAllViews : 0};
}
// Return the YARD_CALL_* flags and the labels that options and scope give a call. Both may be null.
uint32_t call_flags(const Options* o, const ScopeState* scope) noexcept;
op::Labels call_labels(const Options* o, const ScopeState* scope);

// Explains which kernel would serve a call of this thread now, in its scope.
Result<Explanation> explain_call(const Core& core, const FoundOp& op, const Cells& cells,
                                 const Options& o);
Result<Explanation> explain_call(const Core& core, const op::CallSpec& spec, const Options& o);

// Holds arguments whose tensors are copies with facts. Allocates only for long lists.
class WithFacts {
 public:
  // `known` (may be null) are the arguments with facts, if these were computed before.
  explicit WithFacts(const Cells& cells, const yard_value_t* known = nullptr);
  WithFacts(const WithFacts&) = delete;
  WithFacts& operator=(const WithFacts&) = delete;
  const yard_value_t* args() const noexcept { return args_; }

 private:
  const yard_tensor_t* add(const yard_tensor_t* t, bool view);
  void add_list(yard_value_t& v);

  const yard_value_t* args_;
  uint32_t used_ = 0, listed_ = 0;
  yard_value_t values_[YARD_MAX_ARGS];
  yard_tensor_t tensors_[YARD_MAX_ARGS];
  const yard_tensor_t* items_[YARD_MAX_ARGS];
  struct More {
    std::deque<yard_tensor_t> tensors;
    std::deque<std::vector<const yard_tensor_t*>> lists;
  };
  std::unique_ptr<More> more_;  // holds the tensors that do not fit above
  More& more() { return *(more_ != nullptr ? more_ : more_ = std::make_unique<More>()); }
};

}  // namespace yard::dispatch
