// SPDX-License-Identifier: Apache-2.0
// The descriptor of backend `onednn`.
#include <yard/plugin.hpp>

#include <algorithm>
#include <dnnl.hpp>

#include "cost.h"
#include "kernels.h"
#include "packed.h"
#include "process.h"

namespace yard::onednn {
namespace {

const char* const kReasons[] = {
    "its OpenMP threads do not exist in a forked child",
    "it was compiled for oneDNN {0} and runs with {1}",
    "oneDNN finds no processor it can use",
    "no thread can be started, and its OpenMP library ends the process then",
};

// Touches no OpenMP thread, because asking must not make a process that cannot be forked.
int32_t probe(void*, const yard_host_t*, yard_device_t, yard_verdict_t* why) {
  watch_forks();
  stop_profiling();
  const dnnl_version_t* version = dnnl_version();
  if (forked()) {
    why->reason = YARD_REASON_OWN;
  } else if (version->major != DNNL_VERSION_MAJOR) {
    why->reason = YARD_REASON_OWN + 1;
    why->figures[0] = DNNL_VERSION_MAJOR, why->figures[1] = version->major;
  } else if (dnnl_engine_get_count(dnnl_cpu) == 0) {
    why->reason = YARD_REASON_OWN + 2;
  } else if (!can_start(1)) {
    why->reason = YARD_REASON_OWN + 3;
  } else {
    return YARD_OK;
  }
  return YARD_DECLINED;
}

template <auto F>
plugin::Kernel kernel(const char* op, std::span<const yard_limit_t> limits) {
  return plugin::Kernel::of<F>(op, "vendor.onednn")
      .backend("onednn")
      .summary("oneDNN's primitive; rows it would get wrong in double")
      .kind(YARD_KIND_VENDOR)
      .flags(YARD_KERNEL_DETERMINISTIC | YARD_KERNEL_FAILS_BEFORE_WRITING)
      .limits(limits);
}

double size_of(int64_t field) { return static_cast<double>(field < 0 ? 0 : field); }

const char* const kLinearReads[] = {"rows", "n", "k", nullptr};
template <bool bf16, bool packed = false>
double linear_cost(void*, const int64_t* f, uint32_t) {
  return product_ns(bf16, size_of(f[0]), size_of(f[1]), size_of(f[2]), packed);
}

const char* const kPackingReasons[] = {"oneDNN packs no such weights for this processor"};
const char* const kReadsNothing[] = {nullptr};
template <bool bf16>
int32_t verify_packing(const yard_query_t*, yard_verdict_t* why) {
  if (packs_weights(bf16)) return YARD_OK;
  why->reason = YARD_REASON_OWN;
  return YARD_DECLINED;
}

const char* const kMatmulReads[] = {"batch", "m", "n", "k", nullptr};
template <bool bf16>
double matmul_cost(void*, const int64_t* f, uint32_t) {
  return size_of(f[0]) * product_ns(bf16, size_of(f[1]), size_of(f[2]), size_of(f[3]));
}

plugin::Kernel product(plugin::Kernel of, const char* summary = "oneDNN's product of matrices") {
  return of.backend("onednn")
      .summary(summary)
      .kind(YARD_KIND_VENDOR)
      .flags(YARD_KERNEL_FAILS_BEFORE_WRITING);
}

// For instances that have loaded the weight.
template <bool bf16>
plugin::Kernel packed_linear(const char* id) {
  return plugin::with_state<PackedWeight>(
             product(plugin::Kernel::of<linear_packed>("linear", id),
                     "oneDNN's product with a weight that was packed once"),
             nullptr, nullptr, "weight: W[n, k]")
      .verify(verify_packing<bf16>, kReadsNothing)
      .reasons(kPackingReasons)
      .cost(linear_cost<bf16, true>, kLinearReads);
}

const char* const kAttentionReads[] = {"batch", "heads", "seq", "kv_seq", "dim", nullptr};
template <bool bf16, bool causal>
double attention_cost(void*, const int64_t* f, uint32_t) {
  const double rows = size_of(f[0]) * size_of(f[1]) * size_of(f[2]), keys = size_of(f[3]);
  // A causal call has half of the scores, and the whole blocks on the diagonal.
  const double scores = rows * (causal ? (keys - size_of(f[2]) / 2 + 256) : keys);
  return attention_ns(bf16, std::min(scores, rows * keys), size_of(f[4]), rows / 128);
}

// Blocks are padded to 64 keys and elements, so small blocks would take many times the memory of
// their tensors. For longer heads, f32 sums come near the tolerance.
void add_attention(plugin::Plugin& p) {
  using plugin::at_least, plugin::dtypes;
  static constexpr yard_limit_t f32[] = {
      dtypes({YARD_F32}), plugin::absent("mask"), plugin::plain(),     plugin::inner_dense(),
      plugin::aligned(4), at_least("kv_seq", 64), at_least("dim", 16), plugin::at_most("dim", 256)};
  static constexpr yard_limit_t bf16[] = {dtypes({YARD_BF16}), plugin::absent("mask"),
                                          plugin::plain(),     plugin::inner_dense(),
                                          plugin::aligned(2),  at_least("kv_seq", 64),
                                          at_least("dim", 16), plugin::at_most("dim", 256)};
  const auto attention = [](plugin::Kernel k) {
    return k.backend("onednn")
        .summary("oneDNN's products of matrices with an online softmax between them")
        .kind(YARD_KIND_VENDOR)
        .workspace<attention_workspace>();
  };
  using plugin::Kernel;
  p.add(attention(Kernel::of<attention_full>("attention.full", "vendor.onednn"))
            .limits(f32)
            .cost(attention_cost<false, false>, kAttentionReads));
  p.add(attention(Kernel::of<attention_causal>("attention.causal", "vendor.onednn"))
            .limits(f32)
            .cost(attention_cost<false, true>, kAttentionReads));
  p.add(attention(Kernel::of<attention_full>("attention.full", "vendor.onednn_bf16"))
            .limits(bf16)
            .features("avx512bf16")
            .cost(attention_cost<true, false>, kAttentionReads));
  p.add(attention(Kernel::of<attention_causal>("attention.causal", "vendor.onednn_bf16"))
            .limits(bf16)
            .features("avx512bf16")
            .cost(attention_cost<true, true>, kAttentionReads));
}

void add_products(plugin::Plugin& p) {
  using plugin::at_least, plugin::compact, plugin::dtypes;
  static constexpr yard_limit_t f32[] = {dtypes({YARD_F32}), compact(), plugin::aligned(4),
                                         at_least("k", 1)};
  static constexpr yard_limit_t bf16[] = {dtypes({YARD_BF16}), compact(), plugin::aligned(2),
                                          at_least("k", 1)};
  p.add(product(plugin::Kernel::of<linear>("linear", "vendor.onednn"))
            .limits(f32)
            .cost(linear_cost<false>, kLinearReads));
  p.add(product(plugin::Kernel::of<linear>("linear", "vendor.onednn_bf16"))
            .limits(bf16)
            .features("avx512bf16")
            .cost(linear_cost<true>, kLinearReads));
  p.add(packed_linear<false>("vendor.onednn_packed").limits(f32));
  p.add(packed_linear<true>("vendor.onednn_packed_bf16").limits(bf16).features("avx512bf16"));
  p.add(product(plugin::Kernel::of<matmul>("matmul", "vendor.onednn"))
            .limits(f32)
            .cost(matmul_cost<false>, kMatmulReads));
  p.add(product(plugin::Kernel::of<matmul>("matmul", "vendor.onednn_bf16"))
            .limits(bf16)
            .features("avx512bf16")
            .cost(matmul_cost<true>, kMatmulReads));
}

plugin::Plugin make() {
  static constexpr yard_limit_t softmax_limits[] = {plugin::dtypes({YARD_F32}), plugin::compact(),
                                                    plugin::aligned(4)};
  static constexpr yard_limit_t layer_norm_limits[] = {plugin::dtypes({YARD_F32}),
                                                       plugin::compact(), plugin::aligned(4),
                                                       plugin::at_most("hidden", kLongestNormRow)};
  plugin::Plugin p("onednn", "builtin");
  p.add(plugin::Backend("onednn")
            .vendor("onednn")
            .summary("primitives of Intel's oneDNN")
            .flags(YARD_BACKEND_FORK_UNSAFE)
            .probe(probe)
            .reasons(kReasons));
  p.add(kernel<softmax>("softmax", softmax_limits));
  p.add(kernel<layer_norm>("layer_norm", layer_norm_limits));
  add_products(p);
  add_attention(p);
  return p;
}

}  // namespace

const yard_plugin_t* descriptor() { return plugin::made_once<make>(); }

}  // namespace yard::onednn

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t* host) {
  yard::plugin::set_cost_host(host);
  return yard::onednn::descriptor();
}
