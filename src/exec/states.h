// SPDX-License-Identifier: Apache-2.0
// States of kernels that have create(). They belong to an instance of an op, or to the plain calls of a runtime, one for
// each combination of values of the fields that the kernel names. A state is destroyed when it is neither among the last
// kKept nor used by a call, on a thread of its own (base/tasks.h). The states of a runtime together hold a bounded number of
// bytes: a state that would exceed the bound is destroyed again, and its kernel declines the call.
#pragma once

#include <yard/call_spec.h>

#include <functional>
#include <list>
#include <span>

#include "base/mutex.h"
#include "op/program.h"
#include "registry/changes.h"

namespace yard::exec {

struct CallFrame;
struct State;
using Weights = std::vector<std::pair<std::string, TensorView>>;

struct OwnedValue {
  std::string name, text;
  yard_value_t value;
};

// Shared by all states of one runtime.
struct StateBudget {
  static constexpr uint64_t kMostBytes = uint64_t{4} << 30;

  // Returns the registry as calls see it now.
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

// A call that needs a state.
struct StateRequest {
  const registry::Kernel& kernel;
  const op::Program& program;
  CallFrame& frame;
  const yard_value_t* args;
  std::span<const yard_value_t> own;  // the arguments in the kernel's order
};

class States {
 public:
  static constexpr size_t kKept = 64;

  // Without a budget bytes are not bounded, and kernels stay registered for as long as this lives.
  explicit States(std::shared_ptr<StateBudget> budget = nullptr) : budget_(std::move(budget)) {}
  ~States();
  States& operator=(States&&) = delete;

  // Before the first call.
  void set_options(std::vector<OwnedValue> options) { options_ = std::move(options); }
  // Named tensors, borrowed. Drops the cached states: the next call creates new ones.
  void set_weights(Weights weights);
  bool has_weights() const noexcept { return has_weights_.load(std::memory_order_relaxed); }

  // Finds the state for this call, or creates it with the frame's call as context. Declines if the state was made from other
  // weights than the call passes, or if it would exceed the bound. The frame gets the message of a failure.
  int32_t find(const StateRequest& request, std::shared_ptr<void>& to);

  // Drops states whose kernels are no longer registered. For after each change. The caller holds no lock.
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
  int32_t find_or_make(const StateRequest& request, std::shared_ptr<State>& to);
  int32_t make(const StateRequest& request, std::shared_ptr<State>& to);
  // Under the lock. Makes it the first one.
  Kept* find_kept(const registry::Kernel& kernel, const std::vector<int64_t>& key);

  const std::shared_ptr<StateBudget> budget_;
  std::vector<OwnedValue> options_;
  std::atomic<bool> has_weights_{false};
  mutable base::Mutex lock_{base::Rank::kStates};
  // Under the lock.
  std::list<Kept> kept_;  // most recently used first
  std::shared_ptr<const Weights> weights_ = std::make_shared<Weights>();
  // A child leaves the states of its parent as they are: they may depend on threads that the child does not have.
  const base::InChild in_child_{[this] { std::construct_at(&kept_); }};
};

// The options that a kernel is created with, in the order of its schema, with defaults. An error names the option.
Result<std::vector<yard_named_value_t>> kernel_options(const registry::Kernel& kernel,
                                                       const std::vector<OwnedValue>& given);

// An error names a weight that the kernel does not declare, or one that is missing. A kernel that declares none takes all.
Status check_weights(const registry::Kernel& kernel, const Weights& given);

}  // namespace yard::exec
