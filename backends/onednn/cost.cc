// SPDX-License-Identifier: Apache-2.0
#include "cost.h"

#include <yard/plugin.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "packed.h"
#include "primitives.h"
#include "process.h"

namespace yard::onednn {
namespace {

using plugin::ProductTimes;

// The time to find the primitive and to start OpenMP's threads.
constexpr double kFixedNs = 10000;

// Measures on this thread alone, because a process with more OpenMP threads cannot be forked. The
// result is negative if oneDNN has no such product.
template <bool bf16, bool packed>
ProductTimes measure() {
  // The width is typical, because the distance of rows decides how well caches work. Packed forms
  // have up to 64 columns in a block.
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

// Measures a score of attention with 128 elements per head, on this thread alone.
template <bool bf16>
double measure_score() {
  constexpr int64_t kQueries = 256, kKeys = 256, kDim = 128;
  // Zeros of f32 are also zeros of bf16.
  std::vector<float> q(kQueries * kDim), kv(kKeys * kDim), o(kQueries * kDim);
  const int64_t query_shape[] = {1, kQueries, 1, kDim}, key_shape[] = {1, kKeys, 1, kDim};
  const auto tensor = [](std::vector<float>& data, const int64_t* shape) {
    yard_tensor_t t{};
    t.data = data.data(), t.device = {1, 0}, t.ndim = 4, t.shape = shape;
    t.dtype = {static_cast<uint8_t>(bf16 ? 4 : 2), static_cast<uint8_t>(bf16 ? 16 : 32), 1};
    return t;
  };
  const yard_tensor_t query = tensor(q, query_shape), key = tensor(kv, key_shape),
                      out = tensor(o, query_shape);
  const Tensor none(nullptr);
  std::vector<char> workspace(static_cast<size_t>(
      attention_workspace(Tensor(&out), Tensor(&query), Tensor(&key), Tensor(&key), none, 0)));
  char error[256];
  yard_call_t call{};
  call.size = sizeof call, call.workspace = workspace.data(), call.error = error;
  call.workspace_size = workspace.size(), call.error_size = sizeof error;
  bool able = true;
  const double ns = plugin::best_ns([&] {
    try {
      able = able && attention_full(Call(&call), Tensor(&out), Tensor(&query), Tensor(&key),
                                    Tensor(&key), none, 0) == YARD_OK;
    } catch (const dnnl::error&) {
      able = false;
    }
  });
  return able ? ns / (kQueries * kKeys) : -1;
}

}  // namespace

double attention_ns(bool bf16, double scores, double dim, double units) {
  // The softmax of a score costs as much as kExponential products.
  constexpr double kMeasuredDim = 128, kExponential = 16;
  const double each = bf16 ? plugin::measured_once<measure_score<true>>()
                           : plugin::measured_once<measure_score<false>>();
  if (each < 0) return -1;
  const double alone = scores * each * (dim + kExponential) / (kMeasuredDim + kExponential);
  return 2 * kFixedNs + alone / plugin::speed_of_threads(units);
}

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
