// SPDX-License-Identifier: Apache-2.0
// Scopes: a policy for the calls a thread makes until the end of a block.
//
//   yard::ScopedPolicy exact = yard::ScopedPolicy::prefer(yard::Kind::kReference);   // this block only
//
//   static const yard::Scope careful = yard::Scope().strict().deny_vendors({"acme"});  // made once,
//   yard::ScopedPolicy in(careful);                                          // entered in nanoseconds
//
// A scope belongs to the thread that enters it; other threads see nothing of it. Scopes nest: the inner
// one is the stronger. What a scope does not say follows the process, also when that changes meanwhile.
// Stronger than a scope are only a call's own options. A scope whose policy means nothing (an unknown
// token, say) makes every call inside fail with that message.
#pragma once

#include <yard/policy.h>

#include <cstddef>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace yard {

namespace detail {
struct ScopeSpec;
struct ScopeState;
struct ThreadHead;
}  // namespace detail

// What a scope says. A value; each function gives a scope that says one thing more. Any thread may enter it.
class Scope {
 public:
  YARD_API Scope();
  YARD_API explicit Scope(Policy policy);

  YARD_API Scope strict(bool on = true) const;
  YARD_API Scope prefer(Kind kind) const;
  YARD_API Scope order(std::string op, std::vector<std::string> tokens) const;
  YARD_API Scope allow_vendors(std::vector<std::string> names) const;
  YARD_API Scope deny_vendors(std::vector<std::string> names) const;
  YARD_API Scope allow_kernels(std::vector<std::string> globs) const;
  YARD_API Scope deny_kernels(std::vector<std::string> globs) const;
  // For rules and traces: tenant, model, phase.
  YARD_API Scope label(std::string name, std::string value) const;
  // No gradient will be asked for: kernels for inference only may serve.
  YARD_API Scope inference(bool on = true) const;
  // Only kernels that give the same bits every time.
  YARD_API Scope deterministic(bool on = true) const;
  // How plans are obtained: a mode by its name, also one that the program has added. Calls on a runtime that has no
  // such mode fail.
  YARD_API Scope mode(std::string name) const;

  YARD_API const Policy& policy() const noexcept;
  YARD_API const std::map<std::string, std::string, std::less<>>& labels() const noexcept;
  // Whether it means something; calls inside it fail with this otherwise.
  YARD_API Status status() const;

 private:
  friend class ScopedPolicy;
  friend Scope current_scope();
  explicit Scope(std::shared_ptr<detail::ScopeSpec> spec) noexcept : spec_(std::move(spec)) {}
  std::shared_ptr<detail::ScopeSpec> spec_;  // never changed once shared
};

// All that the thread's scopes say together: enter it on another thread to work there as here.
YARD_API Scope current_scope();

// The thread is in the scope as long as this lives. Ends on the thread that made it, the last one first.
class [[nodiscard]] ScopedPolicy {
 public:
  // Borrows the scope.
  explicit ScopedPolicy(const Scope& scope) { enter(*scope.spec_); }
  explicit ScopedPolicy(Scope&& scope) : keep_(std::move(scope.spec_)) { enter(*keep_); }
  explicit ScopedPolicy(Policy policy) : ScopedPolicy(Scope(std::move(policy))) {}
  YARD_API ~ScopedPolicy();
  ScopedPolicy(const ScopedPolicy&) = delete;
  ScopedPolicy& operator=(const ScopedPolicy&) = delete;
  static void* operator new(size_t) = delete;  // a block's, or part of something that is
  static void* operator new[](size_t) = delete;

  static ScopedPolicy strict(bool on = true) { return ScopedPolicy(Scope().strict(on)); }
  static ScopedPolicy prefer(Kind kind) { return ScopedPolicy(Scope().prefer(kind)); }
  static ScopedPolicy allow_vendors(std::vector<std::string> names) {
    return ScopedPolicy(Scope().allow_vendors(std::move(names)));
  }
  static ScopedPolicy deny_vendors(std::vector<std::string> names) {
    return ScopedPolicy(Scope().deny_vendors(std::move(names)));
  }
  static ScopedPolicy allow_kernels(std::vector<std::string> globs) {
    return ScopedPolicy(Scope().allow_kernels(std::move(globs)));
  }
  static ScopedPolicy deny_kernels(std::vector<std::string> globs) {
    return ScopedPolicy(Scope().deny_kernels(std::move(globs)));
  }
  static ScopedPolicy label(std::string name, std::string value) {
    return ScopedPolicy(Scope().label(std::move(name), std::move(value)));
  }
  static ScopedPolicy inference(bool on = true) { return ScopedPolicy(Scope().inference(on)); }

 private:
  YARD_API void enter(detail::ScopeSpec& spec);

  detail::ThreadHead* thread_ = nullptr;
  const detail::ScopeState* outer_ = nullptr;
  std::shared_ptr<detail::ScopeSpec> keep_;
  std::shared_ptr<const detail::ScopeState> own_;  // where the scope has no room to keep it
};

}  // namespace yard
