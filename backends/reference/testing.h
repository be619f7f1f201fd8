// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the reference kernels: tensors of any dtype and strides filled from
// doubles, calls of a kernel through its descriptor, and a comparison that requires correct
// rounding.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "kernels.h"
#include "numeric.h"

namespace yard::reference::testing {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline constexpr uint32_t kFloats[] = {YARD_F32, YARD_F16, YARD_BF16};

inline yard_dtype_t dlpack(uint32_t dtype) {
  switch (dtype) {
    case YARD_F32: return {2, 32, 1};
    case YARD_F16: return {2, 16, 1};
    case YARD_BF16: return {4, 16, 1};
    case YARD_I8: return {0, 8, 1};
    case YARD_I32: return {0, 32, 1};
    case YARD_I64: return {0, 64, 1};
    default: return {2, 64, 1};
  }
}

inline double round_to(uint32_t dtype, double v) {
  switch (dtype) {
    case YARD_F16: return to_double(from_double<F16>(v));
    case YARD_BF16: return to_double(from_double<BF16>(v));
    case YARD_F32: return static_cast<float>(v);
    default: return v;
  }
}

// Strides in elements. A separate type, so that they are not mistaken for values.
struct Strides : std::vector<int64_t> {
  using std::vector<int64_t>::vector;
};

// Owns exactly the memory that its elements span, at an odd byte offset, so that the address
// sanitizer sees accesses outside. Knows which bytes belong to no element.
class TestTensor {
 public:
  TestTensor(uint32_t dtype, std::vector<int64_t> shape, const Strides& strides = Strides())
      : dtype_(dtype), shape_(std::move(shape)), strides_(strides) {
    const yard_dtype_t d = dlpack(dtype);
    item_ = d.bits / 8;
    std::vector<int64_t> steps(shape_.size());
    int64_t compact = 1, low = 0, high = 0;
    for (size_t i = shape_.size(); i-- > 0;) {
      steps[i] = strides_.empty() ? compact : strides_[i];
      compact *= shape_[i];
      (steps[i] < 0 ? low : high) += steps[i] * std::max<int64_t>(shape_[i] - 1, 0);
    }
    for (int64_t n = 0; n < compact; ++n) {
      int64_t rest = n, at = -low;
      for (size_t i = shape_.size(); i-- > 0; rest /= shape_[i]) at += rest % shape_[i] * steps[i];
      offsets_.push_back(static_cast<size_t>(at) * item_ + 1);
    }
    bytes_.assign(compact == 0 ? 0 : static_cast<size_t>(high - low + 1) * item_ + 1, kGap);
    t_.data = bytes_.empty() ? nullptr : bytes_.data();
    t_.device = {1, 0};
    t_.ndim = static_cast<int32_t>(shape_.size());
    t_.dtype = d;
    t_.shape = shape_.data();
    t_.strides = strides_.empty() ? nullptr : strides_.data();
    t_.byte_offset = bytes_.empty() ? 0 : static_cast<uint64_t>(-low) * item_ + 1;
  }
  TestTensor(uint32_t dtype, std::vector<int64_t> shape, std::initializer_list<double> values)
      : TestTensor(dtype, std::move(shape)) {
    set(values);
  }
  TestTensor(const TestTensor&) = delete;
  TestTensor& operator=(const TestTensor&) = delete;

  const yard_tensor_t* c() const { return &t_; }
  uint32_t dtype() const { return dtype_; }
  size_t size() const { return offsets_.size(); }

