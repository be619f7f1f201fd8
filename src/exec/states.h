// SPDX-License-Identifier: Apache-2.0
// States of kernels that have create(): created from options, loaded with weights, prepared for a shape,
// destroyed once.
//
// States belong to an instance of an op, or to the plain calls of a runtime. There is one for each
// combination of values of the fields that the kernel names. The last kKept are cached, and those of a runtime
// together hold a bounded number of bytes; a state is destroyed when it is neither cached nor used by a call.
#pragma once

#include <yard/call_spec.h>
#include <yard/plugin.h>

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/fork.h"
#include "base/thread_state.h"
#include "op/program.h"
#include "registry/changes.h"
#include "registry/records.h"

namespace yard::exec {

struct CallFrame;

using Weights = std::vector<std::pair<std::string, TensorView>>;

// Owns what create() returned.
class State {
 public:
  State(std::shared_ptr<const registry::Kernel> kernel, void* made) noexcept
      : kernel_(std::move(kernel)), made_(made) {}
  ~State() {
    const base::FloatState restored;
    kernel_->d.destroy(kernel_->d.self, made_);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  void* get() const noexcept { return made_; }
  // Keeps the loaded weights alive: a kernel may hold pointers to their tensors, or copies of those that are arguments.
  void keep(std::shared_ptr<const Weights> weights, const op::Program& program);
  // The weight that stands for an argument for which the call passes another tensor; null: there is none.
  const std::string* find_other_argument(const yard_value_t* args) const noexcept;

 private:
  std::shared_ptr<const registry::Kernel> kernel_;
  std::shared_ptr<const Weights> weights_;
  // Weights with the name of a parameter: the argument's index, and the weight's.
  std::vector<std::pair<uint32_t, size_t>> arguments_;
  void* made_;
};

// A value that owns its text.
struct OwnedValue {
  std::string name, text;
  yard_value_t value;
};

// The runtime that states belong to. Any thread may call these, also inside a call.
class StatesOwner {
 public:
  // The registry as calls see it now.
  virtual std::shared_ptr<const registry::State> registry_now() const = 0;
  // What all states that are kept may hold together.
  uint64_t most_bytes() const noexcept { return most_bytes_.load(std::memory_order_relaxed); }
  // A state that holds bytes was kept. Drops others beyond the bound.
  virtual void drop_beyond_bound() = 0;
  // Whether a state of so many bytes fits beside those that were used at `since` or later.
  virtual bool has_room(uint64_t bytes, uint64_t since) = 0;

  // The order in which states were used: those used between two that were made or refused have the same number.
  uint64_t now() const noexcept { return made_.load(std::memory_order_relaxed); }
  uint64_t next() noexcept { return made_.fetch_add(1, std::memory_order_relaxed) + 1; }

  static constexpr uint64_t kMostBytes = uint64_t{4} << 30;

 protected:
  ~StatesOwner() = default;
  std::atomic<uint64_t> most_bytes_{kMostBytes};

 private:
  std::atomic<uint64_t> made_{0};
};

class States {
 public:
  static constexpr size_t kKept = 64;

  // Without an owner all kernels are registered for as long as this lives, and bytes are not bounded.
  explicit States(StatesOwner* owner = nullptr);
  ~States();
  States(const States&) = delete;
  States& operator=(const States&) = delete;

  // Before the first call.
  void set_options(std::vector<OwnedValue> options);
  const std::vector<OwnedValue>& options() const noexcept { return options_; }
  // Named tensors, borrowed. Drops the cached states: the next call creates new ones.
  void set_weights(Weights weights);
  bool has_weights() const noexcept { return has_weights_.load(std::memory_order_relaxed); }

  // The state for this call, created if needed with the frame's call as context. `args` are the op's, `own` those in the
  // kernel's order, for prepare(). Null after a
  // failure, and where it was made from other weights than the call passes, would hold more than the bound, or was dropped
  // for the bound and would take the room of states that were used since it was last asked for: else more states than fit,
  // used in turn, would be made again and again. `code` is the code, and the frame holds the message.
  std::shared_ptr<State> find(const std::shared_ptr<const registry::Kernel>& kernel,
                              const op::Program& program, CallFrame& frame,
                              const yard_value_t* args, std::span<const yard_value_t> own,
                              int32_t& code);

  // Drops states whose kernels are no longer registered. After each change, holding no lock.
  void drop_removed();
  size_t size() const;
  // What the cached states hold, and the number of the one that was used longest ago of those that hold bytes.
  struct Held {
    size_t states = 0;
    uint64_t bytes = 0, oldest = UINT64_MAX;
  };
  Held held() const;
  // What those hold that were used at `since` or later.
  uint64_t bytes_used_since(uint64_t since) const;
  // Takes that one out of the cache; the caller destroys it, holding no lock. Null: there is none.
  std::shared_ptr<State> drop_oldest();
  // True for the first call of this function in a process.
  bool first_in_process() const;

 private:
  struct Kept {
    const registry::Kernel* kernel;
    std::vector<int64_t> key;
    std::shared_ptr<State> state;  // null: it held more than the bound, or was dropped for it
    uint64_t bytes = 0;
    uint64_t used = 0;     // StatesOwner::now() when it was last asked for
    uint32_t refused = 0;  // since it was dropped
  };
  uint64_t most_bytes() const noexcept;
  std::shared_ptr<State> find_or_make(const std::shared_ptr<const registry::Kernel>& kernel,
                                      const op::Program& program, CallFrame& frame,
                                      const yard_value_t* args, std::span<const yard_value_t> own,
                                      int32_t& code);
  // `bytes`: what it holds.
  std::shared_ptr<State> make(const std::shared_ptr<const registry::Kernel>& kernel,
                              const op::Program& program, CallFrame& frame,
                              std::span<const yard_value_t> own, int32_t& code, uint64_t& bytes);

  // The cache of one process. A forked child starts with an empty one and leaks its parent's, whose lock
  // another thread may have held.
  struct Cache {
    const uint64_t forks = base::forks();
    std::mutex lock;
    uint64_t loads = 0;    // changes of weights; states of an older count are not cached
    std::list<Kept> kept;  // most recently used first
    std::atomic<bool> seen{false};
  };
  Cache& cache() const;

  using Loaded = std::shared_ptr<const Weights>;
  StatesOwner* const owner_;
  mutable std::atomic<Cache*> cache_;
  std::vector<OwnedValue> options_;
  // Changed and read under the lock; replaced as a whole, so that a forked child finds a valid one.
  std::atomic<Loaded*> weights_;
  std::atomic<bool> has_weights_{false};
};

// The options that a kernel is created with, in the order of its schema, with defaults. An error names an
// option that is missing, unknown or of the wrong type.
Result<std::vector<yard_named_value_t>> kernel_options(const registry::Kernel& kernel,
                                                       const std::vector<OwnedValue>& given);

// An error names a weight that the kernel does not declare, or one that it needs. A kernel that declares none takes all.
Status check_weights(const registry::Kernel& kernel, const Weights& given);

}  // namespace yard::exec
