// SPDX-License-Identifier: Apache-2.0
// `linear` over weights with few bits that were packed once, when an instance loaded them.
#include "linear.h"
#include "packed_weight.h"

namespace yard::simd {

// The weight may be any tensor. Only when a call uses the state does the host compare weights.
int32_t PackedWeight::load(Call call, plugin::Named weights) {
  weight_ = weights.tensor("weight");
  const auto fits = [](Tensor w) {
    const std::optional<Format> format = w ? format_of(w) : std::nullopt;
    return format && is_packed(*format) && w.rank() == 2 && w.c()->device.type == 1 &&
           (w.numel() == 0 || w.data<void>() != nullptr) && (w.size(1) <= 1 || w.stride(1) == 1);
  };
  if (fits(weight_)) return YARD_OK;
  return call.fail(YARD_DECLINED,
                   "it packs weights of q4_0, q4_1, q6_k or q8_0 [n, k] with dense rows");
}

int32_t PackedWeight::prepare(Call call, plugin::Arguments) {
  if (!weight_) return call.fail(YARD_DECLINED, "no weight is loaded");
  const PackedKernels& kernels = quant_kernels().packed;
  const int64_t n = weight_.size(0), k = weight_.size(1);
  const QuantWeight weight{*format_of(weight_), weight_.data<uint8_t>(),
                           n * k > 0 ? stride_bytes(weight_, 0) : 0, k};
  const int64_t each = kernels.panel_bytes(weight.format, blocks_of(k));
  const int64_t panels = (n + kPanelRows - 1) / kPanelRows;
  constexpr int64_t kAlignment = 64;
  bytes_ = panels * each;
  packed_.reset(static_cast<uint8_t*>(
      std::aligned_alloc(kAlignment, static_cast<size_t>(std::max(bytes_, kAlignment)))));
  if (packed_ == nullptr)
    return call.fail(YARD_TRANSIENT, "no memory for a packed weight of %lld bytes",
                     static_cast<long long>(bytes_));
  call.parallel_for(panels, grain_of(each), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      pack_panel(kernels, weight, p * kPanelRows, std::min(n, (p + 1) * kPanelRows),
                 packed_.get() + p * each);
  });
  return YARD_OK;
}

int32_t linear_packed(Call call, Tensor out, Tensor x, Tensor weight, Tensor scale, Tensor bias) {
  if (out.numel() == 0) return YARD_OK;
  return linear_quantized(call, Linear(out, x, weight, scale, bias), *format_of(weight),
                          call.state<const PackedWeight>()->data());
}

int64_t linear_packed_workspace(Tensor, Tensor x, Tensor weight, Tensor, Tensor) {
  return linear_quantized_workspace(x.rows(), weight.size(1), true);
}

}  // namespace yard::simd
