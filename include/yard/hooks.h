// SPDX-License-Identifier: Apache-2.0
// Who provides hooks, and which of them are active.
//
//   yard::HookSet acme("acme");
//   acme.add(atomic_add, [](Builder& b, Value v) { return b.emit_cas_loop(v); });
//   runtime.hooks().add(acme).or_throw();                  // registered: nothing has changed yet
//   runtime.hooks().activate("acme").or_throw();           // for the process
//   runtime.hooks().activate("acme", {2, 0}).or_throw();   // for threads that are on that device
//
//   const yard::HookScope acme_only = runtime.hooks().scope("acme").value();
//   yard::ScopedHooks in(acme_only);                       // for this thread until the end of the block
//   yard::ScopedDevice on({2, 0});                         // this thread works for that device
//
// A call runs the first of: the sets the thread is in, the innermost first; what is active for its device; what is
// active for the process. Within the last two, higher priority comes first, then what was activated later. That
// one alone runs, unless it takes a yard::Next and asks for the next (hook_entry.h). A backend is asked once.
#pragma once

#include <yard/hook.h>
#include <yard/registry.h>
#include <yard/status.h>
#include <yard/tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yard {

namespace runtime {
class HookService;
}

// What a set may do to names.
enum class HookPermission {
  kOverride,  // replace what the program declares or another backend provides; a name that nobody declares is an orphan
  kAdd,       // bring names that nobody declares or provides; any other is refused
  kBoth,      // either
};

// The hooks of one backend. A value; what it holds lives until the last call has ended that runs it.
class HookSet {
 public:
  explicit HookSet(std::string backend, HookPermission permission = HookPermission::kOverride)
      : backend_(std::move(backend)), permission_(permission) {}

  // `f` takes the hook's arguments, or a Next<Signature> and those. Higher priority comes first: -1000 to 1000.
  template <class R, class... A, class F>
  HookSet& add(const Hook<R(A...)>& hook, F f, int priority = 0) {
    return add<R(A...)>(std::string(hook.name()), std::move(f), priority);
  }
  // A hook that is declared elsewhere, or not yet.
  template <class Signature, class F>
  HookSet& add(std::string name, F f, int priority = 0) {
    static_assert(detail::kImplements<F, Signature> || detail::kImplementsWithNext<F, Signature>,
                  "the implementation does not fit the hook's signature");
    Item item;
    auto kept = std::make_shared<F>(std::move(f));
    detail::describe_hook<F, Signature>(item.d);
    item.name = std::move(name), item.d.priority = priority, item.d.self = kept.get();
    item.keep = std::move(kept);
    items_.push_back(std::move(item));
    return *this;
  }

  const std::string& backend() const noexcept { return backend_; }

 private:
  friend class Hooks;
  struct Item {
    yard_hook_t d{};
    std::string name;
    std::shared_ptr<void> keep;
  };
  std::string backend_;
  HookPermission permission_;
  std::vector<Item> items_;
};

// A set that a thread can be in; see Hooks::scope(). A value.
class HookScope {
 private:
  friend class Hooks;
  friend class ScopedHooks;
  HookScope(uint32_t number, uint64_t table) noexcept : number_(number), table_(table) {}
  uint32_t number_;
  uint64_t table_;  // of which runtime
};

namespace detail {
// On the thread's list of frames as long as it lives. Ends on the thread that made it, the last one first.
class [[nodiscard]] ScopedFrame {
 public:
  ScopedFrame(const ScopedFrame&) = delete;
  ScopedFrame& operator=(const ScopedFrame&) = delete;
  static void* operator new(size_t) = delete;
  static void* operator new[](size_t) = delete;

 protected:
  ScopedFrame(uint32_t backend, yard_device_t device, uint64_t table) noexcept
      : thread_(t_thread != nullptr ? *t_thread : register_thread()),
        frame_{thread_.hooks, backend, device, table} {
    thread_.hooks = &frame_;
  }
  ~ScopedFrame() { thread_.hooks = frame_.outer; }

 private:
  ThreadHead& thread_;
  HookFrame frame_;
};
}  // namespace detail

// The thread is in the set: its hooks come first. Loops of the host (parallel_for) take it along.
class ScopedHooks : public detail::ScopedFrame {
 public:
  explicit ScopedHooks(const HookScope& scope) noexcept
      : ScopedFrame(scope.number_, {}, scope.table_) {}
};
// The thread works for the device: hooks that are active for it count.
class ScopedDevice : public detail::ScopedFrame {
 public:
  explicit ScopedDevice(Device device) noexcept : ScopedFrame(0, {device.type, device.index}, 0) {}
};

struct HookProvider {
  std::string backend;
  int priority = 0;
  bool adds = false, overrides = false;
  bool takes_next = false;
  bool definition = false;
  bool active = false;          // for the process
  std::vector<Device> devices;  // for these
  std::string off;              // why it is left out all the same; empty: it is not
};

struct HookInfo {
  std::string name, signature;
  bool declared = false;
  bool engaged = false;  // for the process
  std::vector<HookProvider>
      providers;        // as the process would ask them; then those that are not active
  std::string problem;  // empty: none
};

struct HookActivation {
  std::string backend;
  std::optional<Device> device;  // none: the process
  bool waiting = false;          // nobody brings hooks of that name yet
};

// Everything, at one moment.
struct HookListing {
  std::vector<HookInfo> hooks;              // by name and signature
  std::vector<HookActivation> activations;  // in their order
  YARD_API const HookInfo* find(std::string_view name) const noexcept;
  // Names that are provided and not declared; declared and not provided.
  YARD_API std::vector<std::string> undeclared() const;
  YARD_API std::vector<std::string> unprovided() const;
};

// The hooks of one runtime; valid as long as that is. Any thread may call any of it at any time.
class Hooks {
 public:
  // All or nothing; engages nothing by itself, unless the backend is active already. Several sets of one backend add
  // up.
  YARD_API Status add(const HookSet& set);
  // Takes the backend's hooks, and its dispatched functions, out. The ticket tells when no call runs them any more.
  YARD_API Result<Ticket> remove(std::string_view backend);

  // Again is fine, and makes it the latest. An error if nobody brings hooks under that name, unless plugins that serve
  // hooks have been found and not been opened: then it counts from when one of them does. If the name is also that
  // of a backend of kernels, that must be there and not be switched off. Device index -1: every device of that type.
  // What is active stays so through removing, unloading and loading again; while its backend is switched off, or
  // cannot be used in a forked child, it is left out. All hooks of the backend are engaged at one moment.
  YARD_API Status activate(std::string_view backend);
  YARD_API Status activate(std::string_view backend, Device device);
  // An error if it is not active there.
  YARD_API Status deactivate(std::string_view backend);
  YARD_API Status deactivate(std::string_view backend, Device device);
  // For ScopedHooks; an error as of activate(). Without effect once the backend has been removed.
  YARD_API Result<HookScope> scope(std::string_view backend) const;

  // Whether activating a backend with orphans is an error: hooks that are there to override while nobody declares
  // them; and adding them to one that is active, also by a plugin, which is refused then. Off in the beginning: then
  // they are logged.
  YARD_API void set_strict(bool on = true);

  YARD_API HookListing list() const;

  // For the library itself.
  runtime::HookService& service() const noexcept { return *service_; }

 private:
  friend class Runtime;
  explicit Hooks(runtime::HookService& service) noexcept : service_(&service) {}
  runtime::HookService* service_;
};

}  // namespace yard
