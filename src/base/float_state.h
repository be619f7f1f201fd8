// SPDX-License-Identifier: Apache-2.0
// The floating-point control state of a thread: rounding mode, flush-to-zero, traps.
#pragma once

#include <cstdint>

namespace yard::base {

// The destructor restores the state, because plugins may change it: opening a library that was
// linked with `gcc -ffast-math` sets flush-to-zero. Sticky exception flags stay.
class FloatState {
 public:
  FloatState() noexcept : control_(read()) {}
  ~FloatState() { restore(); }
  FloatState& operator=(FloatState&&) = delete;

  // Returns whether the state had changed.
  bool restore() const noexcept {
    if (read() == control_) [[likely]]
      return false;
    write(control_);
    return true;
  }

 private:
#if defined(__x86_64__)
  static constexpr uint32_t kFlags = 0x3f;  // sticky flags of MXCSR, masks of the x87 control word
  static uint64_t read() noexcept {
    uint32_t sse;
    uint16_t x87;  // used by long double
    __asm__ volatile("stmxcsr %0" : "=m"(sse) : : "memory");
    __asm__ volatile("fnstcw %0" : "=m"(x87) : : "memory");
    return uint64_t{x87} << 32 | (sse & ~kFlags);
  }
  static void write(uint64_t control) noexcept {
    uint32_t sse;
    __asm__ volatile("stmxcsr %0" : "=m"(sse));
    sse = static_cast<uint32_t>(control) | (sse & kFlags);
    const auto x87 = static_cast<uint16_t>(control >> 32);
    __asm__ volatile("ldmxcsr %0" : : "m"(sse) : "memory");
    // If the control word unmasks a pending exception, loading it would raise the exception.
    if ((x87 & kFlags) != kFlags) __asm__ volatile("fnclex" : : : "memory");
    __asm__ volatile("fldcw %0" : : "m"(x87) : "memory");
  }
#elif defined(__aarch64__)
  static uint64_t read() noexcept {
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control) : : "memory");
    return control;
  }
  static void write(uint64_t control) noexcept {
    __asm__ volatile("msr fpcr, %0" : : "r"(control) : "memory");
  }
#else
#error "unknown floating-point control registers: expected x86-64 or aarch64"
#endif

  const uint64_t control_;
};

}  // namespace yard::base
