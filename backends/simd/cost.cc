// SPDX-License-Identifier: Apache-2.0
#include "cost.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "jobs.h"
#include "kernels.h"
#include "pairs.h"
#include "rows.h"

namespace yard::simd {
namespace {

// The time of dispatch, checks and the first cache misses of any call.
constexpr double kFixedNs = 60;
// Operations per element of silu_and_mul, by which the time of an operation is measured.
constexpr double kSiluOperations = 20;

yard_tensor_t tensor_of(std::vector<float>& data, const int64_t* shape, int32_t rank) {
  yard_tensor_t t{};
  t.data = data.data(), t.device = {1, 0}, t.ndim = rank, t.dtype = {2, 32, 1}, t.shape = shape;
  return t;
}

Rates measure() {
  constexpr size_t kBytes = size_t{1} << 18;  // more than a first-level cache
  std::vector<char> from(kBytes, 1), to(kBytes);
  const double copy = plugin::best_ns([&] {
    std::memcpy(to.data(), from.data(), kBytes);
    asm volatile("" : : "r"(to.data()) : "memory");  // keeps the compiler from removing the loop
  });

  constexpr int64_t kWidth = 2048;
  std::vector<float> x(2 * kWidth, 0.5f), y(kWidth);
  const int64_t in_shape[] = {2 * kWidth}, out_shape[] = {kWidth};
  const yard_tensor_t in = tensor_of(x, in_shape, 1), out = tensor_of(y, out_shape, 1);
  yard_call_t call{};
  call.size = sizeof call;
  const double silu =
      plugin::best_ns([&] { silu_and_mul(Call(&call), Tensor(&out), Tensor(&in)); });

  return {copy / (2.0 * kBytes), silu / (kWidth * kSiluOperations)};
}

// A weight or a second matrix with more elements than this fits no cache of a core.
constexpr int64_t kCachedElements = 1 << 18;

// The width is typical, because it decides which cache rows come from.
LinearRates measure_linear() {
  constexpr int64_t kNear = 32, kFar = 256, kWidth = 4096, kRows = LinearRates::kTogether;
  static_assert(kNear * kWidth < kCachedElements && kFar * kWidth > kCachedElements);
  std::vector<float> x(kRows * kWidth, 0.5f), w(kFar * kWidth, 0.5f), y(kRows * kFar),
      workspace(kRows * kWidth);
  yard_call_t call{};
  call.size = sizeof call;
  call.workspace = workspace.data(), call.workspace_size = workspace.size() * sizeof(float);
  const auto rate = [&](int64_t rows, int64_t columns) {
    const int64_t in_shape[] = {rows, kWidth}, out_shape[] = {rows, columns};
    const int64_t weight_shape[] = {columns, kWidth};
    const yard_tensor_t weight = tensor_of(w, weight_shape, 2);
    const yard_tensor_t in = tensor_of(x, in_shape, 2), out = tensor_of(y, out_shape, 2);
    const auto run = [&] {
      linear(Call(&call), Tensor(&out), Tensor(&in), Tensor(&weight), Tensor(nullptr),
             Tensor(nullptr));
    };
    return plugin::best_ns(run) / static_cast<double>(columns * kWidth);
  };
  return {rate(1, kNear), rate(kRows, kNear), rate(1, kFar), rate(kRows, kFar)};
}

plugin::ProductTimes measure_pair_linear() {
  // With this many columns, copying the rows of x takes as small a share as in a model.
  constexpr int64_t kColumns = 1024, kWidth = 4096;
  static_assert(kColumns * kWidth > kCachedElements);
  plugin::ProductTimes to{{1, 1, 1}};
  if (pair_products() == nullptr) return to;
  constexpr int64_t kMostRows = std::end(plugin::ProductTimes::kRows)[-1];
  // Read as bf16, this memory alternates between 0.5 and 0.
  std::vector<float> x(kMostRows * kWidth, 0.5f), w(kColumns * kWidth / 2, 0.5f),
      y(kMostRows * kColumns), workspace(kMostRows * kWidth);
  yard_call_t call{};
  call.size = sizeof call;
  call.workspace = workspace.data(), call.workspace_size = workspace.size() * sizeof(float);
  const int64_t weight_shape[] = {kColumns, kWidth};
  yard_tensor_t weight = tensor_of(w, weight_shape, 2);
  weight.dtype = {4, 16, 1};
  for (size_t i = 0; i < std::size(to.ns); ++i) {
    const int64_t in_shape[] = {to.kRows[i], kWidth}, out_shape[] = {to.kRows[i], kColumns};
    yard_tensor_t in = tensor_of(x, in_shape, 2), out = tensor_of(y, out_shape, 2);
    in.dtype = out.dtype = weight.dtype;
    to.ns[i] = plugin::best_ns([&] {
                 linear_pairs(Call(&call), Tensor(&out), Tensor(&in), Tensor(&weight),
                              Tensor(nullptr), Tensor(nullptr));
               }) /
               (kColumns * kWidth);
  }
  return to;
}

// Returns the time per element of the second matrix.
double measure_matmul(int64_t m, int64_t n, int64_t k) {
  const auto size = [](int64_t elements) { return static_cast<size_t>(elements); };
  std::vector<float> a(size(m * k), 0.5f), b(size(k * n), 0.5f), c(size(m * n));
  const int64_t a_shape[] = {m, k}, b_shape[] = {k, n}, c_shape[] = {m, n};
  const yard_tensor_t left = tensor_of(a, a_shape, 2), right = tensor_of(b, b_shape, 2),
                      out = tensor_of(c, c_shape, 2);
  yard_call_t call{};
  call.size = sizeof call;
  return plugin::best_ns(
             [&] { matmul(Call(&call), Tensor(&out), Tensor(&left), Tensor(&right)); }) /
         static_cast<double>(n * k);
}

MatmulTimes measure_matmul_times() {
  constexpr int64_t kNear = 64, kWidth = 1024, kFar = 2048, kFarWidth = 256;
  static_assert(kNear * kWidth < kCachedElements && kFar * kFarWidth > kCachedElements);
  MatmulTimes to{};
  for (size_t i = 0; i < std::size(to.cached.ns); ++i)
    to.cached.ns[i] = measure_matmul(to.cached.kRows[i], kNear, kWidth);
  const auto far = [&](int64_t rows) {
    return std::max(measure_matmul(rows, kFar, kFarWidth) - to.cached.at(static_cast<double>(rows)),
                    0.0);
  };
  to.far_of_few = far(1), to.far_of_pass = far(Matmul::kFewRows + 1);
  return to;
}

// Measures one head of kMeasuredDim among others, with rows as far apart as in a model.
constexpr double kMeasuredDim = 128;
template <bool kPairs>
double measure_score() {
  // Pairs copy keys that many queries read.
  constexpr int64_t kQueries = kPairs ? 256 : 64, kKeys = 256, kDim = 128, kRow = 8 * kDim;
  // Read as bf16, the first half of this memory alternates between 0.5 and 0.
  std::vector<float> q(kQueries * kRow, 0.5f), kv(kKeys * kRow, 0.5f), o(kQueries * kRow);
  const int64_t query_shape[] = {1, kQueries, 1, kDim}, key_shape[] = {1, kKeys, 1, kDim};
  const int64_t strides[] = {kKeys * kRow, kRow, kDim, 1};
  yard_tensor_t query = tensor_of(q, query_shape, 4), key = tensor_of(kv, key_shape, 4),
                out = tensor_of(o, query_shape, 4);
  query.strides = key.strides = out.strides = strides;
  if (kPairs) query.dtype = key.dtype = out.dtype = {4, 16, 1};
  const int64_t bytes = attention_workspace(Tensor(&out), Tensor(&query), Tensor(&key),
                                            Tensor(&key), Tensor(nullptr), 0);
  std::vector<char> workspace(static_cast<size_t>(bytes));
  yard_call_t call{};
  call.size = sizeof call;
  call.workspace = workspace.data(), call.workspace_size = workspace.size();
  return plugin::best_ns([&] {
           attention_full<kPairs>(Call(&call), Tensor(&out), Tensor(&query), Tensor(&key),
                                  Tensor(&key), Tensor(nullptr), 0);
         }) /
         (kQueries * kKeys);
}

// A virtual machine sees the whole cache of the real one, but has only some of its cores, so at
// most kEach bytes per core are counted. On two cores with a cache of 480 MB, calls of 12 MB were
// as fast with either kind of store, and calls of 24 MB and more were faster past the caches.
int64_t last_cache() {
  constexpr int64_t kUnknown = int64_t{32} << 20, kEach = int64_t{4} << 20;
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE), cores = sysconf(_SC_NPROCESSORS_ONLN);
  return std::min<int64_t>(bytes > 0 ? bytes : kUnknown, kEach * std::max(cores, 1l));
}

}  // namespace

