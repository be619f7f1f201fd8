// SPDX-License-Identifier: Apache-2.0
// Checks for examples: CHECK says where it failed, and near() compares numbers.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                \
    }                                                                              \
  } while (false)

inline bool near(double a, double b) { return std::fabs(a - b) < 1e-4; }
