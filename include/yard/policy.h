// SPDX-License-Identifier: Apache-2.0
// Policy: which kernels are preferred, allowed and forced; for the process, for a block of code, or by a mode of the program.
//
//   yard::Policy p;                                                   // a plain value
//   p.prefer = yard::Kind::kVendor;
//   p.per_op["softmax"] = {"vendor:onednn", "reference"};             // exhaustive: what is not listed is excluded
//   yard::Runtime::shared().set_policy(p).or_throw();                 // for the process
//
//   static const yard::Scope careful = yard::Scope().strict().deny_vendors({"acme"});   // made once,
//   yard::ScopedPolicy in(careful);                                   // entered in nanoseconds, for this block and thread
//
// An unset field leaves the decision to a weaker source: call options precede scopes, inner scopes outer ones, these the
// process's policy, the environment and the rule file. When two policies meet, the stronger one replaces scalars, per-op
// entries, locks and allow lists; deny lists add up; deny precedes allow. Functions may be called from any thread.
#pragma once

#include <yard/plugin.h>
#include <yard/status.h>
#include <yard/tensor.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <vector>

namespace yard {

enum class Kind : int {
  kDefault = YARD_KIND_DEFAULT,
  kVendor = YARD_KIND_VENDOR,
  kReference = YARD_KIND_REFERENCE,
};
YARD_API const char* to_string(Kind k) noexcept;
YARD_API std::optional<Kind> parse_kind(std::string_view text) noexcept;

struct Policy {
  // Whether other kernels are tried after one that may have overwritten inputs has failed.
  enum class RetryInplace : int {
    kNever,  // its error is the call's
    kSave,   // inputs are copied before such a kernel runs, and restored for the next one
  };

  // The kind that comes first; then default, vendor, reference. Unset: default and vendor compete, reference comes last.
  std::optional<Kind> prefer;
  std::optional<bool> strict;  // the first choice or its error: no fallback
  // Kernels that promise to fail before they write need no copy. Unset: never.
  std::optional<RetryInplace> retry_inplace;
  std::optional<bool> reference_only;  // only reference kernels
  // Op name → tokens `default`, `vendor`, `reference`, `vendor:NAME`, `impl:ID`, best first.
  std::map<std::string, std::vector<std::string>, std::less<>> per_op;
  // Vendor lists affect only kernels that have a vendor.
  std::optional<std::vector<std::string>> allow_vendors;
  std::vector<std::string> deny_vendors;
  // Globs (`*`, `?`) over kernel ids.
  std::optional<std::vector<std::string>> allow_kernels;
  std::vector<std::string> deny_kernels;
  // Op name or glob → kernel id. A lock bypasses neither deny nor capability.
  std::map<std::string, std::string, std::less<>> locks;
  std::map<std::string, bool, std::less<>> backends;  // name → on or off
  // Op name or glob → whether arguments may be copied for kernels that want another layout, dtype or padding. An exact
  // name beats a glob, a longer glob a shorter one. Unset: they may.
  std::map<std::string, bool, std::less<>> transforms;

  bool operator==(const Policy&) const = default;
  bool empty() const { return *this == Policy(); }
};

YARD_API const char* to_string(Policy::RetryInplace r) noexcept;

// `stronger` over `weaker`.
YARD_API Policy merge(const Policy& weaker, const Policy& stronger);
// Whether every token, glob and name is well formed; the message names the field and what was expected.
YARD_API Status validate(const Policy& policy);
// One line, `prefer=vendor deny_vendors=acme`; "nothing set" when empty. Only equal policies have equal text.
YARD_API std::string to_string(const Policy& policy);
// `*` any run of characters, `?` one.
YARD_API bool glob_matches(std::string_view pattern, std::string_view text) noexcept;

namespace detail {
struct ScopeSpec;
struct ScopeState;
struct ThreadHead;
}  // namespace detail

// A policy for the calls of a thread in a block. A value; each function returns a scope with one thing more. Scopes nest: the
// inner one is the stronger. What a scope leaves unset follows the process. Calls in a scope with an invalid policy fail.
class YARD_API Scope {
 public:
  Scope();
  explicit Scope(Policy policy);

