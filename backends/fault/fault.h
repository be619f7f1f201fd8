// SPDX-License-Identifier: Apache-2.0
// Kernels that misbehave on command, for tests of what a host does about it.
//
// A FaultKernel makes a descriptor for any op. Its Behaviour may be changed at any time from any
// thread, also from inside the kernel. A call uses the behaviour that is in force when the call
// begins. Calls that `rate` and `when` pick misbehave, and all other calls are served honestly.
//
//   yard::fault::FaultBackend backend;
//   yard::fault::FaultKernel kernel({.op = "rms_norm", .id = "fault.a", .outputs = {0}});
//   kernel.set({.code = YARD_FAULT, .rate = 0.25, .after_writing = true});
//   registry.add(backend.descriptor(), kernel.descriptor());
//
// Serving takes no lock, so that a kernel may fork while others run.
#pragma once

#include <yard/plugin.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace yard::fault {

enum class Throws {
  kNothing,
  kStandard,  // std::runtime_error with the behaviour's message
  kForeign,   // a Foreign, which no handler of std::exception sees
};
struct Foreign {};

using Arguments = std::function<bool(const yard_value_t* args, uint32_t count)>;
using Callback =
    std::function<int32_t(yard_call_t* call, const yard_value_t* args, uint32_t count)>;

// Describes what picked calls do, in the order of the members from `delay` on.
struct Behaviour {
  // Picks the share `rate` of the calls that satisfy `when`. Equal seeds and equal numbers of draws
  // pick equal calls.
  double rate = 1;
  Arguments when = {};

  std::chrono::nanoseconds delay = {};
  // Blocks the call until release().
  bool blocks = false;
  // Runs inside the kernel, and may call ops, register kernels or fork. The call fails with its
  // result unless that is YARD_OK.
  Callback callback = {};
  // The call fails with this code and message, or throws. If `after_writing` is set, it first
  // scribbles over the first half of every output.
  bool after_writing = false;
  Throws throws = Throws::kNothing;
  yard_code_t code = YARD_OK;
  std::string message = "injected";
  // The call succeeds, with `offset` added to every element of every output.
  bool wrong_numbers = false;
  double offset = 1;

  // Calls that do not fail run this kernel. If there is none, they fill every output with `marker`,
  // so that a test can see which kernel ran.
  const yard_kernel_t* delegate = nullptr;
  double marker = 42;
};

// Picks calls in which dimension `axis` of tensor argument `argument` is at least `size`. Negative
// axes count from the end.
Arguments dim_at_least(uint32_t argument, int axis, int64_t size);

// Every byte of a scribbled element. Gives a large number in each float type.
inline constexpr uint8_t kScribble = 0x5a;

// How a kernel describes itself to the host. Does not change after construction.
struct Spec {
  std::string op = {};
  std::string id = "fault.test";
  // The arguments that the kernel writes. The backend does not read the schema.
  std::vector<uint32_t> outputs = {0};
  std::string backend = "fault";
  yard_kind_t kind = YARD_KIND_DEFAULT;
  int32_t priority = 0;
  uint32_t flags = 0;
  uint64_t seed = 1;
};

// Must outlive every call and every registration of its descriptor. All functions may be called
// from any thread at any time.
class FaultKernel {
 public:
  explicit FaultKernel(Spec spec, Behaviour behaviour = {});
  ~FaultKernel();
  FaultKernel(const FaultKernel&) = delete;
  FaultKernel& operator=(const FaultKernel&) = delete;

  // Returns a copy, which may be changed (limits, verifier, cost) before it is registered. Its
  // strings and `self` belong to this object. It has no typed entry.
  yard_kernel_t descriptor() const noexcept;

  // Applies to calls that begin from now on.
  void set(Behaviour behaviour);

  // Releases every call that began before. Later calls block again if the behaviour says so.
  void release() noexcept;
  int waiters() const noexcept { return waiters_.load(); }
  // Waits until at least `count` calls are blocked. Returns false after `patience`.
  bool wait_for_waiters(int count, std::chrono::milliseconds patience) const;

  // These count the calls that began, that ended with a code or an exception, that returned wrong
  // numbers, and that run now.
  uint64_t calls() const noexcept { return calls_.load(); }
  uint64_t failures() const noexcept { return failures_.load(); }
  uint64_t corrupted() const noexcept { return corrupted_.load(); }
  int active() const noexcept { return active_.load(); }

 private:
  class Entry;
  static int32_t run(yard_call_t* call, const yard_value_t* args, uint32_t count);
  int32_t serve(const Behaviour& b, yard_call_t* call, const yard_value_t* args,
                uint32_t count) const;
  int32_t misbehave(const Behaviour& b, uint32_t ticket, yard_call_t* call,
                    const yard_value_t* args, uint32_t count);
  bool picks(const Behaviour& b, const yard_value_t* args, uint32_t count);
  void block(uint32_t ticket);
  template <class F>
  void for_each_output(const yard_value_t* args, uint32_t count, const F& f) const;

  const Spec spec_;
  std::atomic<const Behaviour*> behaviour_;
  std::atomic<int> active_{0};
  std::atomic<uint64_t> calls_{0}, draws_{0}, failures_{0}, corrupted_{0};
  std::atomic<uint32_t> released_{0};  // counts releases; a blocked call waits for a change
  std::atomic<int> waiters_{0};
  std::mutex mutex_;                                    // guards kept_; only set() takes it
  std::vector<std::unique_ptr<const Behaviour>> kept_;  // the last is in force
};

// The backend, whose probe returns the value that is set. Must outlive its registration.
class FaultBackend {
 public:
  explicit FaultBackend(std::string name = "fault", std::string vendor = {});
  FaultBackend(const FaultBackend&) = delete;
  FaultBackend& operator=(const FaultBackend&) = delete;

  yard_backend_t descriptor() const noexcept;
  void set_available(bool available) noexcept { available_ = available; }
  uint64_t probes() const noexcept { return probes_.load(); }

 private:
  static int32_t probe(void* self, const yard_host_t* host, yard_device_t device,
                       yard_verdict_t* why);
  const std::string name_, vendor_;
  std::atomic<bool> available_{true};
  std::atomic<uint64_t> probes_{0};
};

}  // namespace yard::fault
