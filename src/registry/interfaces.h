// SPDX-License-Identifier: Apache-2.0
// Interfaces through which lower layers call higher ones.
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

// A call that has run.
struct ObservedCall {
  const op::Program& program;
  uint32_t index;            // Op::index
  const yard_value_t* args;  // checked, with facts
  uint32_t flags;            // YARD_CALL_*
  const op::Labels& labels;  // of process, scope and call together

  const Kernel* kernel;   // that served it, or null
  bool selected = false;  // it had no plan
  int64_t start, end;     // of its kernels, with transforms: base::steady_ns()
  int64_t select_ns = 0;  // if it was selected
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
  // Several threads call this at once, each inside of the guard of its call.
  virtual void seen(const ObservedCall& call) noexcept = 0;
};
using CallObservers = std::vector<std::shared_ptr<CallObserver>>;

// The check of one call, which begins before its kernel runs.
class ResultCheck {
 public:
  virtual ~ResultCheck() = default;
  // Called after the kernel has succeeded. An error means wrong results and counts as a fault of
  // the kernel. Setting `repaired` says that right results have replaced them, and the call
  // succeeds.
  virtual Status judge([[maybe_unused]] bool& repaired) { return {}; }
  // Whether judge() could give a verdict.
  virtual bool judged() const noexcept { return false; }
};

// A call that a kernel is about to run.
struct CheckedCall {
  const Kernel& kernel;
  const op::Program& program;
  const yard_value_t* args;  // checked, with facts
  uint32_t flags;
  const op::Labels* labels = nullptr;  // of process and scope, or null
  const Options* options = nullptr;    // with the call's own labels, or null
  bool always = false;                 // check it even if it is not sampled
};

class ResultChecker {
 public:
  virtual ~ResultChecker() = default;
  // Called before a kernel runs, by several threads at once. Must be fast if the call is not
  // checked, and then returns null.
  virtual std::unique_ptr<ResultCheck> begin(const CheckedCall& call) = 0;
};

enum class PluginOffer { kOp, kGroup };

class LazyLoader {
 public:
  // Loads and registers the plugins that offer an op or group. Returns false if this thread is
  // already loading something. The loader records failures. The caller holds no lock and no guard.
  virtual bool need(PluginOffer what, std::string_view name) noexcept = 0;
  // Refused plugins that may offer the op or group, one line each.
  virtual std::vector<std::string> refused_for(PluginOffer what, std::string_view name) = 0;

 protected:
  ~LazyLoader() = default;
};

}  // namespace yard::registry
