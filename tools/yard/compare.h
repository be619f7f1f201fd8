// SPDX-License-Identifier: Apache-2.0
// How far the results of two runs of one call are apart.
#pragma once

#include <yard/plugin.h>
#include <yard/tensor.h>

#include <span>
#include <string>
#include <vector>

#include "tensors.h"

namespace yard::tool {

struct Difference {
  bool equal_bits = true;
  bool within = true;  // every element within the tolerance of its dtype
  double max_abs = 0;  // infinite where one is NaN or infinite and the other is not
  double max_rel = 0;  // over elements whose reference is not 0
  std::string worst;   // "out[3,17]", where the absolute error is largest; empty if there is none
  double worst_found = 0, worst_expected = 0;
};

// `found` and `expected` have the same forms. A dtype without a tolerance gets the usual one: exact for
// integers, some units in the last place for floats.
Difference compare(std::span<const Written> found, std::span<const Written> expected,
                   std::span<const yard_tolerance_t> tolerances);

}  // namespace yard::tool
