// SPDX-License-Identifier: Apache-2.0
// Changes add, replace and remove ops, backends and kernels of a runtime while calls run.
//
//   yard::Changes c;
//   c.add_op(yard::plugin::OpDef("scale(out!: T[n], x: T[n], by: float = 1.0)"));
//   c.add_kernel(yard::plugin::Kernel::of<scale_rows>("scale", "default.rows"));  // plugin.hpp
//   yard::Runtime::shared().apply(std::move(c)).or_throw();
//
// A change is applied as a whole or not at all, and the next call sees all of it. Adding an equal
// part again is fine; adding another part with an equal name is an error that names both.
#pragma once

#include <yard/policy.h>

#include <chrono>

namespace yard {

namespace detail {
struct ChangeList;
struct TicketState;
}  // namespace detail

// Collects changes in order. Descriptors are copied. Function pointers, `self` and `keep` are used
// until the part is gone. apply() reports invalid descriptors.
class YARD_API Changes {
 public:
  Changes();
  ~Changes();
  Changes(Changes&&) noexcept;
  Changes& operator=(Changes&&) noexcept;

  Changes& add_op(const yard_op_t& op, std::shared_ptr<void> keep = {});
  Changes& add_backend(const yard_backend_t& backend, std::shared_ptr<void> keep = {});
  // Without a backend, the kernel belongs to the one that its id begins with ("default" of
  // "default.rows"), which is made if needed. The reference kernel of an op must come with the op.
  Changes& add_kernel(const yard_kernel_t& kernel, std::shared_ptr<void> keep = {});
  Changes& add_function(const yard_function_t& function, std::shared_ptr<void> keep = {});
  Changes& add_plugin(const yard_plugin_t& plugin, std::shared_ptr<void> keep = {});
  // Runtime::apply() fails unless a kernel with that op and id exists.
  Changes& replace_kernel(const yard_kernel_t& kernel, std::shared_ptr<void> keep = {});
  Changes& remove_kernel(std::string op, std::string id);
  Changes& remove_backend(std::string name);  // with its kernels and functions
  Changes& remove_op(std::string name);
  Changes& reprobe(std::string backend);  // probes again before its kernels are considered

 private:
  friend class Runtime;
  std::unique_ptr<detail::ChangeList> list_;
};

// Tells when no call uses the removed parts any more and their `keep` has been released. A forked
// child does not release parts of its parent.
class YARD_API Ticket {
 public:
  Ticket() = default;
  explicit Ticket(std::shared_ptr<detail::TicketState> state);
  bool done() const;  // never blocks; any thread, also inside a kernel
  // Fails with `would_deadlock` inside a kernel, verifier or callback.
  Status wait(std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max()) const;

 private:
  std::shared_ptr<detail::TicketState> state_;
};

struct KernelInfo {
  std::string op, id, backend, vendor, summary;
  Kind kind = Kind::kDefault;
  int priority = 0;
  uint32_t flags = 0;
  bool available = false;  // its backend is enabled and usable, and the machine has the features
  std::string reason;      // name of the reason if it is not available
  std::string detail;      // the reason as a sentence
  uint64_t calls = 0;      // how often it ran and succeeded
  uint64_t failures = 0;
};

struct OpInfo {
  std::string name, schema, summary;
  std::vector<KernelInfo> kernels;           // by id
  std::vector<yard_tolerance_t> tolerances;  // by dtype, where they are not the default
};

struct BackendInfo {
  std::string name, vendor, summary;
  bool available = false;
  std::string reason, detail;
  size_t kernels = 0;
};

struct Listing {
  uint64_t generation = 0;
  std::vector<OpInfo> ops;            // by name
  std::vector<BackendInfo> backends;  // by name
  YARD_API const OpInfo* find_op(std::string_view name) const noexcept;
  YARD_API std::vector<KernelInfo> find_kernels(std::string_view id) const;
};

}  // namespace yard
