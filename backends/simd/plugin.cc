// SPDX-License-Identifier: Apache-2.0
// The descriptor of backend `simd`: what its kernels accept, and what they cost.
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention.h"
#include "cost.h"
#include "jobs.h"
#include "kernels.h"
#include "packed_weight.h"

namespace yard::simd {
namespace {

using plugin::inner_dense;

const char* const kReasons[] = {
    "the processor has none of the instruction sets that the backend was compiled for",
};

int32_t probe(void*, const yard_host_t*, yard_device_t, yard_verdict_t* why) {
  if ((hwy::SupportedTargets() & HWY_TARGETS) != 0) return YARD_OK;
  why->reason = YARD_REASON_OWN;
  return YARD_DECLINED;
}

// Rows may lie anywhere, and may overlap if they are only read. The elements of a row are adjacent.
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

// Used if only some tensors are rows of floats.
#define YARD_FLOATS(argument) plugin::dtypes({YARD_F32, YARD_F16, YARD_BF16}, argument)
const yard_limit_t kLinear[] = {YARD_FLOATS("x"), YARD_FLOATS("weight"), inner_dense()};
const yard_limit_t kPairLinear[] = {plugin::dtypes({YARD_BF16}, "x"),
                                    plugin::dtypes({YARD_BF16}, "weight"), inner_dense()};
const yard_limit_t kQuantizedLinear[] = {
    YARD_FLOATS("x"),
    plugin::dtypes({YARD_I8, YARD_Q8_0, YARD_Q4_0, YARD_Q4_1, YARD_Q4_K, YARD_Q6_K}, "weight"),
    inner_dense(),
};
const yard_limit_t kPackedLinear[] = {
    YARD_FLOATS("x"),
    plugin::dtypes({YARD_Q8_0, YARD_Q4_0, YARD_Q4_1, YARD_Q6_K}, "weight"),
    inner_dense(),
};
const yard_limit_t kEmbedding[] = {
    YARD_FLOATS("out"),
    plugin::dtypes(
        {YARD_F32, YARD_F16, YARD_BF16, YARD_Q8_0, YARD_Q4_0, YARD_Q4_1, YARD_Q4_K, YARD_Q6_K},
        "table"),
    inner_dense("out"),
    inner_dense("table"),
};
const yard_limit_t kDequantize[] = {
    YARD_FLOATS("out"),
    plugin::dtypes({YARD_I8, YARD_Q8_0, YARD_Q4_0, YARD_Q4_1, YARD_Q4_K, YARD_Q6_K}, "x"),
    inner_dense("out"),
    inner_dense("x"),
};
const yard_limit_t kQuantize[] = {YARD_FLOATS("x"), inner_dense("out"), inner_dense("x")};
// Matrices with any strides are copied before they are multiplied.
const yard_limit_t kMatmul[] = {YARD_FLOATS("a"), inner_dense("out")};
const yard_limit_t kSample[] = {YARD_FLOATS("x"), inner_dense("x"),
                                plugin::at_most("d", std::numeric_limits<int32_t>::max())};
const yard_limit_t kArgmax[] = {YARD_FLOATS("x"), inner_dense("x")};
const yard_limit_t kTopk[] = {YARD_FLOATS("x"), inner_dense(),
                              plugin::at_most("experts", kMostExperts)};
// Masks, lengths and tables are read one by one.
const yard_limit_t kAttention[] = {
    YARD_FLOATS("query"), YARD_FLOATS("key"),
    YARD_FLOATS("value"), inner_dense("out"),
    inner_dense("query"), inner_dense("key"),
    inner_dense("value"), plugin::at_most("dim", kMostDim),
};
#undef YARD_FLOATS
const yard_limit_t kPairAttention[] = {
    plugin::dtypes({YARD_BF16}, "query"),
    inner_dense("out"),
    inner_dense("query"),
    inner_dense("key"),
    inner_dense("value"),
    plugin::at_most("dim", kMostDim),
    plugin::multiple_of("dim", 2),
};
#if defined(__x86_64__)
constexpr const char* kPairFeature = "avx512bw avx512bf16";
#else
constexpr const char* kPairFeature = "bf16";
#endif

const char* const kMatmulReads[] = {"batch", "m", "n", "k", nullptr};
const char* const kLinearReads[] = {"rows", "n", "k", nullptr};
const char* const kTopkReads[] = {"rows", "k", "experts", nullptr};
const char* const kAttentionReads[] = {"batch", "heads", "seq", "kv_seq", "dim", nullptr};
const char* const kDecodeReads[] = {"batch", "heads", "kv_heads", "dim", "capacity", nullptr};
const char* const kPagedReads[] = {"batch",      "heads", "kv_heads", "dim",
                                   "max_blocks", "block", nullptr};
const char* const kNormReads[] = {"rows", "hidden", nullptr};
const char* const kRowReads[] = {"rows", "d", nullptr};
const char* const kHeadReads[] = {"tokens", "heads", "kv_heads", "head_dim", nullptr};

double product(const int64_t* fields, uint32_t count) {
  double n = 1;
  for (uint32_t i = 0; i < count; ++i) n *= static_cast<double>(fields[i] < 0 ? 0 : fields[i]);
  return n;
}

// The work per element of ops whose work is the product of their fields.
constexpr Work kRmsNorm{8, 6}, kAddRmsNorm{16, 8}, kLayerNorm{8, 12}, kGate{12, 20}, kGelu{12, 36},
    kSampleWork{4, 80}, kSoftmax{8, 22}, kRotary{8, 6}, kElementwise{12, 2}, kArgmaxWork{4, 4},
    kQuantizeWork{5, 12}, kExpandWork{8, 8};

// A product of f32 and its addition, loads included, in operations of cost.h; measured.
constexpr double kProduct = 1.0;

template <const Work& work>
double cost(void*, const int64_t* fields, uint32_t count) {
  return estimate(rates(), work, product(fields, count));
}

double size_of(int64_t field) { return static_cast<double>(field < 0 ? 0 : field); }

double linear_cost(void*, const int64_t* fields, uint32_t) {
  return estimate_linear(linear_rates(), size_of(fields[0]),
                         size_of(fields[1]) * size_of(fields[2]));
}

double pair_linear_cost(void*, const int64_t* fields, uint32_t) {
  return estimate_pair_linear(pair_linear_times(), size_of(fields[0]),
                              size_of(fields[1]) * size_of(fields[2]));
}

// Returns the estimate of a product with weights of few bits, in operations of cost.h that were
// measured: a weight of `bytes` takes `few` if there are few rows. For many rows it is unpacked,
// which takes `unpack` for each pass, and multiplied by each row. Activations are rounded once.
double few_bits_cost(const int64_t* fields, bool packed, double bytes, double few, double unpack) {
  constexpr double kScale = 3.75, kTileProduct = 0.1;
  const double rows = size_of(fields[0]), n = size_of(fields[1]);
  const auto pieces = [&](int64_t size) { return std::ceil(rows / static_cast<double>(size)); };
  double each = few;
  if (use_tiles(fields[0]))
    each = (unpack + kScale) * pieces(kTileRowsAtATime) +
           kTileProduct * pieces(kTileRows) * static_cast<double>(kTileRows);
  else if (rows > static_cast<double>(packed ? kFewPackedRows : kFewRows))
    each = unpack * pieces(kRowsAtATime) + quant_kernels().product * rows;
  return estimate(rates(), {bytes, each + 10 * rows / std::max(n, 1.0)}, n * size_of(fields[2]));
}
double quantized_linear_cost(void*, const int64_t* fields, uint32_t) {
  return few_bits_cost(fields, false, 3, 0.8 * size_of(fields[0]), 1.25);
}
// A packed weight is read once for a few rows.
double packed_linear_cost(void*, const int64_t* fields, uint32_t) {
  return few_bits_cost(fields, true, 2, 0.2 + 0.1 * size_of(fields[0]), 0.25);
}

const char* const kPackingReasons[] = {
    "the processor has none of the instructions for which weights with few bits are packed"};
const char* const kReadsNothing[] = {nullptr};
int32_t verify_packing(const yard_query_t*, yard_verdict_t* why) {
  if (quant_kernels().packed.strip_rows != 0) return YARD_OK;
  why->reason = YARD_REASON_OWN;
  return YARD_DECLINED;
}

double matmul_cost(void*, const int64_t* fields, uint32_t) {
  return estimate_matmul(matmul_times(), size_of(fields[0]), size_of(fields[1]), size_of(fields[2]),
                         size_of(fields[3]));
}

double topk_cost(void*, const int64_t* fields, uint32_t) {
  const double k = size_of(fields[1]);
  return estimate(rates(), {4, 24 + 2 * k}, size_of(fields[0]) * size_of(fields[2]));
}

template <bool kPairs>
double attention_cost(void*, const int64_t* fields, uint32_t) {
  return estimate_attention<kPairs>(product(fields, 4), size_of(fields[4]));
}
template <bool kPairs>
double causal_cost(void* self, const int64_t* fields, uint32_t count) {
  return attention_cost<kPairs>(self, fields, count) / 2;
}

// Query heads that share a key head read its keys and values once, often from a page each.
double decode_cost(const int64_t* fields, double capacity) {
  const double heads = std::max(size_of(fields[1]), 1.0), key_heads = size_of(fields[2]);
  const double elements = size_of(fields[0]) * key_heads * capacity * size_of(fields[3]);
  return estimate(rates(), {64, 5 * kProduct * heads / std::max(key_heads, 1.0)}, elements);
}
double cache_cost(void*, const int64_t* fields, uint32_t) {
  return decode_cost(fields, size_of(fields[4]));
}
double paged_cost(void*, const int64_t* fields, uint32_t) {
  return decode_cost(fields, size_of(fields[4]) * size_of(fields[5]));
}

double rotary_cost(void*, const int64_t* fields, uint32_t) {
  const auto size = [&](int i) { return static_cast<double>(fields[i] < 0 ? 0 : fields[i]); };
  return estimate(rates(), kRotary, size(0) * (size(1) + size(2)) * size(3));
}

template <auto F>
plugin::Kernel kernel(const char* op, const char* id = "default.simd") {
  return plugin::Kernel::of<F>(op, id)
      .backend("simd")
      .summary("vectors of the machine's widest kind, in f32, rows shared among threads")
      .kind(YARD_KIND_DEFAULT)
      .limits(kDenseRows)
      .flags(YARD_KERNEL_DETERMINISTIC | YARD_KERNEL_CAPTURE_SAFE |
             YARD_KERNEL_FAILS_BEFORE_WRITING);
}

void add_products(plugin::Plugin& p) {
  p.add(kernel<add>("add").cost(cost<kElementwise>, kRowReads));
  p.add(kernel<mul>("mul").cost(cost<kElementwise>, kRowReads));
  p.add(kernel<matmul>("matmul").limits(kMatmul).cost(matmul_cost, kMatmulReads));
  p.add(kernel<linear>("linear").limits(kLinear).workspace<linear_workspace>().cost(linear_cost,
                                                                                    kLinearReads));
  p.add(kernel<linear_pairs>("linear", "default.simd_bf16")
            .summary("products of pairs of bf16; sums in f32")
            .limits(kPairLinear)
            .features(kPairFeature)
            .workspace<linear_pairs_workspace>()
            .cost(pair_linear_cost, kLinearReads));
  p.add(kernel<linear>("linear", "default.simd_int8")
            .summary("integer dot products with activations rounded to int8 in blocks of 32")
            .limits(kQuantizedLinear)
            .workspace<linear_workspace>()
            .cost(quantized_linear_cost, kLinearReads));
  p.add(plugin::with_state<PackedWeight>(
      kernel<linear_packed>("linear", "default.simd_int8_packed")
          .summary("integer dot products with a weight that was packed once")
          .limits(kPackedLinear)
          .verify(verify_packing, kReadsNothing)
          .reasons(kPackingReasons)
          .workspace<linear_packed_workspace>()
          .cost(packed_linear_cost, kLinearReads),
      nullptr, nullptr, "weight: W[n, k]"));
  p.add(kernel<embedding>("embedding").limits(kEmbedding).cost(cost<kExpandWork>, kRowReads));
  p.add(kernel<dequantize>("dequantize").limits(kDequantize).cost(cost<kExpandWork>, kRowReads));
  p.add(kernel<quantize_int8>("quantize_int8")
            .limits(kQuantize)
            .cost(cost<kQuantizeWork>, kRowReads));
  p.add(kernel<argmax>("argmax").limits(kArgmax).cost(cost<kArgmaxWork>, kRowReads));
  p.add(kernel<topk_softmax>("topk_softmax").limits(kTopk).cost(topk_cost, kTopkReads));
  p.add(kernel<sample>("sample")
            .summary("the reference's sums in double over the elements that can be chosen")
            .limits(kSample)
            .workspace<sample_workspace>()
            .cost(cost<kSampleWork>, kRowReads));
}

// Adds the kernels of attention over whole sequences. `with` adds their common properties. Only
// products of pairs need workspaces.
template <bool kPairs, class With>
void add_sequences(plugin::Plugin& p, const With& with, const char* id) {
  const auto add = [&]<auto kWorkspace>(plugin::Kernel k, auto* cost) {
    if constexpr (kPairs) k.template workspace<kWorkspace>();
    p.add(with(k).cost(cost, kAttentionReads));
  };
  add.template operator()<attention_workspace>(kernel<attention_full<kPairs>>("attention.full", id),
                                               attention_cost<kPairs>);
  add.template operator()<attention_workspace>(
      kernel<attention_causal<kPairs>>("attention.causal", id), causal_cost<kPairs>);
  add.template operator()<attention_window_workspace>(
      kernel<attention_sliding_window<kPairs>>("attention.sliding_window", id),
      causal_cost<kPairs>);
  add.template operator()<attention_cross_workspace>(
      kernel<attention_cross<kPairs>>("attention.cross", id), attention_cost<kPairs>);
}

void add_attention(plugin::Plugin& p) {
  const auto attention = [](plugin::Kernel k) {
    return k.summary("softmax over blocks of keys as they come, in f32").limits(kAttention);
  };
  add_sequences<false>(p, attention, "default.simd");
  add_sequences<true>(
      p,
      [](plugin::Kernel k) {
        return k.summary("products of pairs of bf16, with weights rounded to it; sums in f32")
            .limits(kPairAttention)
            .features(kPairFeature);
      },
      "default.simd_bf16");
  p.add(attention(kernel<attention_decode>("attention.decode"))
            .workspace<attention_decode_workspace>()
            .cost(cache_cost, kDecodeReads));
  p.add(attention(kernel<attention_paged_decode>("attention.paged_decode"))
            .workspace<attention_paged_decode_workspace>()
            .cost(paged_cost, kPagedReads));
}

plugin::Plugin make() {
  plugin::Plugin p("simd", "builtin");
  p.add(plugin::Backend("simd")
            .summary("the built-in ops over Google Highway")
            .probe(probe)
            .reasons(kReasons));
  p.add(kernel<rms_norm>("rms_norm").cost(cost<kRmsNorm>, kNormReads));
  p.add(kernel<add_rms_norm>("add_rms_norm").cost(cost<kAddRmsNorm>, kNormReads));
  p.add(kernel<layer_norm>("layer_norm").cost(cost<kLayerNorm>, kNormReads));
  p.add(kernel<silu_and_mul>("silu_and_mul").cost(cost<kGate>, kRowReads));
  p.add(kernel<gelu_and_mul>("gelu_and_mul").cost(cost<kGelu>, kRowReads));
  p.add(kernel<softmax>("softmax").cost(cost<kSoftmax>, kRowReads));
  p.add(kernel<rotary_embedding>("rotary_embedding")
            .limits(kDenseHeads)
            .cost(rotary_cost, kHeadReads));
  add_products(p);
  add_attention(p);
  return p;
}

}  // namespace

const yard_plugin_t* descriptor() { return plugin::made_once<make>(); }

}  // namespace yard::simd

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t* host) {
  yard::plugin::set_cost_host(host);
  return yard::simd::descriptor();
}
