// SPDX-License-Identifier: Apache-2.0
// Estimates how long products of matrices take, from a rate that is measured once per process.
#pragma once

namespace yard::onednn {

// Returns the nanoseconds of a product [m, k] * [k, n], or a negative number if oneDNN has no such
// product. `packed` says that the second matrix is in packed_form().
double product_ns(bool bf16, double m, double n, double k, bool packed = false);

// Returns the nanoseconds of attention, or a negative number if oneDNN has no such product.
// `scores` counts products of rows of `dim` elements, and `units` counts blocks of queries.
double attention_ns(bool bf16, double scores, double dim, double units);

}  // namespace yard::onednn
