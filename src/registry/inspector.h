// SPDX-License-Identifier: Apache-2.0
// Interface by which a higher layer checks the results of kernels.
#pragma once

#include <yard/plugin.h>
#include <yard/status.h>

#include <cstdint>
#include <memory>

#include "op/program.h"
#include "registry/records.h"

namespace yard::registry {

// The check of one call, from before its kernel runs until after.
class Inspection {
 public:
  virtual ~Inspection() = default;
  // Called after the kernel has succeeded. An error means wrong results, and counts as a fault of the kernel. `repaired`:
  // the results have been replaced by right ones, so that the call succeeds.
  virtual Status judge(bool& repaired) = 0;
};

class Inspector {
 public:
  virtual ~Inspector() = default;
  // Called before a kernel runs on these arguments, which are checked and have facts. Null, which must be fast: the call
  // is not checked. Any thread, concurrently.
  virtual std::unique_ptr<Inspection> begin(const Kernel& kernel, const op::Program& program,
                                            const yard_value_t* args, uint32_t flags) = 0;
};

}  // namespace yard::registry
