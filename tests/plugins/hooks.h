// SPDX-License-Identifier: Apache-2.0
// What the program and the plugin of hooks.cc share.
#pragma once

#include <yard/provide.h>

#include <atomic>
#include <cstdint>

namespace yard::testing {

struct Target {
  int64_t lanes = 0;
#ifdef WIDER
  int64_t features = 0;
#endif
};

// Of the same size and alignment with and without TALLER.
struct Window {
  double scale = 0;
  int32_t rows = 0;
#ifdef TALLER
  int32_t columns = 0;
#endif
};

struct Gate {
  std::atomic<bool> inside{false}, open{false};
};

}  // namespace yard::testing

template <>
struct yard::TypeFields<yard::testing::Window>
    : yard::Fields<&yard::testing::Window::scale, &yard::testing::Window::rows
#ifdef TALLER
                   ,
                   &yard::testing::Window::columns
#endif
                   > {
};
