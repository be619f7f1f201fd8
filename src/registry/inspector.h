// SPDX-License-Identifier: Apache-2.0
// How somebody above looks at what kernels do to their arguments, without the executor knowing whom.
#pragma once

#include <yard/plugin.h>
#include <yard/status.h>

#include <cstdint>
#include <memory>

#include "op/program.h"
#include "registry/records.h"

namespace yard::registry {

// One call that is looked at, from before its kernel runs until after.
class Inspection {
 public:
  virtual ~Inspection() = default;
  // The kernel has ended well. An error: what is wrong with its results; it counts as the kernel's fault.
  // `repaired`: right results have been put in place of them, so that the call succeeds all the same.
  virtual Status judge(bool& repaired) = 0;
};

class Inspector {
 public:
  virtual ~Inspector() = default;
  // Before a kernel runs on these arguments, which fit and have facts. Null: this call is not looked at. Any
  // thread, several at once; quick where it is null.
  virtual std::unique_ptr<Inspection> begin(const Kernel& kernel, const op::Program& program,
                                            const yard_value_t* args, uint32_t flags) = 0;
};

}  // namespace yard::registry
