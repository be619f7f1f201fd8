// SPDX-License-Identifier: Apache-2.0
// The descriptor of backend `simd`: what its kernels can take, and what they cost.
#include <mutex>

#include "cost.h"
#include "kernels.h"

namespace yard::simd {
namespace {

using plugin::inner_dense;

// Rows may lie anywhere, also on each other where they are only read; inside a row elements follow
// each other.
const yard_limit_t kDenseRows[] = {plugin::dtypes({YARD_F32, YARD_F16, YARD_BF16}), inner_dense()};
// Positions are read one by one and may have any stride.
const yard_limit_t kDenseHeads[] = {
    plugin::dtypes({YARD_F32, YARD_F16, YARD_BF16}, "query"),
    plugin::dtypes({YARD_I32, YARD_I64}, "positions"),
    plugin::dtypes({YARD_F32, YARD_F16, YARD_BF16}, "cos"),
    plugin::dtypes({YARD_F32, YARD_F16, YARD_BF16}, "sin"),
    inner_dense("query"),
    inner_dense("key"),
    inner_dense("cos"),
    inner_dense("sin"),
};

const char* const kNormReads[] = {"rows", "hidden", nullptr};
const char* const kRowReads[] = {"rows", "d", nullptr};
const char* const kHeadReads[] = {"tokens", "heads", "kv_heads", "head_dim", nullptr};

double product(const int64_t* fields, uint32_t count) {
  double n = 1;
  for (uint32_t i = 0; i < count; ++i) n *= static_cast<double>(fields[i] < 0 ? 0 : fields[i]);
  return n;
}

// Of an op whose work is the product of its fields.
constexpr Work kRmsNorm{8, 6}, kAddRmsNorm{16, 8}, kLayerNorm{8, 12}, kGate{12, 20}, kGelu{12, 36},
    kSoftmax{8, 22}, kRotary{8, 6};

template <const Work& work>
double cost(void*, const int64_t* fields, uint32_t count) {
  return estimate(rates(), work, product(fields, count));
}

double rotary_cost(void*, const int64_t* fields, uint32_t) {
  const auto size = [&](int i) { return static_cast<double>(fields[i] < 0 ? 0 : fields[i]); };
  return estimate(rates(), kRotary, size(0) * (size(1) + size(2)) * size(3));
}

template <auto F>
plugin::Kernel kernel(const char* op) {
  return plugin::Kernel::of<F>(op, "default.simd")
      .backend("simd")
      .summary("vectors of the machine's widest kind, in f32, rows shared among threads")
      .kind(YARD_KIND_DEFAULT)
      .limits(kDenseRows)
      .flags(YARD_KERNEL_DETERMINISTIC | YARD_KERNEL_CAPTURE_SAFE |
             YARD_KERNEL_FAILS_BEFORE_WRITING);
}

plugin::Plugin make() {
  plugin::Plugin p("simd", "builtin");
  p.add(plugin::Backend("simd").summary("the built-in ops over Google Highway"));
  p.add(kernel<rms_norm>("rms_norm").cost(cost<kRmsNorm>, kNormReads));
  p.add(kernel<add_rms_norm>("add_rms_norm").cost(cost<kAddRmsNorm>, kNormReads));
  p.add(kernel<layer_norm>("layer_norm").cost(cost<kLayerNorm>, kNormReads));
  p.add(kernel<silu_and_mul>("silu_and_mul").cost(cost<kGate>, kRowReads));
  p.add(kernel<gelu_and_mul>("gelu_and_mul").cost(cost<kGelu>, kRowReads));
  p.add(kernel<softmax>("softmax").cost(cost<kSoftmax>, kRowReads));
  p.add(kernel<rotary_embedding>("rotary_embedding")
            .limits(kDenseHeads)
            .cost(rotary_cost, kHeadReads));
  return p;
}

}  // namespace

const yard_plugin_t* descriptor() {
  static constinit const plugin::Plugin* made = nullptr;
  static constinit std::once_flag once;  // which a fork cannot leave taken, as it can a static's
  std::call_once(once, [] { made = new plugin::Plugin(make()); });
  return made->get();
}

}  // namespace yard::simd

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t*) {
  return yard::simd::descriptor();
}
