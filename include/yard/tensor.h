// SPDX-License-Identifier: Apache-2.0
// Tensor views: what a call is made on.
//
// A TensorView borrows memory and carries its own shape and strides. Building one costs a few stores, so views
// may be rebuilt for every call. Copying a view copies some 200 bytes and no data; nothing here allocates. A
// view is a value: threads may read one at once.
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
constexpr yard_dtype_t to_dlpack(DType t) noexcept {
  constexpr uint8_t kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kBool = 6, kE4m3 = 10, kE5m2 = 12;
  switch (t) {
    case DType::f32: return {kFloat, 32, 1};
    case DType::f16: return {kFloat, 16, 1};
    case DType::bf16: return {kBfloat, 16, 1};
    case DType::f64: return {kFloat, 64, 1};
    case DType::f8e4m3: return {kE4m3, 8, 1};
    case DType::f8e5m2: return {kE5m2, 8, 1};
    case DType::i8: return {kInt, 8, 1};
    case DType::i16: return {kInt, 16, 1};
    case DType::i32: return {kInt, 32, 1};
    case DType::i64: return {kInt, 64, 1};
    case DType::u8: return {kUint, 8, 1};
    case DType::u16: return {kUint, 16, 1};
    case DType::u32: return {kUint, 32, 1};
    case DType::u64: return {kUint, 64, 1};
    case DType::boolean: return {kBool, 8, 1};
    case DType::i4: return {kInt, 4, 1};
    case DType::u4: return {kUint, 4, 1};
    default: return {0, 0, 0};
  }
}
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

