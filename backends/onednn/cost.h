// SPDX-License-Identifier: Apache-2.0
// Estimates of how long a product of matrices takes, from a rate that is measured once in a process.
#pragma once

namespace yard::onednn {

// [m, k] times [k, n], nanoseconds; negative where oneDNN has no such product. `packed`: the second matrix already is in
// packed_form().
double product_ns(bool bf16, double m, double n, double k, bool packed = false);

// Attention of every query to every key, nanoseconds: `scores` products of rows of `dim` elements, in `units` blocks of
// queries. Negative where oneDNN has no such product.
double attention_ns(bool bf16, double scores, double dim, double units);

}  // namespace yard::onednn
