// SPDX-License-Identifier: Apache-2.0
// The ops, backends and kernels of a runtime, and changes to them while calls run.
//
// A change is applied as a whole or not at all, and the next call sees all of it. Adding again what is registered is fine;
// adding something else under the same name is an error that names both. plugin.hpp makes the descriptors.
//
//   void scale_rows(yard::plugin::Call, yard::plugin::Tensor out, yard::plugin::Tensor x, double by);
//
//   yard::Changes c;
//   c.add_op(yard::plugin::OpDef("scale(out!: T[n], x: T[n], by: float = 1.0)"));
//   c.add_kernel(yard::plugin::Kernel::of<scale_rows>("scale", "default.rows"));
//   yard::Runtime::shared().apply(std::move(c)).or_throw();
#pragma once

#include <yard/plugin.h>
#include <yard/policy.h>
#include <yard/status.h>

#include <chrono>
#include <memory>
#include <vector>

namespace yard {

namespace detail {
struct ChangeList;
struct TicketState;
}  // namespace detail

// Additions, replacements and removals, in order. Descriptors are copied at once. Function pointers and `self` stay in use
// until what was added is gone; `keep` is held that long. An invalid descriptor is reported by apply().
class YARD_API Changes {
 public:
  Changes();
  ~Changes();
  Changes(Changes&&) noexcept;
  Changes& operator=(Changes&&) noexcept;

  Changes& add_op(const yard_op_t& op, std::shared_ptr<void> keep = {});
  Changes& add_backend(const yard_backend_t& backend, std::shared_ptr<void> keep = {});
  // A kernel that names no backend belongs to the one that its id begins with ("default" of "default.rows"), which is
  // made if there is none. A kernel of kind reference is a conflict unless the program has added its op.
  Changes& add_kernel(const yard_kernel_t& kernel, std::shared_ptr<void> keep = {});
  // An implementation of a function (yard/function.h).
  Changes& add_function(const yard_function_t& function, std::shared_ptr<void> keep = {});
  // Everything a plugin descriptor lists.
  Changes& add_plugin(const yard_plugin_t& plugin, std::shared_ptr<void> keep = {});
  // Replaces the kernel with that op and id; an error if there is none.
  Changes& replace_kernel(const yard_kernel_t& kernel, std::shared_ptr<void> keep = {});
  Changes& remove_kernel(std::string op, std::string id);
  // With all its kernels and functions.
  Changes& remove_backend(std::string name);
  Changes& remove_op(std::string name);
  // Calls the backend's probe again before its kernels are next considered.
  Changes& reprobe(std::string backend);

 private:
  friend class Runtime;
  std::unique_ptr<detail::ChangeList> list_;
};

// Tells when all that a change removed is gone: no call uses it and its `keep` has been released. A forked child does not
// release what came from its parent.
class YARD_API Ticket {
 public:
  Ticket();
  explicit Ticket(std::shared_ptr<detail::TicketState> state);
  ~Ticket();
  Ticket(const Ticket&);
  Ticket& operator=(const Ticket&);
  // Never blocks. Any thread, also inside a kernel.
  bool done() const;
  // Waits. Inside a kernel, verifier or callback this is the error `would_deadlock`.
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
  std::string reason;      // name of the reason why not; empty when available
  std::string detail;      // the same as a sentence
  uint64_t calls = 0;      // how often it ran and succeeded
  uint64_t failures = 0;
};

struct OpInfo {
  std::string name, schema, summary;
  std::vector<KernelInfo> kernels;  // by id
  // How far from the reference a right kernel may be, per dtype; a dtype not listed has the usual one.
  std::vector<yard_tolerance_t> tolerances;
};

struct BackendInfo {
  std::string name, vendor, summary;
  bool available = false;
  std::string reason, detail;
  size_t kernels = 0;
};

// Everything, at one moment.
struct Listing {
  uint64_t generation = 0;
  std::vector<OpInfo> ops;            // by name
  std::vector<BackendInfo> backends;  // by name
  YARD_API const OpInfo* find_op(std::string_view name) const noexcept;
  YARD_API std::vector<KernelInfo> find_kernels(std::string_view id) const;
};

}  // namespace yard
