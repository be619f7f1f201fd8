// SPDX-License-Identifier: Apache-2.0
// States of kernels that have some: made from options, given weights, prepared for a shape, ended once.
//
// A kernel with create() sees nothing of a call before its state is there. States belong to an instance of
// an op, or to the plain calls of a runtime; each is made for the values of the fields that the kernel
// names. So many are kept; what is let go ends when no call uses it any more.
#pragma once

#include <yard/plugin.h>
#include <yard/value.h>

#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/this_process.h"
#include "op/program.h"
#include "registry/changes.h"
#include "registry/records.h"

namespace yard::exec {

struct Frame;

// What create() made. Ends it.
class State {
 public:
  State(std::shared_ptr<const registry::Kernel> kernel, void* made) noexcept
      : kernel_(std::move(kernel)), made_(made) {}
  ~State() { kernel_->d.destroy(kernel_->d.self, made_); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  void* get() const noexcept { return made_; }
  // What was loaded: a kernel may go on pointing to the tensors it was given.
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

  States();
  ~States();
  States(const States&) = delete;
  States& operator=(const States&) = delete;

  // Copies; before the first call.
  void set_options(std::vector<OwnedValue> options);
  const std::vector<OwnedValue>& options() const noexcept { return options_; }
  // Named tensors, borrowed. States made before are let go: the next call makes them again.
  void set_weights(Weights weights);

  // The state for this call, made if need be with the frame's call as context. Null after a failure: then
  // `code` says which, and the frame holds the message.
  std::shared_ptr<State> find(const std::shared_ptr<const registry::Kernel>& kernel,
                              const op::Program& program, Frame& frame, const yard_value_t* args,
                              uint32_t count, int32_t& code);

  // Lets go of states whose kernels are not registered any more.
  void keep_only(const registry::State& state);
  size_t size() const;
  // Whether nobody has asked so in this process before.
  bool first_here() const;

 private:
  struct Kept {
    const registry::Kernel* kernel;
    std::vector<int64_t> key;
    std::shared_ptr<State> state;
  };
  std::shared_ptr<State> make(const std::shared_ptr<const registry::Kernel>& kernel, Frame& frame,
                              const yard_value_t* args, uint32_t count, int32_t& code);

  // What one process has. A forked child begins with no states, and leaves those of its parent, with the lock that
  // a thread may have held, where they are.
  struct Mine {
    const uint64_t forks = base::forks();
    std::mutex lock;
    uint64_t loads =
        0;  // changes of weights; a state that was made under an older count is not kept
    std::list<Kept> kept;  // last used first
    std::atomic<bool> seen{false};
  };
  Mine& mine() const;

  using Loaded = std::shared_ptr<const Weights>;
  mutable std::atomic<Mine*> mine_;
  std::vector<OwnedValue> options_;
  // Changed and read under the lock; replaced whole, so a child finds one whoever held it.
  std::atomic<Loaded*> weights_;
};

// The options a kernel is created with: those given, in the order of its schema, defaults filled in. An
// error names what is missing, unknown or of the wrong type.
Result<std::vector<yard_named_value_t>> kernel_options(const registry::Kernel& kernel,
                                                       const std::vector<OwnedValue>& given);

}  // namespace yard::exec
