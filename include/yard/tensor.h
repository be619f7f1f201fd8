// SPDX-License-Identifier: Apache-2.0
// A TensorView is a tensor of a call. It borrows memory and has its own shape and strides. Making a
// view costs a few stores and allocates nothing.
//
//   std::vector<float> x(8 * 4096);
//   yard::TensorView a(x.data(), yard::DType::f32, {8, 4096});
//   yard::TensorView b(x.data(), yard::DType::f32, {8, 2048}, {4096, 1});  // strides, in elements
//   yard::TensorView c = yard::view(x, {8, 4096});  // checks dtype and size of the container
//   yard::TensorView d = yard::view(x.data() + 4096, {7, 4096});  // a pointer has no size to check
//
// Ops also take a program's own tensors if a function `yard_view` in their namespace gives views:
//   yard::TensorView yard_view(const Tensor& t) { return {t.data(), kType, t.sizes()}; }
// A class that keeps its view returns it by reference, which saves most of the time.
#pragma once

#include <yard/status.h>

#include <bit>
#include <concepts>
#include <cstring>

namespace yard {

// The numbers are used in facts words and masks. The q types are block-quantised, as in GGUF.
// clang-format off
enum class DType : uint8_t {
  invalid = 0, f32 = YARD_F32, f16, bf16, f64, f8e4m3, f8e5m2,
  i8 = YARD_I8, i16, i32, i64, u8, u16, u32, u64, boolean, i4, u4,
  q8_0 = YARD_Q8_0, q4_0, q4_1, q4_k, q6_k,
};
// clang-format on

YARD_API const char* to_string(DType t) noexcept;
// Reads other common spellings, too ("float16", "half", "bfloat16", "int8").
YARD_API std::optional<DType> parse_dtype(std::string_view text) noexcept;
// Size of one element in bits. For block-quantised types, size of one block.
YARD_API int bits(DType t) noexcept;
YARD_API int block_elements(DType t) noexcept;
namespace detail {
// clang-format off
inline constexpr yard_dtype_t kDlpack[] = {  // by number
    {},         {2, 32, 1}, {2, 16, 1}, {4, 16, 1}, {2, 64, 1}, {10, 8, 1}, {12, 8, 1},
    {},         {0, 8, 1},  {0, 16, 1}, {0, 32, 1}, {0, 64, 1}, {1, 8, 1},  {1, 16, 1},
    {1, 32, 1}, {1, 64, 1}, {6, 8, 1},  {0, 4, 1},  {1, 4, 1},
    {}, {0x81, 34, 32}, {0x82, 18, 32}, {0x83, 20, 32}, {0x84, 144, 256}, {0x85, 210, 256}};
// clang-format on
template <class C>
concept Sized = requires(C& c) {
  std::size(c);
};
template <class P>
concept Pointer = std::is_pointer_v<std::remove_reference_t<P>>;
}  // namespace detail
constexpr yard_dtype_t to_dlpack(DType t) noexcept {
  const auto i = static_cast<size_t>(t);
  return i < std::size(detail::kDlpack) ? detail::kDlpack[i] : yard_dtype_t{};
}
YARD_API DType from_dlpack(yard_dtype_t t) noexcept;

// Specialise this for types such as a bfloat16 class.
template <class T>
inline constexpr DType dtype_of = [] {
  if (std::is_same_v<T, bool>) return DType::boolean;
  if (std::is_same_v<T, float>) return DType::f32;
  if (std::is_same_v<T, double>) return DType::f64;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    constexpr int kLog = std::bit_width(sizeof(T)) - 1;
    if (std::is_same_v<T, std::make_signed_t<T>>) return static_cast<DType>(YARD_I8 + kLog);
    if (std::is_same_v<T, std::make_unsigned_t<T>>) return static_cast<DType>(YARD_U8 + kLog);
  }
  return DType::invalid;
}();

struct Device {
  int32_t type = 1;  // DLPack's number
  int32_t index = 0;
  friend bool operator==(Device, Device) noexcept = default;
};
YARD_API std::string to_string(Device d);
YARD_API std::optional<Device> parse_device(std::string_view text) noexcept;

