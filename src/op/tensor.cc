// SPDX-License-Identifier: Apache-2.0
// TensorView: what is not inlined into calls.
#include <yard/plugin.h>
#include <yard/tensor.h>

namespace yard {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "forms and dtypes are packed as words");
static_assert(TensorView::Form::kRank == YARD_FACTS_RANK_SHIFT &&
              TensorView::Form::kCompact ==
                  (YARD_FACTS_COMPACT | YARD_FACTS_INNER_DENSE | YARD_FACTS_PLAIN));

TensorView::TensorView(const yard_tensor_t& t) noexcept {
  if (t.ndim < 0 || t.ndim > YARD_MAX_RANK || (t.ndim > 0 && t.shape == nullptr)) {
    make_invalid();
    return;
  }
  const auto n = static_cast<size_t>(t.ndim);
  const std::span<const int64_t> shape(t.shape, n);
  init(t.data, from_dlpack(t.dtype), shape,
       t.strides != nullptr ? Sizes(std::span(t.strides, n)) : Sizes(),
       {t.device.type, t.device.index});
  t_.byte_offset = t.byte_offset;
  t_.origin = t.origin;
  if (t.byte_offset != 0) find_form(dtype());
}

TensorView TensorView::with_origin(void* origin) const noexcept {
  TensorView v = *this;
  v.t_.origin = origin;
  return v;
}

bool TensorView::valid() const noexcept { return yard_facts(&t_) != 0; }

void TensorView::set_inexact_form() noexcept {
  uint64_t head, dims = 0;
  std::memcpy(&head, &t_.ndim, sizeof head);  // and dtype
  for (int32_t i = 0; i < 2 * t_.ndim; ++i) {
    head = (head ^ static_cast<uint64_t>(dims_[i])) * 0x9e3779b97f4a7c15ull;
    head ^= head >> 32;
    dims = dims * 31 + static_cast<uint64_t>(dims_[i]);
  }
  form_ = {head | Form::kInexact, dims};
}

}  // namespace yard
