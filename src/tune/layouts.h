// SPDX-License-Identifier: Apache-2.0
// How the tensors of one call lie in memory: strides and alignment.
#pragma once

#include <span>
#include <vector>

#include "op/call_spec.h"
#include "tune/deck.h"

namespace yard::tune {

class Layouts {
 public:
  Layouts();

  // A tensor to be laid out.
  struct Item {
    op::TensorSpec* spec;
    bool written;
  };
  // All tensors of one call. Most calls stay compact and aligned, so that kernels that want it so get
  // their share.
  void deal(std::span<const Item> items, Random& random);

 private:
  // What is odd in one call.
  enum class Mode { kPlain, kMisaligned, kOneOdd, kAllOdd };
  enum class Form { kRowPadded, kTransposed, kInnerStep, kBroadcast, kNegative, kMisaligned };

  void lay_out(const Item& item, Random& random);

  Deck<Mode> modes_;
  Deck<Form> forms_;
};

}  // namespace yard::tune
