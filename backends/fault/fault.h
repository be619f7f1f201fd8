// SPDX-License-Identifier: Apache-2.0
// Kernels that misbehave on command, for tests of what a host does about it.
//
// A FaultKernel makes a descriptor for any op. What it does is a Behaviour, a plain value that may
// be changed at any time from any thread, also from inside the kernel: a call takes the one in
// force when it begins. A call that `rate` and `when` pick misbehaves; every other call is served
// honestly.
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

// What a call does that is picked, in the order of the members from `delay` on.
struct Behaviour {
  // Which calls are picked: all that satisfy `when`, and of those this share. The same seed and the
  // same number of draws pick the same calls.
  double rate = 1;
  Arguments when = {};

  std::chrono::nanoseconds delay = {};
  // Waits for release().
  bool blocks = false;
  // Runs inside the kernel: may call ops, register kernels, fork. Not YARD_OK: the call fails with
  // it.
  Callback callback = {};
  // Fails with this code and message, or by an exception; before that it scribbles over the first
  // half of every output if requested.
  bool after_writing = false;
  Throws throws = Throws::kNothing;
  yard_code_t code = YARD_OK;
  std::string message = "injected";
  // Reports success, with `offset` added to every element of every output.
  bool wrong_numbers = false;
  double offset = 1;

  // How calls are served that do not fail: by this kernel's `run`, or, without one, by filling
  // every output with `marker`, so that a test can see which kernel ran.
  const yard_kernel_t* delegate = nullptr;
  double marker = 42;
};

// Picks calls in which dimension `axis` of tensor argument `argument` is at least `size`. Negative
// axes count from the end.
Arguments dim_at_least(uint32_t argument, int axis, int64_t size);

// What every byte of a scribbled element is: a large number in each float type.
inline constexpr uint8_t kScribble = 0x5a;

// What a kernel is to the host; fixed for its life.
struct Spec {
  std::string op = {};
  std::string id = "fault.test";
  // Which arguments are written; the backend reads no schema.
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

  // A copy to register, or to change first (limits, verifier, cost). Its strings and `self` are
  // this object's. It offers no typed entry.
  yard_kernel_t descriptor() const noexcept;

  // Calls that begin from now on behave so.
  void set(Behaviour behaviour);

  // Releases every call that began before; later ones block again while the behaviour requires it.
  void release() noexcept;
  // How many calls are blocked now.
  int waiters() const noexcept { return waiters_.load(); }
  // Waits until at least `count` are; false if that takes longer than `patience`.
  bool wait_for_waiters(int count, std::chrono::milliseconds patience) const;

  uint64_t calls() const noexcept { return calls_.load(); }  // begun
  uint64_t failures() const noexcept {
    return failures_.load();
  }  // ended by a code or an exception
  uint64_t corrupted() const noexcept {
    return corrupted_.load();
  }                                                       // ended well, with wrong numbers
  int active() const noexcept { return active_.load(); }  // inside now

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
  std::atomic<uint32_t> released_{0};  // how often; blocked calls wait for it to move
  std::atomic<int> waiters_{0};
  std::mutex mutex_;                                    // of kept_, taken by set() only
  std::vector<std::unique_ptr<const Behaviour>> kept_;  // the last is in force
};

// The backend of fault kernels, with a probe that returns what is set. Must outlive its
// registration.
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
