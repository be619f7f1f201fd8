// SPDX-License-Identifier: Apache-2.0
// The descriptor of backend `openblas`.

#include <yard/plugin.hpp>

#include "cost.h"
#include "kernels.h"
#include "library.h"

namespace yard::openblas {
namespace {

const char* const kReasons[] = {
    "libopenblas.so.0 cannot be opened, or is none",
    "OpenBLAS was built for OpenMP, whose threads do not exist in a forked child",
};

int32_t probe(void*, const yard_host_t*, yard_device_t, yard_verdict_t* why) {
  switch (Library::get().state()) {
    case Library::State::kReady: return YARD_OK;
    case Library::State::kMissing: why->reason = YARD_REASON_OWN; break;
    case Library::State::kOpenMP: why->reason = YARD_REASON_OWN + 1; break;
  }
  return YARD_DECLINED;
}

double size_of(int64_t field) { return static_cast<double>(field < 0 ? 0 : field); }

const char* const kMatmulReads[] = {"batch", "m", "n", "k", nullptr};
double matmul_cost(void*, const int64_t* f, uint32_t) {
  return size_of(f[0]) * product_ns(size_of(f[1]), size_of(f[2]), size_of(f[3]));
}

const char* const kLinearReads[] = {"rows", "n", "k", nullptr};
double linear_cost(void*, const int64_t* f, uint32_t) {
  return product_ns(size_of(f[0]), size_of(f[1]), size_of(f[2]));
}
double converting_cost(void* self, const int64_t* f, uint32_t count) {
  return linear_cost(self, f, count) + convert_ns(size_of(f[1]) * size_of(f[2]));
}

plugin::Kernel kernel(plugin::Kernel of) {
  return of.backend("openblas").kind(YARD_KIND_VENDOR).flags(YARD_KERNEL_FAILS_BEFORE_WRITING);
}

plugin::Plugin make() {
  static constexpr yard_limit_t matmul_limits[] = {plugin::dtypes({YARD_F32}), plugin::aligned(4)};
  static constexpr yard_limit_t f32_limits[] = {plugin::dtypes({YARD_F32}), plugin::plain(),
                                                plugin::inner_dense(), plugin::aligned(4)};
  static constexpr yard_limit_t converting_limits[] = {
      plugin::dtypes({YARD_F32, YARD_BF16}, "x"),
      plugin::dtypes({YARD_BF16, YARD_Q8_0, YARD_Q4_0, YARD_Q4_1, YARD_Q4_K, YARD_Q6_K}, "weight"),
      plugin::plain(), plugin::inner_dense(), plugin::aligned(2)};
  plugin::Plugin p("openblas", "builtin");
  p.add(plugin::Backend("openblas")
            .vendor("openblas")
            .summary("matrix products of OpenBLAS")
            .probe(probe)
            .reasons(kReasons));
  p.add(kernel(plugin::Kernel::of<matmul>("matmul", "vendor.openblas"))
            .summary("one product for each matrix of the batch")
            .limits(matmul_limits)
            .workspace<matmul_workspace>()
            .cost(matmul_cost, kMatmulReads));
  p.add(kernel(plugin::Kernel::of<linear>("linear", "vendor.openblas"))
            .summary("one product in f32")
            .limits(f32_limits)
            .workspace<linear_workspace>()
            .cost(linear_cost, kLinearReads));
  p.add(kernel(plugin::Kernel::of<linear>("linear", "vendor.openblas_panels"))
            .summary("weights as f32, some rows at a time, then products of these")
            .limits(converting_limits)
            .workspace<linear_workspace>()
            .cost(converting_cost, kLinearReads));
  return p;
}

}  // namespace

const yard_plugin_t* descriptor() { return plugin::made_once<make>(); }

}  // namespace yard::openblas

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t* host) {
  yard::plugin::set_cost_host(host);
  return yard::openblas::descriptor();
}