int64_t& cached_bytes() noexcept {
  return const_cast<int64_t&>(plugin::measured_once<last_cache>());
}

const Rates& rates() { return plugin::measured_once<measure>(); }
const LinearRates& linear_rates() { return plugin::measured_once<measure_linear>(); }
const plugin::ProductTimes& pair_linear_times() {
  return plugin::measured_once<measure_pair_linear>();
}
const MatmulTimes& matmul_times() { return plugin::measured_once<measure_matmul_times>(); }

double estimate(const Rates& rates, const Work& work, double elements, double threads) {
  const double each =
      std::max(work.bytes * rates.ns_per_byte, work.operations * rates.ns_per_operation);
  const double alone = std::max(elements, 0.0) * each;
  const double piece = 2.0 * static_cast<double>(kPieceBytes) * rates.ns_per_byte;
  return kFixedNs + std::min(alone, piece) + std::max(alone - piece, 0.0) / threads;
}

double estimate_linear(const LinearRates& rates, double rows, double weights) {
  const bool far = weights > static_cast<double>(kCachedElements);
  const double together = std::floor(rows / LinearRates::kTogether);
  const double each =
      together * (far ? rates.far_of_four : rates.ns_of_four) +
      (rows - LinearRates::kTogether * together) * (far ? rates.far_of_one : rates.ns_of_one);
  const double pieces = weights * (rows + 1) * 4 / static_cast<double>(kPieceBytes);
  return kFixedNs + weights * each / plugin::speed_of_threads(pieces);
}

