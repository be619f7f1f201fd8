// SPDX-License-Identifier: Apache-2.0
#include "cost.h"

#include <yard/plugin_cost.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "packed.h"
#include "primitives.h"
#include "process.h"

namespace yard::onednn {
namespace {

using plugin::ProductTimes;

// Finding the primitive, and starting OpenMP's threads.
constexpr double kFixedNs = 10000;

// On this thread alone: other threads of OpenMP would make a process that cannot be forked. Negative: no such product.
template <bool bf16, bool packed>
ProductTimes measure() {
  // Rows of a usual length: their distance decides on how well caches work. Packed forms have up to 64 columns in a block.
  constexpr int64_t kColumns = packed ? 64 : 32, kWidth = 4096;
  const ThreadCount one(nullptr, 1);
  std::vector<float> a(ProductTimes::kRows[2] * kWidth, 0.5f), b(kColumns * kWidth, 0.5f),
      c(ProductTimes::kRows[2] * kColumns);
  ProductTimes to;
  try {
    const Key how = pack_key(bf16, kColumns, kWidth, kWidth);
    std::vector<char> copy(packed ? static_cast<size_t>(most_packed_bytes(how)) : 0);
    if (packed) {
      Primitive pack(how);
      std::vector<char> scratchpad(pack.scratchpad_bytes() + 64);
      pack.execute({copy.data(), b.data()}, scratchpad.data());
    }
    for (size_t i = 0; i < std::size(to.ns); ++i) {
      Key key;
      key.kind = Kind::kProduct, key.bf16 = bf16, key.by_column = true, key.threads = 1;
      key.rows = ProductTimes::kRows[i], key.width = kWidth, key.columns = kColumns;
      key.left_stride = key.right_stride = kWidth, key.out_stride = kColumns;
      key.packed = packed;
      Primitive product(key);
      std::vector<char> scratchpad(product.scratchpad_bytes() + 64);
      Operands on{c.data(), a.data()};
      on.right = packed ? static_cast<void*>(copy.data()) : b.data();
      to.ns[i] =
          plugin::best_ns([&] { product.execute(on, scratchpad.data()); }) / (kColumns * kWidth);
    }
  } catch (const dnnl::error&) {
    to.ns[0] = -1;
  }
  return to;
}

}  // namespace

double product_ns(bool bf16, double m, double n, double k, bool packed) {
  using plugin::measured_once;
  const ProductTimes& times =
      packed
          ? (bf16 ? measured_once<measure<true, true>>() : measured_once<measure<false, true>>())
          : (bf16 ? measured_once<measure<true, false>>() : measured_once<measure<false, false>>());
  if (times.ns[0] < 0) return -1;
  const double alone = std::max(m, n) * k * times.at(std::min(m, n));
  return kFixedNs + alone / plugin::speed_of_threads(m * n * k / kOperationsPerThread);
}

}  // namespace yard::onednn
