// SPDX-License-Identifier: Apache-2.0
// Values and named arguments, for ops that are known only at run time.
//
//   yard::call("rms_norm", {out, x, weight, {"eps", 1e-6}}).or_throw();
//
// A Value borrows what it was made from (the view, the string) and must not outlive it.
#pragma once

#include <yard/tensor.h>

#include <concepts>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace yard {

// Tensors passed as one argument. Borrows the views.
class TensorList {
 public:
  TensorList(std::initializer_list<std::reference_wrapper<const TensorView>> views) {
    for (const TensorView& v : views) items_.push_back(&v.c());
  }
  explicit TensorList(std::span<const TensorView> views) {
    for (const TensorView& v : views) items_.push_back(&v.c());
  }
  std::span<const yard_tensor_t* const> items() const noexcept { return items_; }

 private:
  std::vector<const yard_tensor_t*> items_;
};

class Value {
 public:
  Value(std::nullptr_t) noexcept {}  // NOLINT: implicit on purpose, like all of these
  Value(const TensorView& t) noexcept { v_.tag = YARD_TAG_TENSOR, v_.u.tensor = &t.c(); }
  Value(const TensorList& l) noexcept {
    v_.tag = YARD_TAG_LIST, v_.u.list = l.items().data();
    v_.count = static_cast<uint32_t>(l.items().size());
  }
  template <std::integral I>
  requires(!std::same_as<I, bool>) Value(I i)
  noexcept { v_.tag = YARD_TAG_INT, v_.u.i = static_cast<int64_t>(i); }
  template <std::same_as<bool> B>
  Value(B b) noexcept {
    v_.tag = YARD_TAG_BOOL, v_.u.i = b;
  }
  Value(double d) noexcept { v_.tag = YARD_TAG_FLOAT, v_.u.f = d; }
  Value(std::string_view s) noexcept {
    v_.tag = YARD_TAG_STRING, v_.u.string = s.data(), v_.count = static_cast<uint32_t>(s.size());
  }
  Value(const char* s) noexcept : Value(std::string_view(s)) {}
  Value(const std::string& s) noexcept : Value(std::string_view(s)) {}
  // Of any origin.
  explicit Value(const yard_value_t& v) noexcept : v_(v) {
    if (v.tag == YARD_TAG_TENSOR) v_.count = kOther;
  }

  yard_value_t c() const noexcept {
    yard_value_t v = v_;
    if (v.tag == YARD_TAG_TENSOR) v.count = 0;
    return v;
  }
  // The same, but that `count` of a tensor which is not that of a view is kOther. For the library.
  static constexpr uint32_t kOther = 1;
  const yard_value_t& cell() const noexcept { return v_; }

 private:
  yard_value_t v_{};
};

// An argument by position, or by name.
struct Arg {
  template <class T>
  requires std::constructible_from<Value, T> Arg(const T& v)
  noexcept : value(v) {}  // NOLINT: implicit on purpose
  template <class T>
  requires std::constructible_from<Value, T> Arg(std::string_view n, const T& v)
  noexcept : name(n), value(v) {}
  std::string_view name;
  Value value;
};

}  // namespace yard
