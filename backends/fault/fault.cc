// SPDX-License-Identifier: Apache-2.0
// `run` avoids the wrapper of plugin.hpp, so that exceptions reach the host's own handler.
#include "fault.h"

#include <stdexcept>
#include <thread>

#include "elements.h"

namespace yard::fault {
namespace {

// Mixes the bits of a number, so that consecutive numbers give words that look independent.
uint64_t mix(uint64_t z) noexcept {
  z *= 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93u;
  z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93u;
  return z ^ (z >> 32);
}

}  // namespace

Arguments dim_at_least(uint32_t argument, int axis, int64_t size) {
  return [=](const yard_value_t* args, uint32_t count) {
    if (argument >= count || args[argument].tag != YARD_TAG_TENSOR) return false;
    const plugin::Tensor t(args[argument].u.tensor);
    const int at = axis < 0 ? axis + t.rank() : axis;
    return at >= 0 && at < t.rank() && t.size(at) >= size;
  };
}

// A call inside the kernel. It counts itself in active_ before it reads the behaviour, and set()
// stores the new behaviour before it reads active_. Therefore set() never frees a behaviour that is
// in use. The ticket is read before the behaviour, so that set() followed by release() also reaches
// calls that have the old behaviour and have yet to block.
class FaultKernel::Entry {
 public:
  explicit Entry(FaultKernel& kernel) noexcept : kernel_(kernel) {
    kernel_.active_.fetch_add(1);
    kernel_.calls_.fetch_add(1);
    ticket = kernel_.released_.load();
    behaviour = kernel_.behaviour_.load();
  }
  ~Entry() { kernel_.active_.fetch_sub(1); }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  uint32_t ticket;
  const Behaviour* behaviour;

 private:
  FaultKernel& kernel_;
};

FaultKernel::FaultKernel(Spec spec, Behaviour behaviour)
    : spec_(std::move(spec)), behaviour_(nullptr) {
  set(std::move(behaviour));
}
FaultKernel::~FaultKernel() = default;

yard_kernel_t FaultKernel::descriptor() const noexcept {
  yard_kernel_t d{};
  d.size = sizeof d;
  d.flags = spec_.flags;
  d.op = spec_.op.c_str();
  d.id = spec_.id.c_str();
  d.backend = spec_.backend.c_str();
  d.summary = "misbehaves on command";
  d.kind = spec_.kind;
  d.priority = spec_.priority;
  d.self = const_cast<FaultKernel*>(this);
  d.run = &FaultKernel::run;
  return d;
}

void FaultKernel::set(Behaviour behaviour) {
  auto next = std::make_unique<const Behaviour>(std::move(behaviour));
  std::vector<std::unique_ptr<const Behaviour>> old;  // freed after the lock
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(next));
  behaviour_.store(kept_.back().get());
  if (active_.load() == 0) {
    old.assign(std::move_iterator(kept_.begin()), std::move_iterator(kept_.end() - 1));
    kept_.erase(kept_.begin(), kept_.end() - 1);
  }
}

void FaultKernel::release() noexcept {
  released_.fetch_add(1);
  released_.notify_all();
}

bool FaultKernel::wait_for_waiters(int count, std::chrono::milliseconds patience) const {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (waiters() < count) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

void FaultKernel::block(uint32_t ticket) {
  waiters_.fetch_add(1);
  released_.wait(ticket);
  waiters_.fetch_sub(1);
}

bool FaultKernel::picks(const Behaviour& b, const yard_value_t* args, uint32_t count) {
  if (b.when && !b.when(args, count)) return false;
  const uint64_t word = mix(spec_.seed + mix(draws_.fetch_add(1) + 1));
  return static_cast<double>(word >> 11) * 0x1p-53 < b.rate;
}

template <class F>
void FaultKernel::for_each_output(const yard_value_t* args, uint32_t count, const F& f) const {
  for (const uint32_t i : spec_.outputs) {
    if (i >= count) continue;
    if (args[i].tag == YARD_TAG_TENSOR) f(plugin::Tensor(args[i].u.tensor));
    for (uint32_t k = 0; args[i].tag == YARD_TAG_LIST && k < args[i].count; ++k)
      f(plugin::Tensor(args[i].u.list[k]));
  }
}

int32_t FaultKernel::serve(const Behaviour& b, yard_call_t* call, const yard_value_t* args,
                           uint32_t count) const {
  if (b.delegate) {
    yard_call_t its = *call;
    its.self = b.delegate->self;
    return b.delegate->run(&its, args, count);
  }
  for_each_output(args, count, [&](plugin::Tensor t) { fill(t, b.marker); });
  return YARD_OK;
}

int32_t FaultKernel::misbehave(const Behaviour& b, uint32_t ticket, yard_call_t* call,
                               const yard_value_t* args, uint32_t count) {
  if (b.delay.count() > 0) std::this_thread::sleep_for(b.delay);
  if (b.blocks) block(ticket);
  if (b.callback)
    if (const int32_t code = b.callback(call, args, count); code != YARD_OK) {
      failures_.fetch_add(1);
      return code;
    }
  if (b.code != YARD_OK || b.throws != Throws::kNothing) {
    failures_.fetch_add(1);
    if (b.after_writing)
      for_each_output(args, count, [](plugin::Tensor t) { scribble_half(t, kScribble); });
    if (b.throws == Throws::kStandard) throw std::runtime_error(b.message);
    if (b.throws == Throws::kForeign) throw Foreign();
    return plugin::Call(call).fail(b.code, "%s", b.message.c_str());
  }
  const int32_t code = serve(b, call, args, count);
  if (code == YARD_OK && b.wrong_numbers) {
    corrupted_.fetch_add(1);
    for_each_output(args, count, [&](plugin::Tensor t) { add(t, b.offset); });
  }
  return code;
}

int32_t FaultKernel::run(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  auto& kernel = *static_cast<FaultKernel*>(call->self);
  const Entry entry(kernel);
  const Behaviour& b = *entry.behaviour;
  return kernel.picks(b, args, count) ? kernel.misbehave(b, entry.ticket, call, args, count)
                                      : kernel.serve(b, call, args, count);
}

FaultBackend::FaultBackend(std::string name, std::string vendor)
    : name_(std::move(name)), vendor_(std::move(vendor)) {}

yard_backend_t FaultBackend::descriptor() const noexcept {
  static const char* const reasons[] = {"switched off by the test"};
  yard_backend_t d{};
  d.size = sizeof d;
  d.name = name_.c_str();
  d.vendor = vendor_.empty() ? nullptr : vendor_.c_str();
  d.summary = "kernels that misbehave on command";
  d.self = const_cast<FaultBackend*>(this);
  d.probe = &FaultBackend::probe;
  d.reasons = reasons;
  d.reason_count = 1;
  return d;
}

int32_t FaultBackend::probe(void* self, const yard_host_t*, yard_device_t, yard_verdict_t* why) {
  auto& backend = *static_cast<FaultBackend*>(self);
  backend.probes_.fetch_add(1);
  if (!backend.available_.load()) why->reason = YARD_REASON_OWN;
  return YARD_OK;
}

}  // namespace yard::fault