  Scope strict(bool on = true) const;
  Scope prefer(Kind kind) const;
  Scope order(std::string op, std::vector<std::string> tokens) const;
  Scope allow_vendors(std::vector<std::string> names) const;
  Scope deny_vendors(std::vector<std::string> names) const;
  Scope allow_kernels(std::vector<std::string> globs) const;
  Scope deny_kernels(std::vector<std::string> globs) const;
  // For rules and traces: tenant, model, phase.
  Scope label(std::string name, std::string value) const;
  // No gradient will be computed: kernels for inference only may serve.
  Scope inference(bool on = true) const;
  Scope deterministic(bool on = true) const;  // only kernels that give the same bits each time
  // A mode by its name, also one of the program. Calls on a runtime that has no such mode fail.
  Scope mode(std::string name) const;
  // For functions with active backends (yard/function.h): this one comes first, active or not; of several the last.
  Scope backend(std::string name) const;
  // For the same functions: the thread works for this device.
  Scope device(Device device) const;
  // Whether arguments of these ops may be copied for kernels that want another layout, dtype or padding.
  Scope transforms(bool on, std::string op = "*") const;

  const Policy& policy() const noexcept;
  const std::map<std::string, std::string, std::less<>>& labels() const noexcept;
  // Whether it is valid; else the error of the calls inside it.
  Status status() const;

 private:
  friend class ScopedPolicy;
  friend Scope current_scope();
  explicit Scope(std::shared_ptr<detail::ScopeSpec> spec) noexcept : spec_(std::move(spec)) {}
  template <class F>
  Scope with(const F& change) const;
  std::shared_ptr<detail::ScopeSpec> spec_;  // never changed once shared
};

// The thread's scopes together: enter it on another thread to work there as here.
YARD_API Scope current_scope();

// The thread is in the scope during the lifetime of this object, which ends on the same thread, the last one first.
class [[nodiscard]] ScopedPolicy {
 public:
  // Borrows the scope.
  explicit ScopedPolicy(const Scope& scope) { enter(*scope.spec_); }
  explicit ScopedPolicy(Scope&& scope) : keep_(std::move(scope.spec_)) { enter(*keep_); }
  explicit ScopedPolicy(Policy policy) : ScopedPolicy(Scope(std::move(policy))) {}
  YARD_API ~ScopedPolicy();
  ScopedPolicy(const ScopedPolicy&) = delete;
  ScopedPolicy& operator=(const ScopedPolicy&) = delete;
  static void* operator new(size_t) = delete;
  static void* operator new[](size_t) = delete;

 private:
  YARD_API void enter(detail::ScopeSpec& spec);

  detail::ThreadHead* thread_ = nullptr;
  const detail::ScopeState* outer_ = nullptr;
  std::shared_ptr<detail::ScopeSpec> keep_;
  std::shared_ptr<const detail::ScopeState> own_;  // where the scope has no room to keep it
};

// ---- Modes of the program: its own ways to order the kernels of a call (docs/guides/modes.md) ----

// In ModeCall::read: the call has no such field.
inline constexpr int64_t kFieldAbsent = INT64_MIN;

// A call that needs a plan. Everything is borrowed for as long as plan() runs.
struct ModeCall {
  // A kernel that could serve the call.
  struct Candidate {
    std::string_view id;
    std::string_view vendor;  // empty if it has none
    Kind kind = Kind::kDefault;
    double priority = 0;
    double estimate_ns = -1;  // its cost estimate; negative: none
  };

  std::string_view op;
  std::span<const int64_t> read;       // the fields of ModeProvider::reads, in that order
  std::span<const yard_value_t> args;  // metadata only: tensors have no data
  uint32_t flags = 0;                  // YARD_CALL_*
  Device device;
  std::span<const std::pair<std::string, std::string>> labels;
  std::span<const Candidate> candidates;  // in the order of mode dynamic; at least one
};

// Has one of the two functions, or both. Several threads may call them at once. They must give the same answer for the same
// call, and must not change the runtime (would_deadlock). An exception is logged and counts as no answer.
struct ModeProvider {
  // The fields (`rows`, `x.rank`) or arguments that the answer depends on, besides op, candidates, device, flags and labels.
  // Calls that are equal in all of these share a plan. If this is unset, the answer depends on everything.
  std::optional<std::vector<std::string>> reads;

  // Ids of kernels, best first. Empty: no answer. Ids of kernels that cannot serve the call are skipped.
  std::function<std::vector<std::string>(const ModeCall& call)> plan;

  // A kernel for a CallSpec; called where plan() is unset or gave no answer. Empty: no answer.
  std::function<std::string(std::string_view call_spec)> kernel;
};

}  // namespace yard
