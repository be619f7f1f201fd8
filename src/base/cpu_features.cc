// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_features.h"

#include <algorithm>
#include <cstdint>

#include "base/mutex.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace yard::base {
namespace {

// Registers of cpuid on x86-64, and of the auxiliary vector on aarch64. Words of the other
// architecture are 0, so that its features are known and never usable.
enum Word : uint8_t { k1C, k1D, k7B, k7C, k7D, k71A, kHwcap, kHwcap2, kWords };

// Parts of the register file that the operating system must save (XCR0).
constexpr uint64_t kYmm = 0x6, kZmm = 0xe6, kTiles = 0x60000;

struct Feature {
  std::string_view name;
  Word word;
  uint8_t bit;
  uint64_t saved = 0;
};
// clang-format off
constexpr Feature kFeatures[] = {
    {"sse2", k1D, 26}, {"sse3", k1C, 0}, {"ssse3", k1C, 9}, {"sse4.1", k1C, 19},
    {"sse4.2", k1C, 20},
    {"bmi1", k7B, 3}, {"bmi2", k7B, 8}, {"avx", k1C, 28, kYmm}, {"avx2", k7B, 5, kYmm},
    {"fma", k1C, 12, kYmm}, {"f16c", k1C, 29, kYmm}, {"avxvnni", k71A, 4, kYmm},
    {"avx512f", k7B, 16, kZmm}, {"avx512dq", k7B, 17, kZmm}, {"avx512cd", k7B, 28, kZmm},
    {"avx512bw", k7B, 30, kZmm}, {"avx512vl", k7B, 31, kZmm}, {"avx512vnni", k7C, 11, kZmm},
    {"avx512fp16", k7D, 23, kZmm}, {"avx512bf16", k71A, 5, kZmm},
    {"amx_bf16", k7D, 22, kTiles}, {"amx_tile", k7D, 24, kTiles}, {"amx_int8", k7D, 25, kTiles},

    {"neon", kHwcap, 1}, {"crypto", kHwcap, 3}, {"lse", kHwcap, 8}, {"fphp", kHwcap, 9},
    {"asimdhp", kHwcap, 10}, {"dotprod", kHwcap, 20}, {"sve", kHwcap, 22}, {"sve2", kHwcap2, 1},
    {"svei8mm", kHwcap2, 9}, {"svebf16", kHwcap2, 12}, {"i8mm", kHwcap2, 13}, {"bf16", kHwcap2, 14},
    {"sme", kHwcap2, 23},
};
// clang-format on

struct Processor {
  uint64_t words[kWords] = {}, saved = 0;

  Processor() {
#if defined(__aarch64__)
    words[kHwcap] = ::getauxval(AT_HWCAP), words[kHwcap2] = ::getauxval(AT_HWCAP2);
#elif defined(__x86_64__)
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d)) words[k1C] = c, words[k1D] = d;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) words[k7B] = b, words[k7C] = c, words[k7D] = d;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) words[k71A] = a;
    if ((words[k1C] >> 27 & 1) != 0) {
      __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
      saved = uint64_t{d} << 32 | a;
    }
    // Tiles must be requested from the operating system (ARCH_REQ_XCOMP_PERM), which may refuse.
    const bool tiles = (words[k7D] >> 24 & 1) != 0 && (saved & kTiles) == kTiles;
    if (!tiles || ::syscall(SYS_arch_prctl, 0x1023, 18) != 0) saved &= ~kTiles;
#endif
  }
  bool has(const Feature& f) const {
    return (words[f.word] >> f.bit & 1) != 0 && (saved & f.saved) == f.saved;
  }
};

}  // namespace

int has_cpu_feature(std::string_view name) noexcept {
  const auto* const f = std::ranges::find(kFeatures, name, &Feature::name);
  return f == std::end(kFeatures) ? -1 : process_wide<Processor>().has(*f) ? 1 : 0;
}

std::vector<std::string> known_cpu_features() {
  std::vector<std::string> names;
  for (const Feature& f : kFeatures) names.emplace_back(f.name);
  return names;
}

}  // namespace yard::base
