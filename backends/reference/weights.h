// SPDX-License-Identifier: Apache-2.0
// Reads rows of weights and tables of any dtype as doubles, piece by piece.
#pragma once

#include <yard/plugin.hpp>

#include <span>

#include "blocks.h"
#include "numeric.h"
#include "rows.h"

namespace yard::reference {

class WeightRow {
 public:
  static constexpr int64_t kPiece = 256;  // elements read at once; whole blocks of every type

  // The elements along the last dimension, from element `offset` on.
  WeightRow(plugin::Tensor t, int64_t offset) noexcept : t_(t), offset_(offset) {}

  static bool reads(uint32_t dtype) noexcept {
    return dtype == YARD_F32 || dtype == YARD_F16 || dtype == YARD_BF16 || dtype == YARD_I8 ||
           block_decoder(dtype) != nullptr;
  }
  int64_t size() const noexcept { return t_.size(-1); }

  // Calls body(number of the first element, elements) for each piece of the row, in order.
  template <class Body>
  void for_each_piece(const Body& body) const {
    double piece[kPiece];
    for (int64_t first = 0; first < size(); first += kPiece) {
      const int64_t count = size() - first < kPiece ? size() - first : kPiece;
      read(first, count, piece);
      body(first, std::span<const double>(piece, static_cast<size_t>(count)));
    }
  }

 private:
  void read(int64_t first, int64_t count, double* to) const noexcept {
    switch (t_.dtype()) {
      case YARD_F32: return copy<float>(first, count, to);
      case YARD_F16: return copy<F16>(first, count, to);
      case YARD_BF16: return copy<BF16>(first, count, to);
      case YARD_I8: return copy<int8_t>(first, count, to);
      default: return decode(first, count, to);
    }
  }

  void decode(int64_t first, int64_t count, double* to) const noexcept {
    const yard_dtype_t type = t_.c()->dtype;
    const auto* const blocks = t_.data<const uint8_t>();
    for (int64_t i = 0; i < count; i += type.lanes)
      block_decoder(t_.dtype())(blocks + (offset_ + first + i) / type.lanes * type.bits, to + i);
  }

  template <class T>
  void copy(int64_t first, int64_t count, double* to) const noexcept {
    const Row<T> row(t_, offset_);
    for (int64_t i = 0; i < count; ++i) to[i] = row[first + i];
  }

  plugin::Tensor t_;
  int64_t offset_;
};

}  // namespace yard::reference
