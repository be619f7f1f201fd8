// SPDX-License-Identifier: Apache-2.0
// Sample calls of a runtime's ops: see yard/sample_calls.h.
#include <yard/sample_calls.h>

#include "dispatch/core.h"
#include "runtime/unknown_op.h"
#include "tune/samples.h"

namespace yard {

Result<std::vector<std::string>> sample_calls(const Runtime& runtime, std::string_view op,
                                              std::span<const Config> configs, size_t limit) {
  auto s = runtime.core().snapshot();
  if (runtime.core().first_need(op, s->state->find(op))) s = runtime.core().snapshot();
  const registry::Family* family = s->state->find(op);
  if (family == nullptr) return runtime::unknown_op(*s, op);
  return tune::sample_calls(*family->op->program, &family->op->d, configs, limit);
}

}  // namespace yard
