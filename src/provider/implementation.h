// SPDX-License-Identifier: Apache-2.0
// One backend's implementation of one function, with its counters: runs, failures, refusals by reason.
//
// Made once per record and function, and shared by the tables that list it. When the last table is freed, calls may
// still run it: it is retired, and freed when no call holds it.
#pragma once

#include <yard/detail/function.h>
#include <yard/function.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/counters.h"
#include "registry/records.h"

namespace yard::provider {

struct Implementation : detail::FunctionRow {
  static std::shared_ptr<const Implementation> make(std::shared_ptr<const registry::Hook> hook);

  const std::shared_ptr<const registry::Hook> hook;
  base::Counter runs, failures;

  // Its last calls failed: health is told of the next success.
  mutable std::atomic<bool> suspect{false};

  bool fails_before_writing() const noexcept {
    return (hook->d.flags & YARD_HOOK_FAILS_BEFORE_WRITING) != 0;
  }

  // Counts a refusal. The first kReasons distinct reasons are recorded and logged; allocates only then.
  void refused(const yard_verdict_t& v) const;
  // The same for a verifier that threw or contradicted itself.
  void broken(const std::string& text) const;
  std::vector<FunctionRefusal> refusals() const;

  // False: one of its own numbers, beyond its list of texts.
  bool has_text(int32_t reason) const noexcept;
  std::string text_of(int32_t reason, const int64_t figures[3]) const;

 private:
  explicit Implementation(std::shared_ptr<const registry::Hook> h);
  static void retire(const Implementation* i);

  // Further reasons are counted together.
  static constexpr size_t kReasons = 16;
  struct Reason {
    std::atomic<int32_t> code{YARD_REASON_NONE};  // NONE: not in use; set last
    std::unique_ptr<base::Counter> count;
    int64_t figures[3] = {};
    std::string text;
  };
  const Reason* find(int32_t code) const noexcept;
  const Reason* learn(int32_t code, const int64_t figures[3], std::string text) const;

  mutable Reason reasons_[kReasons];
  mutable base::Counter others_;
  mutable std::mutex learning_;  // try_lock only: it may be left locked in a forked child
};

// In a catch block, except during forced unwinding: the text of the exception.
std::string thrown_text();

}  // namespace yard::provider
