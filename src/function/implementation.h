// SPDX-License-Identifier: Apache-2.0
// One backend's implementation of one function as calls use it, and what has come of it: who was refused why, how
// often it ran.
//
// Made once for a record and a function, shared by the tables that list it. When the last of them is freed, calls
// may still run it: it is retired, and freed when no call holds it.
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

namespace yard::function {

struct Implementation : detail::FunctionRow {
  static std::shared_ptr<const Implementation> make(std::shared_ptr<const registry::Hook> hook);

  const std::shared_ptr<const registry::Hook> hook;
  base::Counter runs, failures;

  // Faults of it stand in a row: its next success is told to health.
  mutable std::atomic<bool> suspect{false};

  bool promises() const noexcept { return (hook->d.flags & YARD_HOOK_FAILS_BEFORE_WRITING) != 0; }
  // As it counts: higher first.
  int priority() const noexcept {
    return (hook->d.flags & YARD_HOOK_LOWER_FIRST) != 0 ? -hook->d.priority : hook->d.priority;
  }

  // Counts; the first time of each reason, as long as there are few, remembers and logs it. Allocates only then.
  void refused(const yard_verdict_t& v) const;
  // The same for a verifier that does not keep its promises.
  void broken(const std::string& text) const;
  std::vector<FunctionRefusal> refusals() const;

  // False: a number of its own, beyond the texts that it brings.
  bool has_text(int32_t reason) const noexcept;
  // A verdict for people.
  std::string text_of(int32_t reason, const int64_t figures[3]) const;

 private:
  explicit Implementation(std::shared_ptr<const registry::Hook> h);
  static void retire(const Implementation* i);

  // Reasons beyond these are counted together.
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
  mutable std::mutex
      learning_;  // only tried, never waited for: it may be left locked in a forked child
};

// The name of a reason of any origin.
std::string_view reason_label(int32_t code) noexcept;

}  // namespace yard::function
