// SPDX-License-Identifier: Apache-2.0
// Compares kernels with the reference kernels, and uses their test tensors.
#pragma once

#include <testing.h>  // of backend `reference`

#include <random>

#include "kernels.h"

namespace yard::simd::testing {

using reference::testing::kFloats;
using reference::testing::Outcome;
using reference::testing::Strides;
using reference::testing::TestTensor;

inline const yard_kernel_t* kernel_of(std::string_view op) {
  const yard_plugin_t* p = descriptor();
  for (uint32_t i = 0; i < p->kernel_count; ++i)
    if (op == p->kernels[i]->op) return p->kernels[i];
  return nullptr;
}

// Returns a host that cuts every loop into pieces of one, and runs the last piece first.
inline const yard_host_t* splitting_host() {
  static const yard_host_t host = [] {
    yard_host_t h{};
    h.size = sizeof h;
    h.parallel_for = [](void*, int64_t count, int64_t, void (*body)(void*, int64_t, int64_t),
                        void* context) -> int32_t {
      for (int64_t i = count; i-- > 0;) body(context, i, i + 1);
      return YARD_OK;
    };
    return h;
  }();
  return &host;
}

template <class... A>
Outcome run_on(const yard_host_t* host, std::string_view op, const A&... a) {
  const yard_value_t args[] = {reference::testing::value(a)...};
  return reference::testing::with_call([&](yard_call_t* call) {
    call->host = host;
    const yard_kernel_t& k = *kernel_of(op);
    std::vector<std::max_align_t> workspace;
    if (k.workspace != nullptr) {
      const int64_t bytes = k.workspace(k.self, args, sizeof...(a));
      workspace.resize(static_cast<size_t>(bytes) / sizeof(std::max_align_t) + 1);
      call->workspace = workspace.data(), call->workspace_size = static_cast<uint64_t>(bytes);
    }
    return k.run(call, args, sizeof...(a));
  });
}
template <class... A>
Outcome run(std::string_view op, const A&... a) {
  return run_on(nullptr, op, a...);
}

// Returns the tolerance that holds for inputs of any dtype.
inline yard_tolerance_t tolerance_of(std::string_view op, uint32_t dtype) {
  const yard_plugin_t* p = reference::descriptor();
  for (uint32_t i = 0; i < p->op_count; ++i) {
    const std::string_view schema = p->ops[i]->schema;
    if (!schema.starts_with(op) || schema[op.size()] != '(') continue;
    for (uint32_t k = 0; k < p->ops[i]->tolerance_count; ++k)
      if (p->ops[i]->tolerances[k].dtype == dtype && p->ops[i]->tolerances[k].input == 0)
        return p->ops[i]->tolerances[k];
  }
  ADD_FAILURE() << "no tolerance of " << op;
  return {};
}

// Expects results within the op's tolerance, and NaN and infinities where the reference has them.
inline void expect_near(std::string_view op, const TestTensor& found, const TestTensor& expected) {
  const yard_tolerance_t t = tolerance_of(op, found.dtype());
  int shown = 0;
  for (size_t n = 0; n < expected.size() && shown < 5; ++n) {
    const double f = found.at(n), e = expected.at(n);
    const bool same = f == e || (std::isnan(f) && std::isnan(e));
    if (same || (std::isfinite(e) && std::abs(f - e) <= t.atol + t.rtol * std::abs(e))) continue;
    ADD_FAILURE() << op << " dtype " << found.dtype() << ", element " << n << " of "
                  << expected.size() << ": " << f << " instead of " << e;
    ++shown;
  }
  EXPECT_TRUE(found.gaps_intact());
}

enum class Contents { kNormal, kNan, kInfinity, kDenormal, kLarge, kShifted, kZero };
inline constexpr Contents kContents[] = {Contents::kNormal,   Contents::kNan,   Contents::kInfinity,
                                         Contents::kDenormal, Contents::kLarge, Contents::kShifted,
                                         Contents::kZero};

inline TestTensor& fill(TestTensor& t, Contents contents, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(t.size());
  for (double& v : values) {
    v = normal(random);
    const bool special = random() % 29 == 0;
    switch (contents) {
      case Contents::kNan: v = special ? std::nan("") : v; break;
      case Contents::kInfinity: v = special ? std::copysign(HUGE_VAL, v) : v; break;
      case Contents::kDenormal: v *= t.dtype() == YARD_F16 ? 1e-5 : 1e-39; break;
      case Contents::kLarge: v *= t.dtype() == YARD_F16 ? 8000 : 1e19; break;
      case Contents::kShifted: v = t.dtype() == YARD_F32 ? 1000 + v : 32 + v; break;
      case Contents::kZero: v = std::copysign(0.0, v); break;
      case Contents::kNormal: break;
    }
  }
  t.set(values);
  return t;
}

}  // namespace yard::simd::testing