// Borrows sizes or strides: `{8, 4096}`, or an array, vector or span of int64_t.
struct Sizes : std::span<const int64_t> {
  constexpr Sizes() noexcept = default;
  constexpr Sizes(std::initializer_list<int64_t> list) noexcept  // NOLINT: implicit on purpose
      : span(list.begin(), list.size()) {}
  template <class R>
  requires requires(const R& r) {
    { std::data(r) } -> std::convertible_to<const int64_t*>;
  }
  constexpr Sizes(const R& r) noexcept : span(std::data(r), std::size(r)) {}  // NOLINT
};

class alignas(16) TensorView {
 public:
  // Makes a view of rank 0 with an invalid dtype, which calls refuse.
  TensorView() noexcept { make_invalid(); }
  // Without strides it is compact, row-major. Calls refuse more than YARD_MAX_RANK dimensions, and
  // null data of tensors with elements. Inputs may be constant, since only outputs are written.
  [[gnu::always_inline]] TensorView(const void* data, DType dtype, Sizes shape, Sizes strides = {},
                                    Device device = {}) noexcept {
    // Programs make views for every call, so compact vectors and matrices take a shorter path.
    void* const start_of = const_cast<void*>(data);
    if (shape.size() == 2 && strides.empty()) {
      const int64_t rows = shape[0], size = shape[1];
      start(start_of, dtype, 2, device);
      put_two(dims_, rows, size), put_two(dims_ + 2, size, 1);
      set_form(dtype, device, data != nullptr, 2, true, {rows, size, size, 1});
    } else if (shape.size() == 1 && strides.empty()) {
      const int64_t size = shape[0];
      start(start_of, dtype, 1, device);
      put_two(dims_, size, 1);
      set_form(dtype, device, data != nullptr, 1, true, {size, 1, 0, 0});
    } else {
      init(start_of, dtype, shape, strides, device);
    }
  }
  YARD_API explicit TensorView(const yard_tensor_t& t) noexcept;  // any tensor of DLPack's layout

