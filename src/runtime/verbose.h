// SPDX-License-Identifier: Apache-2.0
// Verbose runtimes: a line on standard error for each call (op/call_spec.h). See Runtime::set_verbose().
#pragma once

#include <string_view>

#include "base/fork.h"
#include "registry/interfaces.h"
#include "telemetry/call_texts.h"

namespace yard::runtime {

class LineBuffers;

class Verbose final : public registry::CallObserver {
 public:
  explicit Verbose(int lines);
  void seen(const registry::ObservedCall& call) noexcept override;
  void forked() noexcept override;

  const int level;  // 1: calls and failures; 2: selections and transforms, too

 private:
  base::ReplacedInChild<telemetry::CallTexts> texts_;
  std::atomic<LineBuffers*> lines_;  // of the process
};

// Writes all lines that are still in buffers.
void flush_verbose_lines() noexcept;

}  // namespace yard::runtime
