// SPDX-License-Identifier: Apache-2.0
// CPU features: the compiler's run-time support on x86-64 (it looks at XCR0, so a register file that the
// operating system does not save counts as absent), the kernel's auxiliary vector on aarch64.
#include "base/cpu_features.h"

#include <algorithm>
#include <mutex>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace yard::base {
namespace {

struct Feature {
  std::string_view name;
  bool usable;
};

// Names of the other architecture: they are valid in requirements, and never met.
[[maybe_unused]] constexpr std::string_view kArmNames[] = {
    "neon", "fphp", "asimdhp", "dotprod", "i8mm",    "bf16", "sve",
    "sve2", "lse",  "crypto",  "svei8mm", "svebf16", "sme"};
[[maybe_unused]] constexpr std::string_view kX86Names[] = {
    "sse2",       "sse3",     "ssse3",    "sse4.1",   "sse4.2",     "avx",
    "avx2",       "fma",      "f16c",     "bmi1",     "bmi2",       "avx512f",
    "avx512bw",   "avx512cd", "avx512dq", "avx512vl", "avx512vnni", "avx512bf16",
    "avx512fp16", "avxvnni",  "amx_tile", "amx_int8", "amx_bf16"};

#if defined(__aarch64__)

std::vector<Feature> detect() {
  const unsigned long caps = getauxval(AT_HWCAP), caps2 = getauxval(AT_HWCAP2);
  std::vector<Feature> f = {
    {"neon", (caps & HWCAP_ASIMD) != 0},
    {"fphp", (caps & HWCAP_FPHP) != 0},
    {"asimdhp", (caps & HWCAP_ASIMDHP) != 0},
    {"dotprod", (caps & HWCAP_ASIMDDP) != 0},
    {"lse", (caps & HWCAP_ATOMICS) != 0},
    {"crypto", (caps & HWCAP_AES) != 0},
    {"sve", (caps & HWCAP_SVE) != 0},
    {"sve2", (caps2 & HWCAP2_SVE2) != 0},
    {"i8mm", (caps2 & HWCAP2_I8MM) != 0},
    {"bf16", (caps2 & HWCAP2_BF16) != 0},
    {"svei8mm", (caps2 & HWCAP2_SVEI8MM) != 0},
    {"svebf16", (caps2 & HWCAP2_SVEBF16) != 0},
#if defined(HWCAP2_SME)
    {"sme", (caps2 & HWCAP2_SME) != 0},
#else
    {"sme", false},
#endif
  };
  for (std::string_view n : kX86Names) f.push_back({n, false});
  return f;
}

#elif defined(__x86_64__)

// Which parts of the register file the operating system saves.
unsigned long long saved_state() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & (1u << 27)) == 0) return 0;
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<unsigned long long>(high) << 32) | low;
}

// Tile data must be requested from the operating system, which may refuse.
bool may_use_tiles() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

std::vector<Feature> detect() {
  unsigned a = 0, b7 = 0, c7 = 0, d7 = 0, a71 = 0, b, c, d;
  __get_cpuid_count(7, 0, &a, &b7, &c7, &d7);
  __get_cpuid_count(7, 1, &a71, &b, &c, &d);
  const unsigned long long saved = saved_state();
  const bool ymm = (saved & 0x6) == 0x6, zmm = (saved & 0xe6) == 0xe6;
  const bool tiles = (saved & 0x60000) == 0x60000 && (d7 & (1u << 24)) != 0 && may_use_tiles();
  __builtin_cpu_init();
  std::vector<Feature> f = {
      {"sse2", true},
      {"sse3", __builtin_cpu_supports("sse3") != 0},
      {"ssse3", __builtin_cpu_supports("ssse3") != 0},
      {"sse4.1", __builtin_cpu_supports("sse4.1") != 0},
      {"sse4.2", __builtin_cpu_supports("sse4.2") != 0},
      {"avx", ymm && __builtin_cpu_supports("avx")},
      {"avx2", ymm && __builtin_cpu_supports("avx2")},
      {"fma", ymm && __builtin_cpu_supports("fma")},
      {"bmi1", __builtin_cpu_supports("bmi") != 0},
      {"bmi2", __builtin_cpu_supports("bmi2") != 0},
      {"avx512f", zmm && __builtin_cpu_supports("avx512f")},
      {"avx512bw", zmm && __builtin_cpu_supports("avx512bw")},
      {"avx512cd", zmm && __builtin_cpu_supports("avx512cd")},
      {"avx512dq", zmm && __builtin_cpu_supports("avx512dq")},
      {"avx512vl", zmm && __builtin_cpu_supports("avx512vl")},
      {"avx512vnni", zmm && (c7 & (1u << 11)) != 0},
      {"avx512fp16", zmm && (d7 & (1u << 23)) != 0},
      {"avx512bf16", zmm && (a71 & (1u << 5)) != 0},
      {"avxvnni", ymm && (a71 & (1u << 4)) != 0},
      {"amx_tile", tiles},
      {"amx_int8", tiles && (d7 & (1u << 25)) != 0},
      {"amx_bf16", tiles && (d7 & (1u << 22)) != 0},
  };
  unsigned a1, b1, c1 = 0, d1;
  __get_cpuid(1, &a1, &b1, &c1, &d1);
  f.push_back({"f16c", ymm && (c1 & (1u << 29)) != 0});
  for (std::string_view n : kArmNames) f.push_back({n, false});
  return f;
}

#endif

const std::vector<Feature>& features() {
  static constinit std::once_flag once;
  static constinit const std::vector<Feature>* made = nullptr;  // never freed
  std::call_once(once, [] { made = new std::vector<Feature>(detect()); });
  return *made;
}

}  // namespace

int has_cpu_feature(std::string_view name) noexcept {
  for (const Feature& f : features())
    if (f.name == name) return f.usable ? 1 : 0;
  return -1;
}

std::vector<std::string_view> known_cpu_features() {
  std::vector<std::string_view> names;
  for (const Feature& f : features()) names.push_back(f.name);
  return names;
}

std::vector<std::string_view> cpu_features() {
  std::vector<std::string_view> names;
  for (const Feature& f : features())
    if (f.usable) names.push_back(f.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace yard::base
