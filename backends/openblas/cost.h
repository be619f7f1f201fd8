// SPDX-License-Identifier: Apache-2.0
// Estimates how long a product takes, from rates that are measured once per process.
#pragma once

#include <cstdint>

namespace yard::openblas {

// Returns the time of out[m, n] = a[m, k] * b[k, n] in f32.
double product_ns(double m, double n, double k);
// Returns the time to convert bf16 or quantised elements to floats with all threads.
double convert_ns(double elements);

}  // namespace yard::openblas
