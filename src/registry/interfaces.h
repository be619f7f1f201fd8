// SPDX-License-Identifier: Apache-2.0
// Interfaces that higher layers implement: observing calls, checking the results of kernels, loading plugins on demand.
#pragma once

#include <yard/options.h>
#include <yard/plugin.h>
#include <yard/plugins.h>
#include <yard/status.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "op/call_spec.h"
#include "op/program.h"
#include "registry/records.h"

namespace yard::registry {

// A call that has run. Owns nothing.
struct ObservedCall {
  const op::Program& program;
  uint32_t index;            // of the op; never reused for another schema
  const yard_value_t* args;  // checked, with facts
  uint32_t flags;            // YARD_CALL_*
  const op::Labels& labels;  // of process, scope and call together

  const Kernel* kernel;   // that served it; null: none did
  bool selected = false;  // it had no plan
  int64_t start, end;     // of its kernels, with transforms: base::steady_ns()
  int64_t select_ns = 0;  // where it was selected
  Mode mode;
  int64_t pre_ns = 0, post_ns = 0;  // transforms
  struct Failure {
    const Kernel& kernel;
    ErrorClass error;
    std::string_view message;
  };
  std::span<const Failure> failures = {};  // of kernels that ran before
};

class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // Any thread, concurrently, inside of the guard of the call.
  virtual void seen(const ObservedCall& call) noexcept = 0;
};
using CallObservers = std::vector<std::shared_ptr<CallObserver>>;

// The check of one call, from before its kernel runs until after. This one never gives a verdict.
class ResultCheck {
 public:
  virtual ~ResultCheck() = default;
  // Called after the kernel has succeeded. An error means wrong results, and counts as a fault of the kernel. If it sets
  // `repaired`, the results have been replaced by right ones, so that the call succeeds.
  virtual Status judge([[maybe_unused]] bool& repaired) { return {}; }
  // After judge(): whether there was a verdict. A call that could not be judged tells nothing about results.
  virtual bool judged() const noexcept { return false; }
};

// A call that a kernel is about to run. The arguments are checked and have facts.
struct CheckedCall {
  const Kernel& kernel;
  const op::Program& program;
  const yard_value_t* args;
  uint32_t flags;
  const op::Labels* labels = nullptr;  // of process and scope; null: none
  const Options* options = nullptr;    // with the call's own labels; null: none
  bool always = false;                 // check it even if it is not sampled
};

class ResultChecker {
 public:
  virtual ~ResultChecker() = default;
  // Called before a kernel runs. Null, which must be fast: the call is not checked. Any thread, concurrently.
  virtual std::unique_ptr<ResultCheck> begin(const CheckedCall& call) = 0;
};

enum class PluginOffer { kOp, kGroup };  // what a plugin can be needed for

// Loads plugins on demand, for the dispatcher.
class LazyLoader {
 public:
  // Called for an op or a group of functions that is unknown or used for the first time. Loads the plugins that offer it, and
  // returns when they are registered. False if this thread is already loading something. Failures are recorded by the
  // loader. Any thread, without locks and guards held.
  virtual bool need(PluginOffer what, std::string_view name) noexcept = 0;
  // Refused plugins that may offer it, a line each: for error messages.
  virtual std::vector<std::string> refused_for(PluginOffer what, std::string_view name) = 0;

 protected:
  ~LazyLoader() = default;
};

}  // namespace yard::registry
