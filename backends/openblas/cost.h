// SPDX-License-Identifier: Apache-2.0
// Estimates of how long a product takes, from rates that are measured once in a process.
#pragma once

#include <cstdint>

namespace yard::openblas {

// out[m, n] = a[m, k] * b[k, n] in f32.
double product_ns(double m, double n, double k);
// Making so many floats from bf16 or blocks, by all threads.
double convert_ns(double elements);

}  // namespace yard::openblas
