// SPDX-License-Identifier: Apache-2.0
// States of kernels that have create(). A state belongs to an instance of an op or to the plain
// calls of a runtime. There is one for each combination of values of the fields that the kernel
// names. A state that is neither among the last kKept nor used by a call is destroyed on a separate
// thread (base/tasks.h). If the states would hold too many bytes, the kernel declines the call.
#pragma once

#include <yard/call_spec.h>

#include <list>

#include "base/mutex.h"
#include "registry/changes.h"

namespace yard::exec {

struct CallFrame;
struct KernelState;
using Weights = std::vector<std::pair<std::string, TensorView>>;

struct OwnedValue {
  std::string name, text;
  yard_value_t value;
};

struct StateBudget {
  static constexpr uint64_t kMostBytes = uint64_t{4} << 30;

  std::function<std::shared_ptr<const registry::State>()> registry;
  std::atomic<uint64_t> most_bytes{kMostBytes};
  std::atomic<uint64_t> states{0}, bytes{0};  // existing in this process

  // Returns whether `wanted` more bytes fit beside `held` bytes.
  bool fits(uint64_t wanted, uint64_t held) const noexcept {
    return wanted <= most_bytes && held <= most_bytes - wanted;
  }
  // Counts a state. Returns false and counts nothing if the state does not fit.
  bool take(uint64_t wanted) noexcept;

 private:
  const base::InChild in_child_{[this] { states = bytes = 0; }};
};

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

  // Without a budget, bytes are not limited, and drop_removed() must not be called.
  explicit States(std::shared_ptr<StateBudget> budget = nullptr) : budget_(std::move(budget)) {}
  ~States();
  States& operator=(States&&) = delete;

  void set_options(std::vector<OwnedValue> options) { options_ = std::move(options); }
  // Borrows the tensors. Drops the cached states, so that the next call makes new ones.
  void set_weights(Weights weights);
  bool has_weights() const noexcept { return has_weights_.load(std::memory_order_relaxed); }

  // Makes the state if there is none; create() gets the frame's call. Declines, with a message in
  // the frame, if the call passes other weights than the state's, or if the budget is exceeded.
  int32_t find(const StateRequest& request, std::shared_ptr<void>& to);

  // Drops states of kernels that are no longer registered. The caller must not hold a lock.
  void drop_removed();
  struct Held {
    size_t states = 0;
    uint64_t bytes = 0;
  };
  Held held() const;  // totals of the cache

 private:
  struct Kept {
    const registry::Kernel* kernel;
    std::vector<int64_t> key;
    std::shared_ptr<KernelState> state;  // null if it did not fit into the budget
    uint64_t bytes;
  };
  int32_t find_or_make(const StateRequest& request, std::shared_ptr<KernelState>& to);
  int32_t make(const StateRequest& request, std::shared_ptr<KernelState>& to);
  // Moves the found state to the front. The caller holds the lock.
  Kept* find_kept(const registry::Kernel& kernel, const std::vector<int64_t>& key);

  const std::shared_ptr<StateBudget> budget_;
  std::vector<OwnedValue> options_;
  std::atomic<bool> has_weights_{false};
  mutable base::Mutex lock_{base::Rank::kStates};
  // lock_ guards the following members.
  std::list<Kept> kept_;  // most recently used first
  std::shared_ptr<const Weights> weights_ = std::make_shared<Weights>();
  // A child leaves its parent's states alone, since they may need threads that it does not have.
  const base::InChild in_child_{[this] { std::construct_at(&kept_); }};
};

// Returns the options for create() in the order of the schema. An error names the option.
Result<std::vector<yard_named_value_t>> kernel_options(const registry::Kernel& kernel,
                                                       const std::vector<OwnedValue>& given);

// An error names an unknown or missing weight. A kernel that declares no weights takes all.
Status check_weights(const registry::Kernel& kernel, const Weights& given);

}  // namespace yard::exec
