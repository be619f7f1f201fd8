// SPDX-License-Identifier: Apache-2.0
// States of kernels that have create(). They belong to an instance of an op, or to the plain calls of a runtime, one for
// each combination of values of the fields that the kernel names. A state is destroyed when it is neither among the last
// kKept nor used by a call. The states of a runtime together hold a bounded number of bytes: a state that would exceed the
// bound is destroyed at once, and its kernel declines the call.
#pragma once

#include <yard/call_spec.h>
#include <yard/plugin.h>

#include <functional>
#include <list>
#include <span>

#include "base/mutex.h"
#include "op/program.h"
#include "registry/changes.h"
#include "registry/records.h"

namespace yard::exec {

struct CallFrame;
struct State;
using Weights = std::vector<std::pair<std::string, TensorView>>;

// A value that owns its text.
struct OwnedValue {
  std::string name, text;
  yard_value_t value;
};

// What all states of one runtime share.
struct StateBudget {
  static constexpr uint64_t kMostBytes = uint64_t{4} << 30;

  // Returns the registry as calls see it now. Without it all kernels are registered.
  std::function<std::shared_ptr<const registry::State>()> registry;
  std::atomic<uint64_t> most_bytes{kMostBytes};
  std::atomic<uint64_t> states{0}, bytes{0};  // that exist in this process

  // Whether there is room for so many bytes beside those that are held.
  bool fits(uint64_t wanted, uint64_t held) const noexcept {
    return wanted <= most_bytes && held <= most_bytes - wanted;
  }
  // Counts a state. Returns false, and counts nothing, if it does not fit.
  bool take(uint64_t wanted) noexcept;

 private:
  const base::InChild in_child_{[this] { states = bytes = 0; }};
};

// What a call needs a state for.
struct StateRequest {
  std::shared_ptr<const registry::Kernel> kernel;
  const op::Program& program;
  CallFrame& frame;
  const yard_value_t* args;
  std::span<const yard_value_t> own;  // the arguments in the kernel's order
};

class States {
 public:
  static constexpr size_t kKept = 64;

  // Without a budget all kernels are registered for as long as this lives, and bytes are not bounded.
  explicit States(std::shared_ptr<StateBudget> budget = nullptr) : budget_(std::move(budget)) {}
  States(const States&) = delete;
  States& operator=(const States&) = delete;

  // Before the first call.
  void set_options(std::vector<OwnedValue> options) { options_ = std::move(options); }
  // Named tensors, borrowed. Drops the cached states: the next call creates new ones.
  void set_weights(Weights weights);
  bool has_weights() const noexcept { return has_weights_.load(std::memory_order_relaxed); }

  // The state for this call, created if needed with the frame's call as context. Null after a failure, if the state was made
  // from other weights than the call passes, or if it would exceed the bound. Then `code` and the frame's message say why.
  std::shared_ptr<void> find(const StateRequest& request, int32_t& code);

  // Drops states whose kernels are no longer registered. After each change, holding no lock.
  void drop_removed();
  struct Held {
    size_t states = 0;
    uint64_t bytes = 0;
  };
  Held held() const;  // by the cache

 private:
  struct Kept {
    const registry::Kernel* kernel;
    std::vector<int64_t> key;
    std::shared_ptr<State> state;  // null if it did not fit into the budget
    uint64_t bytes;
  };
  std::shared_ptr<State> find_or_make(const StateRequest& request, int32_t& code);
  std::shared_ptr<State> make(const StateRequest& request, int32_t& code);
  // Under the lock. Makes it the first one.
  Kept* find_kept(const registry::Kernel& kernel, const std::vector<int64_t>& key);

  const std::shared_ptr<StateBudget> budget_;
  std::vector<OwnedValue> options_;
  std::atomic<bool> has_weights_{false};
  mutable base::Mutex lock_{base::Rank::kStates};
  // Under the lock.
  std::list<Kept> kept_;  // most recently used first
  std::shared_ptr<const Weights> weights_ = std::make_shared<Weights>();
  // The states of its parent stay as they are: they may depend on threads that the child does not have.
  const base::InChild in_child_{[this] { new std::list<Kept>(std::move(kept_)); }};
};

// The options that a kernel is created with, in the order of its schema, with defaults. An error names the option.
Result<std::vector<yard_named_value_t>> kernel_options(const registry::Kernel& kernel,
                                                       const std::vector<OwnedValue>& given);

// An error names a weight that the kernel does not declare, or one that it needs. One that declares none takes all.
Status check_weights(const registry::Kernel& kernel, const Weights& given);

}  // namespace yard::exec