  TensorView(const TensorView& o) noexcept : t_(o.t_) { copy_dims(o); }
  TensorView& operator=(const TensorView& o) noexcept { return t_ = o.t_, copy_dims(o), *this; }

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
    for (const int64_t d : shape()) n *= d;
    return n;
  }
  YARD_API bool valid() const noexcept;  // whether dtype, rank and sizes are valid
  // Makes an invalid view for memory that has only `there` elements, as the errors of calls say.
  YARD_API static TensorView too_short(Sizes shape, size_t there) noexcept;

  TensorView with_data(void* data) const noexcept {
    TensorView v = *this;
    v.t_.data = data;
    v.t_.byte_offset = 0;
    if (data == nullptr || !form_.is_exact()) v.find_form(dtype());
    return v;
  }

  // Device, dtype, rank, sizes and strides in two words, the key of the call memo. Several tensors
  // may share an inexact form (no data, rank above 4, very large sizes, unusual strides).
  struct Form {
    uint64_t head;  // low bits of the facts word, the first of sizes and strides in 37, kInexact
    uint64_t dims;  // the next three of these: 20, 20 and 24 bits; the rest is compact
    static constexpr uint64_t kInexact = uint64_t{1} << 63, kCompact = uint64_t{7} << 23;
    static constexpr int kRank = 19, kFirst = 26;  // the lowest bits of rank and first size
    bool is_exact() const noexcept { return (head & kInexact) == 0; }
  };
  const Form& form() const noexcept { return form_; }
  // Returns the view whose c() is `t`.
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
  void make_invalid() noexcept {
    t_ = {};
    t_.shape = t_.strides = dims_;
    form_ = {Form::kInexact, 0};
  }
  // Stores a word separately. g++ would gather two in a vector register, at twice the instructions.
  template <class T>
  [[gnu::always_inline]] static void put(T& to, T from) noexcept {
    const_cast<volatile T&>(to) = from;
  }
  // Stores two words, constants at once.
  [[gnu::always_inline]] static void put_two(int64_t* to, int64_t a, int64_t b) noexcept {
    if (__builtin_constant_p(a) && __builtin_constant_p(b))
      *reinterpret_cast<Pair*>(to) = Pair{a, b};
    else
      put(to[0], a), put(to[1], b);
  }
  // Sets everything but sizes, strides and the form.
  [[gnu::always_inline]] void start(void* data, DType dtype, size_t rank, Device device) noexcept {
    t_.data = data;
    *reinterpret_cast<Pair*>(&t_.device) =  // device, ndim and dtype
        Pair{
            std::bit_cast<int64_t>(device),
            static_cast<int64_t>(rank | uint64_t{std::bit_cast<uint32_t>(to_dlpack(dtype))} << 32)};
    put<const int64_t*>(t_.shape, dims_), put<const int64_t*>(t_.strides, dims_ + rank);
    t_.byte_offset = 0;
    *reinterpret_cast<Pair*>(&t_.facts) = Pair{};  // and origin
  }
  // Sets up views with strides or with a rank other than 1 and 2.
  [[gnu::noinline]] void init(void* data, DType dtype, Sizes shape, Sizes strides,
                              Device device) noexcept {
    const size_t rank = shape.size();
    if (rank > YARD_MAX_RANK || (!strides.empty() && strides.size() != rank)) return make_invalid();
    start(data, dtype, rank, device);
    if (strides.empty() || rank > 2) return set_dims(dtype, shape, strides);
    int64_t dims[4] = {};
    for (size_t i = 0; i < rank; ++i)
      put(dims_[i], dims[i] = shape[i]), put(dims_[rank + i], dims[rank + i] = strides[i]);
    set_form(dtype, device, data != nullptr, static_cast<uint32_t>(rank),
             dims[2 * rank - 1] == 1 && (rank == 1 || dims[2] == dims[1]), dims);
  }

  // `dims` is the beginning of dims_. `exact` is false without data.
  [[gnu::always_inline]] void set_form(DType dtype, Device device, bool exact, uint32_t rank,
                                       bool compact, const int64_t (&dims)[4]) noexcept {
    const auto d = [&](size_t i) { return static_cast<uint64_t>(dims[i]); };
    const auto type = static_cast<uint32_t>(device.type),
               index = static_cast<uint32_t>(device.index);
    const bool known = to_dlpack(dtype).bits != 0;  // from_dlpack() finds no other dtype
    exact = exact && known && type - 1 < 31 && index < 256 &&
            ((d(0) >> 37) | (d(1) >> 20) | (d(2) >> 20) | (d(3) >> 24)) == 0;
    uint64_t head = (known ? static_cast<uint32_t>(dtype) : 0) | type << 6 | index << 11 |
                    rank << Form::kRank | (compact ? Form::kCompact : 0) | d(0) << Form::kFirst;
    uint64_t rest = d(1) | d(2) << 20 | d(3) << 40;
    asm("" : "+r"(head), "+r"(rest));  // stored as two words, as calls load them: that is faster
    if (!exact) [[unlikely]]
      head |= Form::kInexact;
    form_ = {head, rest};
  }
  // find_form() sets only the form, set_dims() also sizes and strides, of any rank.
  YARD_API void set_dims(DType dtype, Sizes shape, Sizes strides) noexcept;
  YARD_API void find_form(DType dtype) noexcept;

  yard_tensor_t t_;                  // first: see of()
  int64_t dims_[2 * YARD_MAX_RANK];  // sizes, then strides
  Form form_;
};

// Makes a compact view of a container, or too_short() if the shape has more elements.
template <detail::Sized C>
[[gnu::always_inline]] inline TensorView view(C& c, Sizes shape) noexcept {
  using T = std::remove_cvref_t<decltype(*std::data(c))>;
  static_assert(dtype_of<T> != DType::invalid, "no dtype for this element type: use TensorView");
  uint64_t numel = 1;
  for (const int64_t n : shape) numel *= static_cast<uint64_t>(n);
  if (static_cast<int64_t>(numel) > static_cast<int64_t>(std::size(c))) [[unlikely]]
    return TensorView::too_short(shape, std::size(c));
  return TensorView(std::data(c), dtype_of<T>, shape);
}
// Makes a view of elements at a pointer. Strides count elements; without them it is compact.
template <detail::Pointer P>
[[gnu::always_inline]] inline TensorView view(P&& data, Sizes shape, Sizes strides = {}) noexcept {
  using T = std::remove_cvref_t<decltype(*data)>;
  static_assert(dtype_of<T> != DType::invalid, "no dtype for this element type: use TensorView");
  return TensorView(data, dtype_of<T>, shape, strides);
}

}  // namespace yard