  TestTensor& set(const std::vector<double>& values) {
    EXPECT_EQ(values.size(), size());
    for (size_t n = 0; n < std::min(size(), values.size()); ++n) put(n, values[n]);
    return *this;
  }
  // Sets elements that are all different, have both signs, and are exact in every dtype.
  TestTensor& fill(int seed) {
    for (size_t n = 0; n < size(); ++n)
      put(n, (static_cast<int>((n * 37 + static_cast<size_t>(seed) * 11) % 61) - 30) / 16.0);
    return *this;
  }
  double at(size_t n) const {
    const uint8_t* p = bytes_.data() + offsets_[n];
    switch (dtype_) {
      case YARD_F32: return to_double(get<float>(p));
      case YARD_F16: return to_double(get<F16>(p));
      case YARD_BF16: return to_double(get<BF16>(p));
      case YARD_I8: return get<int8_t>(p);
      case YARD_I32: return get<int32_t>(p);
      case YARD_I64: return static_cast<double>(get<int64_t>(p));
      default: return get<double>(p);
    }
  }
  std::vector<double> values() const {
    std::vector<double> v(size());
    for (size_t n = 0; n < v.size(); ++n) v[n] = at(n);
    return v;
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  // Returns whether the bytes between the elements are unchanged.
  bool gaps_intact() const {
    std::vector<uint8_t> copy = bytes_;
    for (size_t at : offsets_) std::fill_n(copy.begin() + static_cast<ptrdiff_t>(at), item_, kGap);
    return std::all_of(copy.begin(), copy.end(), [](uint8_t b) { return b == kGap; });
  }

 private:
  static constexpr uint8_t kGap = 0xcd;
  template <class T>
  static T get(const uint8_t* p) {
    T v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  template <class T>
  void write(size_t n, T v) {
    std::memcpy(bytes_.data() + offsets_[n], &v, sizeof v);
  }
  void put(size_t n, double v) {
    switch (dtype_) {
      case YARD_F32: return write(n, static_cast<float>(v));
      case YARD_F16: return write(n, from_double<F16>(v));
      case YARD_BF16: return write(n, from_double<BF16>(v));
      case YARD_I8: return write(n, static_cast<int8_t>(v));
      case YARD_I32: return write(n, static_cast<int32_t>(v));
      case YARD_I64: return write(n, static_cast<int64_t>(v));
      default: return write(n, v);
    }
  }

  uint32_t dtype_;
  std::vector<int64_t> shape_, strides_;
  std::vector<uint8_t> bytes_;
  std::vector<size_t> offsets_;  // first byte of each element
  size_t item_ = 0;
  yard_tensor_t t_{};
};

inline yard_value_t value(const yard_tensor_t* t) {
  yard_value_t v{YARD_TAG_TENSOR, 0, {}};
  v.u.tensor = t;
  return v;
}
inline yard_value_t value(const TestTensor& t) { return value(t.c()); }
inline yard_value_t value(int64_t i) {
  yard_value_t v{YARD_TAG_INT, 0, {}};
  v.u.i = i;
  return v;
}
inline yard_value_t value(double f) {
  yard_value_t v{YARD_TAG_FLOAT, 0, {}};
  v.u.f = f;
  return v;
}
inline yard_value_t value(bool b) {
  yard_value_t v{YARD_TAG_BOOL, 0, {}};
  v.u.i = b ? 1 : 0;
  return v;
}
inline yard_value_t value(std::nullptr_t) { return {YARD_TAG_NONE, 0, {}}; }

inline const yard_kernel_t* kernel_of(std::string_view op) {
  const yard_plugin_t* p = descriptor();
  for (uint32_t i = 0; i < p->kernel_count; ++i)
    if (op == p->kernels[i]->op) return p->kernels[i];
  return nullptr;
}

inline const yard_op_t* op_of(std::string_view name) {
  const yard_plugin_t* p = descriptor();
  for (uint32_t i = 0; i < p->op_count; ++i) {
    const std::string_view schema = p->ops[i]->schema;
    if (schema.starts_with(name) && schema[name.size()] == '(') return p->ops[i];
  }
  return nullptr;
}

struct Outcome {
  int32_t code;
  std::string message;
};

inline Outcome with_call(const std::function<int32_t(yard_call_t*)>& body) {
  char error[256] = "";
  yard_call_t call{};
  call.size = sizeof call;
  call.error = error;
  call.error_size = sizeof error;
  const int32_t code = body(&call);
  return {code, error};
}

// Calls the packed entry, as in run("rms_norm", out, x, weight, 1e-6).
template <class... A>
Outcome run(std::string_view op, const A&... a) {
  const yard_value_t args[] = {value(a)...};
  return with_call([&](yard_call_t* call) { return kernel_of(op)->run(call, args, sizeof...(a)); });
}

template <class... A>
Outcome run_magnitude(std::string_view op, const A&... a) {
  const yard_value_t args[] = {value(a)...};
  return with_call(
      [&](yard_call_t* call) { return op_of(op)->magnitude(call, args, sizeof...(a)); });
}

// Calls the typed entry with the arguments of run().
inline const yard_tensor_t* raw(const TestTensor& t) { return t.c(); }
inline const yard_tensor_t* raw(std::nullptr_t) { return nullptr; }
inline int64_t raw(int64_t i) { return i; }
inline double raw(double f) { return f; }
inline int32_t raw(bool b) { return b ? 1 : 0; }
template <class... A>
Outcome run_typed(std::string_view op, const A&... a) {
  using Entry = int32_t (*)(yard_call_t*, decltype(raw(a))...);
  return with_call([&](yard_call_t* call) {
    return reinterpret_cast<Entry>(kernel_of(op)->typed)(call, raw(a)...);
  });
}

// Checks that `found` is `expected` rounded to the dtype, up to the rounding of doubles. `slack` is
// an absolute allowance for terms that cancel.
inline ::testing::AssertionResult rounded(uint32_t dtype, double found, double expected,
                                          double slack = 0) {
  if (std::isnan(expected) && std::isnan(found)) return ::testing::AssertionSuccess();
  const double room = std::isfinite(expected) ? std::abs(expected) * 1e-12 + slack : 0;
  if (found >= round_to(dtype, expected - room) && found <= round_to(dtype, expected + room))
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << found << " is not " << expected << " rounded to dtype " << dtype;
}

inline void expect_caller_error(const Outcome& outcome, const std::string& text) {
  EXPECT_EQ(outcome.code, YARD_CALLER);
  EXPECT_NE(outcome.message.find(text), std::string::npos) << outcome.message;
}

inline void expect_rounded(const TestTensor& found, const std::vector<double>& expected,
                           double slack = 0) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t n = 0; n < expected.size(); ++n)
    EXPECT_TRUE(rounded(found.dtype(), found.at(n), expected[n], slack)) << "element " << n;
}

}  // namespace yard::reference::testing
