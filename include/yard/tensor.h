// SPDX-License-Identifier: Apache-2.0
// Tensor views: what a call is made on.
//
// A TensorView borrows memory and carries its own shape and strides; its facts word (see plugin.h) is
// made once, in the constructor, so that calls only compare words. Copying a view copies some 200
// bytes and no data; nothing here allocates. A view is a value: threads may read one at once.
//
//   std::vector<float> x(8 * 4096);
//   yard::TensorView v(x.data(), yard::DType::f32, {8, 4096});
//   yard::TensorView w = yard::view(x, {8, 4096});                 // dtype from the element type
//   yard::TensorView col(x.data(), yard::DType::f32, {8, 4096}, {8192, 1});  // strides in elements
#pragma once

#include <yard/plugin.h>
#include <yard/status.h>

#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace yard {

// The element types; the numbers are those of facts words and masks.
enum class DType : uint8_t {
  invalid = 0,
  f32 = YARD_F32,
  f16 = YARD_F16,
  bf16 = YARD_BF16,
  f64 = YARD_F64,
  f8e4m3 = YARD_F8E4M3,
  f8e5m2 = YARD_F8E5M2,
  i8 = YARD_I8,
  i16 = YARD_I16,
  i32 = YARD_I32,
  i64 = YARD_I64,
  u8 = YARD_U8,
  u16 = YARD_U16,
  u32 = YARD_U32,
  u64 = YARD_U64,
  boolean = YARD_BOOL,
  i4 = YARD_I4,
  u4 = YARD_U4,
};

// "bf16"; "?" for a number that is no dtype.
YARD_API const char* to_string(DType t) noexcept;
// Our name, or a common spelling of it ("float16", "half", "bfloat16", "int8").
YARD_API std::optional<DType> parse_dtype(std::string_view text) noexcept;
YARD_API int bits(DType t) noexcept;
YARD_API yard_dtype_t to_dlpack(DType t) noexcept;
inline DType from_dlpack(yard_dtype_t t) noexcept {
  return static_cast<DType>(yard_dtype_index(t));
}

// A device: "cpu", "cuda:1".
struct Device {
  int32_t type = 1;
  int32_t index = 0;
  friend bool operator==(Device a, Device b) noexcept {
    return a.type == b.type && a.index == b.index;
  }
};
YARD_API std::string to_string(Device d);
YARD_API std::optional<Device> parse_device(std::string_view text) noexcept;

class TensorView {
 public:
  // No tensor: rank 0, invalid dtype. A call refuses it.
  TensorView() noexcept { bind(); }

  // Borrows `data`. Shapes of more than YARD_MAX_RANK dimensions make an invalid view, which calls
  // refuse with a message. Strides are in elements; without them the tensor is compact, row-major.
  TensorView(void* data, DType dtype, std::span<const int64_t> shape,
             std::span<const int64_t> strides = {}, Device device = {}) noexcept {
    init(data, dtype, shape, strides, device);
  }
  TensorView(void* data, DType dtype, std::initializer_list<int64_t> shape,
             std::initializer_list<int64_t> strides = {}, Device device = {}) noexcept {
    init(data, dtype, {shape.begin(), shape.size()}, {strides.begin(), strides.size()}, device);
  }
  // For inputs in constant memory; schemas say what is written, and only that is.
  TensorView(const void* data, DType dtype, std::initializer_list<int64_t> shape,
             std::initializer_list<int64_t> strides = {}, Device device = {}) noexcept
      : TensorView(const_cast<void*>(data), dtype, shape, strides, device) {}
  // Metadata only, for asking: a call refuses it unless it is empty.
  TensorView(std::nullptr_t, DType dtype, std::initializer_list<int64_t> shape,
             std::initializer_list<int64_t> strides = {}, Device device = {}) noexcept
      : TensorView(static_cast<void*>(nullptr), dtype, shape, strides, device) {}
  // Any DLPack-layout tensor.
  explicit TensorView(const yard_tensor_t& t) noexcept;

  TensorView(const TensorView& o) noexcept : t_(o.t_) { copy_dims(o); }
  TensorView& operator=(const TensorView& o) noexcept {
    t_ = o.t_;
    copy_dims(o);
    return *this;
  }

