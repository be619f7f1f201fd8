// SPDX-License-Identifier: Apache-2.0
// Writing into outputs of any dtype and strides, for kernels that compute nothing.
#pragma once

#include <yard/plugin.hpp>

#include <cstdint>

namespace yard::fault {

// Elements are numbered in row-major order of the index. Types of less than a byte, and the 8-bit
// floats, are written as raw bytes of the integer part.
void fill(plugin::Tensor t, double value);
void add(plugin::Tensor t, double offset);
// Every byte of the first half of the elements (the larger half of an odd number).
void scribble_half(plugin::Tensor t, uint8_t byte);

}  // namespace yard::fault
