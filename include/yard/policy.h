// SPDX-License-Identifier: Apache-2.0
// A Policy says which kernels are preferred, allowed and forced. A program may add modes.
//
//   yard::Policy p;
//   p.prefer = yard::Kind::kVendor;
//   p.per_op["softmax"] = {"vendor:onednn", "reference"};  // excludes all others
//   yard::Runtime::shared().set_policy(p).or_throw();      // for the process
//
//   static const yard::Scope careful = yard::Scope().strict().deny_vendors({"acme"});
//   yard::ScopedPolicy in(careful);  // for this block and thread, entered in nanoseconds
//
// Stronger sources come first: call options, inner scopes, outer scopes, the process, the
// environment, the rule file. The stronger policy replaces scalars, per-op entries, locks and allow
// lists. Deny lists add up, and deny precedes allow. Any thread may call any function.
#pragma once

#include <yard/plugin.h>
#include <yard/tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace yard {

enum class Kind : int { kDefault = YARD_KIND_DEFAULT, kVendor, kReference };
static_assert(static_cast<int>(Kind::kReference) == YARD_KIND_REFERENCE);
YARD_API const char* to_string(Kind k) noexcept;
YARD_API std::optional<Kind> parse_kind(std::string_view text) noexcept;

struct Policy {
  // After a failure that may have overwritten inputs, the call returns its error (kNever), or the
  // next kernel gets inputs that were saved before (kSave).
  enum class RetryInplace : int { kNever, kSave };

  // The kind that comes first. If unset, default and vendor compete, and reference comes last.
  std::optional<Kind> prefer;
  std::optional<bool> strict;                 // no fallback: the first choice or its error
  std::optional<RetryInplace> retry_inplace;  // unset: never
  std::optional<bool> reference_only;         // only reference kernels
  // Op name → `default`, `vendor`, `reference`, `vendor:NAME` or `impl:ID`, best first.
  std::map<std::string, std::vector<std::string>, std::less<>> per_op;
  // Vendor lists affect only kernels that have a vendor.
  std::optional<std::vector<std::string>> allow_vendors;
  std::vector<std::string> deny_vendors;
  std::optional<std::vector<std::string>> allow_kernels;
  std::vector<std::string> deny_kernels;  // globs (`*`, `?`) over ids, as allow_kernels
  // Op name or glob → kernel id. A lock bypasses neither deny nor capability.
  std::map<std::string, std::string, std::less<>> locks;
  std::map<std::string, bool, std::less<>> backends;  // name → on or off
  // Op name or glob → whether arguments may be copied for kernels that want another layout, dtype
  // or padding. The longest glob wins, and a name wins over globs. Unset means yes.
  std::map<std::string, bool, std::less<>> transforms;

  bool operator==(const Policy&) const = default;
  bool empty() const { return *this == Policy(); }
};

YARD_API Policy merge(const Policy& weaker, const Policy& stronger);
YARD_API Status validate(const Policy& policy);  // the error names the field
YARD_API const char* to_string(Policy::RetryInplace r) noexcept;
// Returns a line such as `prefer=vendor deny_vendors=acme`. Only equal policies have equal text.
YARD_API std::string to_string(const Policy& policy);
YARD_API bool glob_matches(std::string_view pattern, std::string_view text) noexcept;  // `*`, `?`

namespace detail {
struct ScopeSpec;
struct ScopeState;
struct ThreadHead;
}  // namespace detail

// A policy for the calls of a thread in a block. Each function returns a changed copy.
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
  Scope label(std::string name, std::string value) const;  // for rules and traces
  Scope inference(bool on = true) const;                   // no gradient will be computed
  Scope deterministic(bool on = true) const;  // only kernels that give the same bits each time
  Scope mode(std::string name) const;         // calls fail on a runtime that has no such mode
  // For functions with Selection::kActive (function.h): puts this backend first, active or not.
  Scope backend(std::string name) const;
  Scope device(Device device) const;  // the device that the thread works for, for these functions
  Scope transforms(bool on, std::string op = "*") const;  // see Policy

  const Policy& policy() const noexcept;
  const std::map<std::string, std::string, std::less<>>& labels() const noexcept;
  Status status() const;  // the error of calls inside if the scope is invalid

 private:
  friend class ScopedPolicy;
  friend Scope current_scope();
  explicit Scope(std::shared_ptr<detail::ScopeSpec> spec) noexcept : spec_(std::move(spec)) {}
  template <class F>
  Scope with(const F& change) const;
  std::shared_ptr<detail::ScopeSpec> spec_;  // never changed once shared
};

YARD_API Scope current_scope();  // all scopes of this thread, to enter on another one

// The thread is in the scope while this object exists. Destroy on the same thread, last one first.
class [[nodiscard]] ScopedPolicy {
 public:
  explicit ScopedPolicy(const Scope& scope) { enter(*scope.spec_); }  // borrows it
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

// ---- Modes of the program: its own ways to order kernels (docs/guides/modes.md) ----

struct ModeCall {  // a call that needs a plan; valid while plan() runs
  struct Candidate {
    std::string_view id;
    std::string_view vendor;  // empty if it has none
    Kind kind = Kind::kDefault;
    double priority = 0;
    double estimate_ns = -1;  // negative without an estimate
  };

  std::string_view op;
  std::span<const int64_t> read;       // the fields of ModeProvider::reads; INT64_MIN if absent
  std::span<const yard_value_t> args;  // without data
  uint32_t flags = 0;                  // YARD_CALL_*
  Device device;
  std::span<const std::pair<std::string, std::string>> labels;
  std::span<const Candidate> candidates;  // in the order of mode dynamic; not empty
};

// Has one function or both, which several threads may call. Equal calls must get equal answers, and
// the runtime must not be changed (would_deadlock). An exception is logged and means no answer.
struct ModeProvider {
  // The fields (`rows`, `x.rank`) or arguments that the answer depends on, besides op, candidates,
  // device, flags and labels: calls that agree in these share a plan. Unset means everything.
  std::optional<std::vector<std::string>> reads;

  // Returns ids of kernels, best first. Empty means no answer. Unusable kernels are skipped.
  std::function<std::vector<std::string>(const ModeCall& call)> plan;

  // Returns a kernel for a CallSpec if plan() is unset or gave no answer. Empty means no answer.
  std::function<std::string(std::string_view call_spec)> kernel;
};

}  // namespace yard
