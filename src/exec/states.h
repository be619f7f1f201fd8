// SPDX-License-Identifier: Apache-2.0
// States of kernels that have create(): created from options, loaded with weights, prepared for a shape,
// destroyed once.
//
// States belong to an instance of an op, or to the plain calls of a runtime. There is one for each
// combination of values of the fields that the kernel names. The last kKept are cached; a state is destroyed
// when it is neither cached nor used by a call.
#pragma once

#include <yard/plugin.h>
#include <yard/value.h>

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/float_state.h"
#include "base/fork.h"
#include "op/program.h"
#include "registry/changes.h"
#include "registry/records.h"

namespace yard::exec {

struct CallFrame;

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
  // Keeps the loaded weights alive: a kernel may hold pointers to their tensors.
  void keep(std::shared_ptr<const void> weights) noexcept { weights_ = std::move(weights); }

 private:
  std::shared_ptr<const registry::Kernel> kernel_;
  std::shared_ptr<const void> weights_;
  void* made_;
};

// A value that owns its text.
struct OwnedValue {
  std::string name, text;
  yard_value_t value;
};

using Weights = std::vector<std::pair<std::string, TensorView>>;

class States {
 public:
  static constexpr size_t kKept = 64;
  // The registry of the runtime as calls see it now. Any thread, also inside a call.
  using Registry = std::function<std::shared_ptr<const registry::State>()>;

  // `registry` tells which kernels are registered; without it, all are for as long as this lives.
  explicit States(Registry registry = {});
  ~States();
  States(const States&) = delete;
  States& operator=(const States&) = delete;

  // Before the first call.
  void set_options(std::vector<OwnedValue> options);
  const std::vector<OwnedValue>& options() const noexcept { return options_; }
  // Named tensors, borrowed. Drops the cached states: the next call creates new ones.
  void set_weights(Weights weights);

  // What prepare() gets: the arguments in the kernel's order.
  struct Arguments {
    const yard_value_t* args;
    uint32_t count;
  };
  // The state for this call, created if needed with the frame's call as context. `args` are the op's. Null after a
  // failure: `code` is its code, and the frame holds the message.
  std::shared_ptr<State> find(const std::shared_ptr<const registry::Kernel>& kernel,
                              const op::Program& program, CallFrame& frame,
                              const yard_value_t* args, const Arguments& own, int32_t& code);

  // Drops states whose kernels are no longer registered. After each change, holding no lock.
  void drop_removed();
  size_t size() const;
  // True for the first call of this function in a process.
  bool first_in_process() const;

 private:
  struct Kept {
    const registry::Kernel* kernel;
    std::vector<int64_t> key;
    std::shared_ptr<State> state;
  };
  std::shared_ptr<State> make(const std::shared_ptr<const registry::Kernel>& kernel,
                              CallFrame& frame, const Arguments& own, int32_t& code);

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
  const Registry registry_;
  mutable std::atomic<Cache*> cache_;
  std::vector<OwnedValue> options_;
  // Changed and read under the lock; replaced as a whole, so that a forked child finds a valid one.
  std::atomic<Loaded*> weights_;
};

// The options that a kernel is created with, in the order of its schema, with defaults. An error names an
// option that is missing, unknown or of the wrong type.
Result<std::vector<yard_named_value_t>> kernel_options(const registry::Kernel& kernel,
                                                       const std::vector<OwnedValue>& given);

// An error names a weight that the kernel does not declare. A kernel that declares none takes all.
Status check_weights(const registry::Kernel& kernel, const Weights& given);

}  // namespace yard::exec
