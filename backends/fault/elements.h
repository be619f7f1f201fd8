// SPDX-License-Identifier: Apache-2.0
// Writes into outputs of any dtype and strides, for kernels that compute nothing.
#pragma once

#include <yard/plugin.hpp>

#include <cstdint>

namespace yard::fault {

// Elements are numbered in row-major order of the index. For 8-bit floats and for types of less
// than a byte, fill() and add() write the integer part as raw bytes.
void fill(plugin::Tensor t, double value);
void add(plugin::Tensor t, double offset);
// Sets every byte of the first half of the elements. Rounds the half up if the number is odd.
void scribble_half(plugin::Tensor t, uint8_t byte);

}  // namespace yard::fault
