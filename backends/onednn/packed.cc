// SPDX-License-Identifier: Apache-2.0
#include "packed.h"

#include <yard/plugin.hpp>

#include "process.h"

namespace yard::onednn {
namespace {

template <bool bf16>
bool has_packed_form() {
  try {
    return is_blocked(packed_form(pack_key(bf16, 4096, 4096, 4096)));
  } catch (const dnnl::error&) {
    return false;  // oneDNN has no such product
  }
}

}  // namespace

bool packs_weights(bool bf16) {
  return bf16 ? plugin::measured_once<has_packed_form<true>>()
              : plugin::measured_once<has_packed_form<false>>();
}

Key pack_key(bool bf16, int64_t n, int64_t k, int64_t stride) {
  Key key;
  key.kind = Kind::kPack, key.bf16 = bf16, key.by_column = true, key.packed = true;
  key.width = k, key.columns = n, key.right_stride = stride;
  return key;
}

// The weight may be any tensor. Only when a call uses the state does the host compare weights.
int32_t PackedWeight::load(Call call, plugin::Named weights) {
  weight_ = weights.tensor("weight");
  const auto fits = [](Tensor w) {
    return w && w.rank() == 2 && w.size(1) > 0 && (w.size(0) == 0 || w.data<void>() != nullptr) &&
           (w.dtype() == YARD_F32 || w.dtype() == YARD_BF16) && w.c()->device.type == 1 &&
           (w.size(1) == 1 || w.stride(1) == 1) && (w.size(0) <= 1 || w.stride(0) >= w.size(1));
  };
  if (fits(weight_)) return YARD_OK;
  return call.fail(YARD_DECLINED, "it packs weights of f32[n, k] or bf16[n, k] with dense rows");
}

int32_t PackedWeight::prepare(Call call, plugin::Arguments) {
  if (forked()) return call.fail(YARD_DECLINED, "oneDNN's threads do not exist in a forked child");
  if (!weight_) return call.fail(YARD_DECLINED, "no weight is loaded");
  constexpr int64_t kElementsPerThread = 1 << 16;
  const int64_t n = weight_.size(0), k = weight_.size(1);
  if (n == 0) return YARD_OK;
  const ThreadCount threads(call.c()->host, n * k / kElementsPerThread);
  Key key = pack_key(weight_.dtype() == YARD_BF16, n, k, n > 1 ? weight_.stride(0) : k);
  key.threads = threads.value();
  bytes_ = most_packed_bytes(key);
  packed_.reset(std::aligned_alloc(64, static_cast<size_t>(bytes_)));
  if (packed_ == nullptr)
    return call.fail(YARD_TRANSIENT, "no memory for a packed weight of %lld bytes",
                     static_cast<long long>(bytes_));
  try {
    // The primitive is used only once, so it does not go to the cache.
    Primitive pack(key);
    std::vector<char> scratchpad(pack.scratchpad_bytes() + 64);
    pack.execute({packed_.get(), weight_.data<void>()}, scratchpad.data());
  } catch (const dnnl::error& e) {
    return call.fail(e.status == dnnl_out_of_memory ? YARD_TRANSIENT : YARD_DECLINED,
                     "oneDNN cannot pack the weight: %s", e.what());
  }
  return YARD_OK;
}

}  // namespace yard::onednn