  const yard_tensor_t& c() const noexcept { return t_; }
  void* data() const noexcept { return static_cast<char*>(t_.data) + t_.byte_offset; }
  DType dtype() const noexcept { return from_dlpack(t_.dtype); }
  Device device() const noexcept { return {t_.device.type, t_.device.index}; }
  int rank() const noexcept { return t_.ndim; }
  std::span<const int64_t> shape() const noexcept { return {dims_, static_cast<size_t>(t_.ndim)}; }
  std::span<const int64_t> strides() const noexcept {
    return {dims_ + YARD_MAX_RANK, static_cast<size_t>(t_.ndim)};
  }
  int64_t numel() const noexcept {
    int64_t n = 1;
    for (int64_t d : shape()) n *= d;
    return n;
  }
  // Whether calls can read it at all: known dtype, rank in range, sizes that fit.
  bool valid() const noexcept { return t_.facts != 0; }

  // The same tensor over other memory.
  TensorView with_data(void* data) const noexcept {
    TensorView v = *this;
    v.t_.data = data;
    v.t_.byte_offset = 0;
    v.t_.facts = yard_facts(&v.t_);
    return v;
  }
  // The caller's own object, handed through to the kernel.
  TensorView with_origin(void* origin) const noexcept {
    TensorView v = *this;
    v.t_.origin = origin;
    return v;
  }

 private:
  void bind() noexcept {
    t_.shape = dims_;
    t_.strides = dims_ + YARD_MAX_RANK;
  }
  void copy_dims(const TensorView& o) noexcept {
    std::memcpy(dims_, o.dims_, sizeof dims_);
    bind();
  }
  void init(void* data, DType dtype, std::span<const int64_t> shape,
            std::span<const int64_t> strides, Device device) noexcept {
    bind();
    t_.data = data;
    t_.device = {device.type, device.index};
    t_.dtype = to_dlpack(dtype);
    if (shape.size() > YARD_MAX_RANK || (!strides.empty() && strides.size() != shape.size()))
      return;
    t_.ndim = static_cast<int32_t>(shape.size());
    int64_t compact = 1;
    for (int i = t_.ndim - 1; i >= 0; --i) {
      const auto k = static_cast<size_t>(i);
      dims_[i] = shape[k];
      dims_[YARD_MAX_RANK + i] = strides.empty() ? compact : strides[k];
      if (__builtin_mul_overflow(compact, shape[k] > 0 ? shape[k] : 1, &compact)) return;
    }
    t_.facts = yard_facts(&t_);
  }

  yard_tensor_t t_{};
  int64_t dims_[2 * YARD_MAX_RANK]{};
};

inline TensorView::TensorView(const yard_tensor_t& t) noexcept {
  bind();
  if (t.ndim < 0 || t.ndim > YARD_MAX_RANK || (t.ndim > 0 && !t.shape)) return;
  const auto n = static_cast<size_t>(t.ndim);
  init(t.data, from_dlpack(t.dtype), {t.shape, n},
       t.strides ? std::span<const int64_t>(t.strides, n) : std::span<const int64_t>(),
       {t.device.type, t.device.index});
  t_.byte_offset = t.byte_offset;
  t_.origin = t.origin;
  if (t_.facts) t_.facts = yard_facts(&t_);
}

// The dtype of a C++ element type.
template <class T>
inline constexpr DType dtype_of = DType::invalid;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<int8_t> = DType::i8;
template <>
inline constexpr DType dtype_of<int16_t> = DType::i16;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::u8;
template <>
inline constexpr DType dtype_of<uint16_t> = DType::u16;
template <>
inline constexpr DType dtype_of<uint32_t> = DType::u32;
template <>
inline constexpr DType dtype_of<uint64_t> = DType::u64;
template <>
inline constexpr DType dtype_of<bool> = DType::boolean;

// A compact view of a contiguous container of a known element type. A shape that needs more elements
// than the container has makes an invalid view.
template <class C>
TensorView view(C& c, std::initializer_list<int64_t> shape) noexcept {
  using T = std::remove_const_t<std::remove_reference_t<decltype(*std::data(c))>>;
  static_assert(dtype_of<T> != DType::invalid, "no dtype for this element type: use TensorView");
  TensorView v(static_cast<const void*>(std::data(c)), dtype_of<T>, shape);
  return v.numel() <= static_cast<int64_t>(std::size(c)) ? v : TensorView();
}

}  // namespace yard