double estimate_pair_linear(const plugin::ProductTimes& times, double rows, double weights) {
  const double pieces = weights * 2 / static_cast<double>(kPieceBytes);
  return kFixedNs + weights * times.at(rows) / plugin::speed_of_threads(pieces);
}

template <bool kPairs>
double estimate_attention(double scores, double dim) {
  constexpr double kExponential = 11;  // a score costs as much as kExponential products more
  const double each = plugin::measured_once<measure_score<kPairs>>() * (dim + kExponential) /
                      (kMeasuredDim + kExponential);
  const double pieces = scores * dim * 4 / static_cast<double>(kPieceBytes);
  return kFixedNs + scores * each / plugin::speed_of_threads(pieces);
}

template double estimate_attention<false>(double, double);
template double estimate_attention<true>(double, double);

double estimate_matmul(const MatmulTimes& times, double matrices, double m, double n, double k) {
  const bool few = m <= static_cast<double>(Matmul::kFewRows);
  const double passes = std::ceil(m / static_cast<double>(Matmul::kRows));
  double each = times.cached.at(m);
  if (n * k > static_cast<double>(kCachedElements))
    each += few ? times.far_of_few : times.far_of_pass * passes;
  const double elements = matrices * n * k;
  const double pieces = elements * (m + 1) * 4 / static_cast<double>(kPieceBytes);
  return kFixedNs + elements * each / plugin::speed_of_threads(pieces);
}

}  // namespace yard::simd
