// SPDX-License-Identifier: Apache-2.0
// Estimates how long a call takes, from the memory that it moves and the arithmetic that it does.
#pragma once

#include <yard/plugin.hpp>

#include <cstdint>

namespace yard::simd {

// The speed of this machine, measured at the first estimate, which takes about 200 microseconds.
struct Rates {
  double ns_per_byte;       // to move memory, on one core
  double ns_per_operation;  // on one element in f32, on one core
};
const Rates& rates();

struct Work {
  double bytes;  // read or written, counted as if all tensors were f32
  double operations;
};

// Returns nanoseconds for `elements` elements. The estimate grows with the count. A call as long as
// one piece of parallel_for stays on one thread, and only the work beyond that is shared.
double estimate(const Rates& rates, const Work& work, double elements,
                double threads = plugin::threads_now());

// Nanoseconds per weight of `linear` over floats on one core, measured once per process. The far
// rates are for weights that no cache of a core holds.
struct LinearRates {
  static constexpr int kTogether = 4;  // rows that pass over the weights at once
  double ns_of_one, ns_of_four;
  double far_of_one, far_of_four;
};
const LinearRates& linear_rates();

double estimate_linear(const LinearRates& rates, double rows, double weights);

// Returns the time per weight of `linear` by pairs.h on one core, for weights that no cache of a
// core holds. Measured once per process.
const plugin::ProductTimes& pair_linear_times();

double estimate_pair_linear(const plugin::ProductTimes& times, double rows, double weights);

// `matmul` on one core, measured once per process: the time per element of the second matrix if a
// cache holds it, and the additional time if none does. Rows are then copied in short pieces that
// lie far apart, except that few rows of the first matrix read the second in place.
struct MatmulTimes {
  plugin::ProductTimes cached;
  double far_of_few, far_of_pass;  // up to Matmul::kFewRows rows; each pass of Matmul::kRows rows
};
const MatmulTimes& matmul_times();

// Returns nanoseconds for `matrices` products [m, k] * [k, n].
double estimate_matmul(const MatmulTimes& times, double matrices, double m, double n, double k);

// Returns nanoseconds of attention over a whole sequence with `scores` scores of queries and keys,
// measured once per process. kPairs selects bf16 by pairs.h.
template <bool kPairs>
double estimate_attention(double scores, double dim);

}  // namespace yard::simd
