// SPDX-License-Identifier: Apache-2.0
// Short ways to write arguments in tests of this folder.
#pragma once

#include <yard/tensor.h>

#include <deque>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace yard::op {

// A tensor as the checks of this folder take it: with its facts. Kept until the thread ends.
inline const yard_tensor_t& with_facts(const yard_tensor_t& t) {
  static thread_local std::deque<yard_tensor_t> kept;
  kept.push_back(t);
  kept.back().facts = yard_facts(&t);
  return kept.back();
}
inline const yard_tensor_t& with_facts(const TensorView& v) { return with_facts(v.c()); }

// Keeps the tensors it makes; every one has its own memory unless told where.
class Values {
 public:
  yard_value_t tensor(DType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides = {},
                      Device device = {}) {
    return at(memory_.emplace_back(1 << 16).data() + 64, dtype, shape, strides, device);
  }
  yard_value_t at(void* data, DType dtype, std::vector<int64_t> shape,
                  std::vector<int64_t> strides = {}, Device device = {}) {
    return of(with_facts(views_.emplace_back(data, dtype, std::span<const int64_t>(shape),
                                             std::span<const int64_t>(strides), device)));
  }
  yard_value_t of(const yard_tensor_t& t) {
    yard_value_t v{};
    v.tag = YARD_TAG_TENSOR;
    v.u.tensor = &t;
    return v;
  }
  yard_value_t f32(std::vector<int64_t> shape) { return tensor(DType::f32, std::move(shape)); }
  yard_value_t list(std::initializer_list<yard_value_t> tensors) {
    auto& kept = lists_.emplace_back();
    for (const yard_value_t& t : tensors) kept.push_back(t.u.tensor);
    yard_value_t v{};
    v.tag = YARD_TAG_LIST;
    v.count = static_cast<uint32_t>(kept.size());
    v.u.list = kept.data();
    return v;
  }

 private:
  std::deque<std::vector<char>> memory_;
  std::deque<TensorView> views_;
  std::deque<std::vector<const yard_tensor_t*>> lists_;
};

inline yard_value_t none() { return {}; }
inline yard_value_t integer(int64_t i) {
  yard_value_t v{};
  v.tag = YARD_TAG_INT;
  v.u.i = i;
  return v;
}
inline yard_value_t number(double f) {
  yard_value_t v{};
  v.tag = YARD_TAG_FLOAT;
  v.u.f = f;
  return v;
}
inline yard_value_t boolean(bool b) {
  yard_value_t v{};
  v.tag = YARD_TAG_BOOL;
  v.u.i = b ? 1 : 0;
  return v;
}
// Borrows the text.
inline yard_value_t text(std::string_view s) {
  yard_value_t v{};
  v.tag = YARD_TAG_STRING;
  v.count = static_cast<uint32_t>(s.size());
  v.u.string = s.data();
  return v;
}

}  // namespace yard::op
