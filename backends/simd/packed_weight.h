// SPDX-License-Identifier: Apache-2.0
// Holds the weight that an instance has loaded, packed for the integer dot products of quant.h.
#pragma once

#include <cstdlib>
#include <memory>

#include "kernels.h"
#include "quant.h"

namespace yard::simd {

// The state of linear_packed(). The host uses it only for calls that pass the loaded weight.
class PackedWeight {
 public:
  explicit PackedWeight(plugin::Named) noexcept {}
  int32_t load(Call call, plugin::Named weights);
  int32_t prepare(Call call, plugin::Arguments args);
  int64_t bytes() const noexcept { return bytes_; }
  // Returns the panels of the weight.
  const uint8_t* data() const noexcept { return packed_.get(); }

 private:
  struct Free {
    void operator()(uint8_t* p) const noexcept { std::free(p); }
  };
  Tensor weight_{nullptr};
  std::unique_ptr<uint8_t, Free> packed_;
  int64_t bytes_ = 0;
};

}  // namespace yard::simd
