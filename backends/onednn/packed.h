// SPDX-License-Identifier: Apache-2.0
// Holds the weight that an instance has loaded, in the form that oneDNN's product reads fastest.
#pragma once

#include <cstdlib>
#include <memory>

#include "kernels.h"
#include "primitives.h"

namespace yard::onednn {

// The state of linear_packed(). The host uses it only for calls that pass the loaded weight.
class PackedWeight {
 public:
  explicit PackedWeight(plugin::Named) noexcept {}
  int32_t load(Call call, plugin::Named weights);
  int32_t prepare(Call call, plugin::Arguments args);
  int64_t bytes() const noexcept { return bytes_; }
  // Returns null if the weight has no elements.
  void* data() const noexcept { return packed_.get(); }

 private:
  struct Free {
    void operator()(void* p) const noexcept { std::free(p); }
  };
  Tensor weight_{nullptr};
  std::unique_ptr<void, Free> packed_;
  int64_t bytes_ = 0;
};

// Whether oneDNN packs weights into blocks on this processor. Found out once.
bool packs_weights(bool bf16);

// Returns the key of the primitive that packs a weight [n, k], whose rows are `stride` apart, for
// the product x * weight^T.
Key pack_key(bool bf16, int64_t n, int64_t k, int64_t stride);

}  // namespace yard::onednn
