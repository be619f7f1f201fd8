// SPDX-License-Identifier: Apache-2.0
// Strides and alignment: see layouts.h.
#include "tune/layouts.h"

#include <algorithm>
#include <numeric>

namespace yard::tune {
namespace {

// Strides when dimensions lie in memory in the order `order`, outermost first. The innermost steps by
// `step`, and `gap` elements lie between rows.
std::vector<int64_t> strides(const std::vector<int64_t>& shape, const std::vector<size_t>& order,
                             int64_t step, int64_t gap) {
  std::vector<int64_t> to(shape.size(), 1);
  for (size_t k = order.size(); k-- > 0;) {
    to[order[k]] = step;
    step *= std::max<int64_t>(shape[order[k]], 1);
    if (k + 1 == order.size()) step += gap;
  }
  return to;
}

// One element off what is best.
void misalign(op::TensorSpec& t) {
  t.align = std::min<uint32_t>(t.align, static_cast<uint32_t>(element_size(t.dtype)));
}

}  // namespace

Layouts::Layouts() {
  using enum Form;
  modes_ = Deck<Mode>({Mode::kPlain, Mode::kPlain, Mode::kPlain, Mode::kMisaligned, Mode::kOneOdd,
                       Mode::kOneOdd, Mode::kAllOdd, Mode::kAllOdd});
  forms_ = Deck<Form>(
      {kRowPadded, kRowPadded, kTransposed, kInnerStep, kBroadcast, kNegative, Form::kMisaligned});
}

void Layouts::deal(std::span<const Item> items, Random& random) {
  if (items.empty()) return;
  switch (modes_.next(random)) {
    case Mode::kPlain: return;
    case Mode::kMisaligned:
      for (const Item& i : items) misalign(*i.spec);
      return;
    case Mode::kOneOdd: return lay_out(items[random.below(items.size())], random);
    case Mode::kAllOdd:
      for (const Item& i : items) lay_out(i, random);
      return;
  }
}

void Layouts::lay_out(const Item& item, Random& random) {
  op::TensorSpec& t = *item.spec;
  std::vector<size_t> order(t.shape.size());
  std::iota(order.begin(), order.end(), size_t{0});
  Form form = forms_.next(random);
  if (form == Form::kBroadcast && item.written) form = Form::kRowPadded;  // would overlap itself
  if (t.shape.empty() && form != Form::kMisaligned) return;
  const size_t any = t.shape.empty() ? 0 : random.below(t.shape.size());
  switch (form) {
    case Form::kRowPadded:
      t.strides = strides(t.shape, order, 1, 1 + static_cast<int64_t>(random.below(16)));
      break;
    case Form::kTransposed:
      std::swap(order.back(), order[order.size() - std::min<size_t>(2, order.size())]);
      t.strides = strides(t.shape, order, 1, 0);
      break;
    case Form::kInnerStep:
      t.strides = strides(t.shape, order, 2 + static_cast<int64_t>(random.below(2)), 0);
      break;
    case Form::kBroadcast:
      t.strides = strides(t.shape, order, 1, 0);
      t.strides[any] = 0;
      break;
    case Form::kNegative:
      t.strides = strides(t.shape, order, 1, 0);
      t.strides[any] = -t.strides[any];
      break;
    case Form::kMisaligned: misalign(t); break;
  }
  if (random.below(4) == 0) misalign(t);
}

}  // namespace yard::tune