class alignas(16) TensorView {
 public:
  // No tensor: rank 0, invalid dtype. A call refuses it.
  TensorView() noexcept { make_invalid(); }

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
    return {dims_ + t_.ndim, static_cast<size_t>(t_.ndim)};
  }
  int64_t numel() const noexcept {
    int64_t n = 1;
    for (int64_t d : shape()) n *= d;
    return n;
  }
  // Whether calls can read it at all: known dtype, rank in range, sizes that fit.
  bool valid() const noexcept { return yard_facts(&t_) != 0; }

  // The same tensor over other memory.
  TensorView with_data(void* data) const noexcept {
    TensorView v = *this;
    v.t_.data = data;
    v.t_.byte_offset = 0;
    if (data == nullptr || !form_.is_exact()) v.find_form();
    return v;
  }
  // The caller's own object, handed through to the kernel.
  TensorView with_origin(void* origin) const noexcept {
    TensorView v = *this;
    v.t_.origin = origin;
    return v;
  }

  // Device, dtype, rank, sizes and strides in two words, by which calls find what they remember. An exact form says all of
  // them, and that there are data at offset 0. An inexact one (more than four dimensions, very large sizes, strides that
  // skip in inner dimensions) may belong to several tensors.
  struct Form {
    // The facts word's bits for dtype, device and rank, and those of a compact tensor if it is one; the first of sizes
    // and strides (37 bits); kInexact.
    uint64_t head;
    // The next three of sizes and strides: 20, 20 and 24 bits. What they leave out is compact.
    uint64_t dims;
    static constexpr uint64_t kInexact = uint64_t{1} << 63;
    static constexpr uint64_t kCompact =
        YARD_FACTS_COMPACT | YARD_FACTS_INNER_DENSE | YARD_FACTS_PLAIN;
    static constexpr int kFirst = 26;  // the lowest bit of the first size
    bool is_exact() const noexcept { return (head & kInexact) == 0; }
  };
  const Form& form() const noexcept { return form_; }
  // The view that a tensor given by c() belongs to.
  static const TensorView& of(const yard_tensor_t& t) noexcept {
    return reinterpret_cast<const TensorView&>(t);
  }

 private:
  typedef int64_t Pair __attribute__((vector_size(16), aligned(8), may_alias));

  void copy_dims(const TensorView& o) noexcept {
    std::memcpy(dims_, o.dims_, sizeof dims_);
    t_.shape = dims_, t_.strides = dims_ + t_.ndim;
    form_ = o.form_;
  }
  // No dtype: every reader refuses it.
  void make_invalid() noexcept {
    t_ = {};
    t_.shape = t_.strides = dims_;
    form_ = {Form::kInexact, 0};
  }
  // Two of dims_ at once.
  [[gnu::always_inline]] void put(size_t at, int64_t a, int64_t b) noexcept {
    *reinterpret_cast<Pair*>(dims_ + at) = Pair{a, b};
  }
  [[gnu::always_inline]] void init(void* data, DType dtype, std::span<const int64_t> shape,
                                   std::span<const int64_t> strides, Device device) noexcept {
    const size_t rank = shape.size();
    if (rank > YARD_MAX_RANK || (!strides.empty() && strides.size() != rank)) [[unlikely]]
      return make_invalid();
    const yard_dtype_t type = to_dlpack(dtype);
    const uint64_t rank_and_dtype =
        rank | uint64_t{type.code} << 32 | uint64_t{type.bits} << 40 | uint64_t{type.lanes} << 48;
    t_.data = data;
    *reinterpret_cast<Pair*>(&t_.device) =  // device, ndim and dtype
        Pair{static_cast<int64_t>(static_cast<uint32_t>(device.type) |
                                  static_cast<uint64_t>(device.index) << 32),
             static_cast<int64_t>(rank_and_dtype)};
    t_.shape = dims_;
    t_.strides = dims_ + rank;
    t_.byte_offset = 0;
    t_.facts = 0;
    t_.origin = nullptr;
    const bool given = !strides.empty();
    // Products that overflow belong to sizes that every reader refuses.
    if (rank == 2) {
      const int64_t outer = given ? strides[0] : shape[1], inner = given ? strides[1] : 1;
      put(0, shape[0], shape[1]), put(2, outer, inner);
      set_form(dtype, device, type.bits != 0 && data != nullptr,
               !given || (outer == shape[1] && inner == 1), {shape[0], shape[1], outer, inner});
    } else if (rank == 1) {
      const int64_t stride = given ? strides[0] : 1;
      put(0, shape[0], stride);
      set_form(dtype, device, type.bits != 0 && data != nullptr, stride == 1,
               {shape[0], stride, 0, 0});
    } else {
      uint64_t compact = 1;
      for (size_t i = rank; i-- > 0;) {
        dims_[i] = shape[i];
        dims_[rank + i] = given ? strides[i] : static_cast<int64_t>(compact);
        compact *= static_cast<uint64_t>(shape[i]);
      }
      find_form();
    }
  }

  // `exact`: as far as `dims`, the first four of dims_, and the device do not decide that.
  [[gnu::always_inline]] void set_form(DType dtype, Device device, bool exact, bool compact,
                                       const int64_t (&dims)[4]) noexcept {
    const auto d = [&](size_t i) { return static_cast<uint64_t>(dims[i]); };
    const auto type = static_cast<uint32_t>(device.type),
               index = static_cast<uint32_t>(device.index);
    exact = exact && type - 1 < 31 && index < 256 &&
            ((d(0) >> 37) | (d(1) >> 20) | (d(2) >> 20) | (d(3) >> 24)) == 0;
    if (!exact) [[unlikely]]
      return set_inexact_form();
    uint64_t head = static_cast<uint32_t>(dtype) | type << 6 | index << 11 |
                    static_cast<uint32_t>(t_.ndim) << YARD_FACTS_RANK_SHIFT |
                    (compact ? Form::kCompact : 0) | d(0) << Form::kFirst;
    uint64_t rest = d(1) | d(2) << 20 | d(3) << 40;
    asm("" : "+r"(head), "+r"(rest));  // stored as two words, as calls load them: that is faster
    form_ = {head, rest};
  }
  // Of a tensor that has been set in all else.
  void find_form() noexcept {
    const int32_t rank = t_.ndim;
    bool compact = true, rest_is_compact = true;
    uint64_t step = 1;
    for (int32_t i = rank; i-- > 0;) {
      const bool is_next = static_cast<uint64_t>(dims_[rank + i]) == step;
      compact &= is_next;
      if (rank + i >= 4) rest_is_compact &= is_next;
      step *= static_cast<uint64_t>(dims_[i]);
    }
    const bool exact = t_.data != nullptr && t_.byte_offset == 0 && dtype() != DType::invalid &&
                       rank <= 4 && rest_is_compact;
    int64_t first[4] = {};
    for (int32_t i = 0; i < 4 && i < 2 * rank; ++i) first[i] = dims_[i];
    set_form(dtype(), device(), exact, compact, first);
  }
  [[gnu::noinline]] void set_inexact_form() noexcept {
    uint64_t head, dims = 0;
    std::memcpy(&head, &t_.ndim, sizeof head);  // and dtype
    for (int32_t i = 0; i < 2 * t_.ndim; ++i) {
      head = (head ^ static_cast<uint64_t>(dims_[i])) * 0x9e3779b97f4a7c15ull;
      head ^= head >> 32;
      dims = dims * 31 + static_cast<uint64_t>(dims_[i]);
    }
    form_ = {head | Form::kInexact, dims};
  }

  yard_tensor_t t_;                  // first: see of()
  int64_t dims_[2 * YARD_MAX_RANK];  // sizes, then strides
  Form form_;
};
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

inline TensorView::TensorView(const yard_tensor_t& t) noexcept {
  if (t.ndim < 0 || t.ndim > YARD_MAX_RANK || (t.ndim > 0 && !t.shape)) {
    make_invalid();
    return;
  }
  const auto n = static_cast<size_t>(t.ndim);
  init(t.data, from_dlpack(t.dtype), {t.shape, n},
       t.strides ? std::span<const int64_t>(t.strides, n) : std::span<const int64_t>(),
       {t.device.type, t.device.index});
  t_.byte_offset = t.byte_offset;
  t_.origin = t.origin;
  if (t.byte_offset != 0) find_form();
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
  uint64_t numel = 1;
  for (const int64_t n : shape) numel *= static_cast<uint64_t>(n);
  const bool fits = static_cast<int64_t>(numel) <= static_cast<int64_t>(std::size(c));
  return TensorView(static_cast<const void*>(std::data(c)), fits ? dtype_of<T> : DType::invalid,
                    shape);
}

}  // namespace yard
