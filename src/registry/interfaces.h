// SPDX-License-Identifier: Apache-2.0
// Interfaces through which lower layers call higher ones.
#pragma once

#include <yard/options.h>
#include <yard/plugins.h>

#include "op/call_spec.h"
#include "registry/records.h"

namespace yard::registry {

struct ObservedCall {
  const op::Program& program;
  uint32_t index;            // Op::index
  const yard_value_t* args;  // checked, with facts
  uint32_t flags;            // YARD_CALL_*
  const op::Labels& labels;  // of process, scope and call

  const Kernel* kernel;   // the kernel that served the call, or null
  bool selected = false;  // the call had no plan, so a selection ran
  int64_t start, end;     // of the kernels, with transforms: base::steady_ns()
  int64_t select_ns = 0;  // set if a selection ran
  Mode mode;
  int64_t pre_ns = 0, post_ns = 0;  // time of transforms
  struct Failure {
    const Kernel& kernel;
    ErrorClass error;
    std::string_view message;
  };
  std::span<const Failure> failures = {};  // of kernels that ran earlier
};

class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // Several threads call this at once, each inside the guard of its call.
  virtual void seen(const ObservedCall& call) noexcept = 0;
};
using CallObservers = std::vector<std::shared_ptr<CallObserver>>;

// Checks one call. The check begins before the kernel runs.
class ResultCheck {
 public:
  virtual ~ResultCheck() = default;
  // Called after the kernel has succeeded. An error means wrong results, which count as a fault of
  // the kernel. If `repaired` is set, right results have replaced them and the call succeeds.
  virtual Status judge([[maybe_unused]] bool& repaired) { return {}; }
  // Returns whether judge() could give a verdict.
  virtual bool judged() const noexcept { return false; }
};

struct CheckedCall {
  const Kernel& kernel;
  const op::Program& program;
  const yard_value_t* args;  // checked, with facts
  uint32_t flags;
  const op::Labels* labels = nullptr;  // of process and scope; may be null
  const Options* options = nullptr;    // may be null; has the call's own labels
  bool always = false;                 // check the call even if it is not sampled
};

class ResultChecker {
 public:
  virtual ~ResultChecker() = default;
  // Called before a kernel runs, by several threads at once. If the call is not checked, this must
  // return null quickly.
  virtual std::unique_ptr<ResultCheck> begin(const CheckedCall& call) = 0;
};

enum class PluginOffer { kOp, kGroup };

class LazyLoader {
 public:
  // Loads and registers plugins that offer an op or group, and records failures. Returns false if
  // this thread is already loading something. The caller holds no lock and no guard.
  virtual bool need(PluginOffer what, std::string_view name) noexcept = 0;
  // Returns one line for each refused plugin that may offer the op or group.
  virtual std::vector<std::string> refused_for(PluginOffer what, std::string_view name) = 0;

 protected:
  ~LazyLoader() = default;
};

}  // namespace yard::registry
