// SPDX-License-Identifier: Apache-2.0
// Estimates of how long a call takes, from what it moves and what it computes.
#pragma once

#include <yard/plugin.hpp>

#include <cstdint>

namespace yard::simd {

// What this machine does, measured once in this process (some 200 microseconds, at the first estimate).
struct Rates {
  double ns_per_byte;       // moved, by one core
  double ns_per_operation;  // on one element in f32, by one core
};
const Rates& rates();

// What one element of an op costs.
struct Work {
  double bytes;  // of tensors that are read or written, as if f32
  double operations;
};

// Nanoseconds for so many elements. Grows with the count. A call as long as one piece of parallel_for
// stays on one thread; only what is beyond is shared.
double estimate(const Rates& rates, const Work& work, double elements,
                double threads = plugin::threads_now());

// `linear` over floats on one core, measured likewise: nanoseconds for each weight, where a cache of a core holds them, and
// where none does.
struct LinearRates {
  static constexpr int kTogether = 4;  // rows that pass over the weights at once
  double ns_of_one, ns_of_four;
  double far_of_one, far_of_four;
};
const LinearRates& linear_rates();

// Nanoseconds for so many rows of activations and so many weights.
double estimate_linear(const LinearRates& rates, double rows, double weights);

// `linear` by pairs.h on one core, measured likewise: for each weight, where no cache of a core holds them.
const plugin::ProductTimes& pair_linear_times();

// Nanoseconds for so many rows of activations and so many weights.
double estimate_pair_linear(const plugin::ProductTimes& times, double rows, double weights);

// `matmul` on one core, measured likewise: where a cache holds the second matrix, and what each of its elements takes beyond
// that where none does. Rows are copied then, in short pieces far from each other; for few rows of the first matrix they are
// read as they are.
struct MatmulTimes {
  plugin::ProductTimes cached;
  double far_of_few, far_of_pass;  // of up to Matmul::kFewRows rows; of each Matmul::kRows
};
const MatmulTimes& matmul_times();

// Nanoseconds for so many matrices [m, k] * [k, n].
double estimate_matmul(const MatmulTimes& times, double matrices, double m, double n, double k);

// Attention over a whole sequence, measured likewise: nanoseconds for so many scores of queries and keys. kPairs: of bf16, by
// pairs.h.
template <bool kPairs>
double estimate_attention(double scores, double dim);

}  // namespace yard::simd
