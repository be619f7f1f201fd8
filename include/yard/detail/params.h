// SPDX-License-Identifier: Apache-2.0
// The parameter types of typed ops: `Out` for `out!`, `InOut` for `x~`, `In`, their `Opt` forms,
// arithmetic types, enums (or integers), InList (call_spec.h) and std::string_view.
#pragma once

#include <yard/tensor.h>

namespace yard {

// A class of the program that has a `yard_view` (tensor.h).
template <class T>
concept TensorLike = requires(const T& t) {
  requires std::same_as<std::remove_cvref_t<decltype(yard_view(t))>, TensorView>;
};

namespace detail {

// Borrows the view for the length of the call. Capital letters are optional tensors.
template <char kLetter>
class TensorParam {
 public:
  static constexpr bool kOptional = kLetter < 'a';
  TensorParam(const TensorView& v) noexcept : t_(&v.c()) {}   // NOLINT: implicit
  TensorParam(std::nullopt_t) noexcept requires kOptional {}  // NOLINT
  TensorParam(std::nullptr_t) noexcept requires kOptional {}  // NOLINT
  const yard_tensor_t* c() const noexcept { return t_; }

 private:
  const yard_tensor_t* t_ = nullptr;
};

template <class T>
const T& as_argument(const T& t) {
  return t;
}
decltype(auto) as_argument(const TensorLike auto& t) { return yard_view(t); }

// `letter` is compared with the schema. Typed entries (plugin.h) take wire(), unless Type is void.
// pack() makes the cell of a packed call, and payload() its last word.
template <class P>
struct Param {
  static_assert(
      std::is_arithmetic_v<P> || std::is_enum_v<P>,
      "an op's parameter is In, Out, InOut, OptIn, OptOut, OptInOut, InList, an arithmetic "
      "or enum type, or std::string_view");
  static constexpr bool is_tensor = false, is_bool = std::is_same_v<P, bool>;
  static constexpr char letter = is_bool ? 'b' : std::is_floating_point_v<P> ? 'f' : 'n';
  using Type = std::conditional_t<is_bool, int32_t,
                                  std::conditional_t<std::is_floating_point_v<P>, double, int64_t>>;
  static uint64_t payload(P p) noexcept {
    if constexpr (std::is_floating_point_v<P>)
      return std::bit_cast<uint64_t>(static_cast<double>(p));
    else
      return static_cast<uint64_t>(p);
  }
  static yard_value_t pack(P p) noexcept {
    constexpr uint32_t kTag = is_bool                       ? YARD_TAG_BOOL
                              : std::is_floating_point_v<P> ? YARD_TAG_FLOAT
                                                            : YARD_TAG_INT;
    return {kTag, 0, {.i = static_cast<int64_t>(payload(p))}};
  }
  static Type wire(P p) noexcept { return static_cast<Type>(p); }
};

template <char kLetter>
struct Param<TensorParam<kLetter>> {
  static constexpr bool is_tensor = true;
  static constexpr char letter = kLetter;
  using Type = const yard_tensor_t*;
  static uint64_t payload(const TensorParam<kLetter>& p) noexcept {
    return reinterpret_cast<uintptr_t>(p.c());
  }
  static yard_value_t pack(const TensorParam<kLetter>& p) noexcept {
    const bool given = !TensorParam<kLetter>::kOptional || p.c() != nullptr;
    return {given ? uint32_t{YARD_TAG_TENSOR} : uint32_t{YARD_TAG_NONE}, 0, {.tensor = p.c()}};
  }
  static Type wire(const TensorParam<kLetter>& p) noexcept { return p.c(); }
};
template <>
struct Param<std::string_view> {
  static constexpr bool is_tensor = false;
  static constexpr char letter = 's';
  using Type = void;
  static yard_value_t pack(std::string_view s) noexcept {
    return {YARD_TAG_STRING, static_cast<uint32_t>(s.size()), {.string = s.data()}};
  }
};

template <class... P>
inline constexpr size_t kCells = sizeof...(P) > 0 ? sizeof...(P) : 1;
template <class... P>
inline constexpr char kLetters[] = {Param<P>::letter..., '\0'};

}  // namespace detail

using In = detail::TensorParam<'r'>;
using Out = detail::TensorParam<'w'>;
using InOut = detail::TensorParam<'m'>;
using OptIn = detail::TensorParam<'R'>;
using OptOut = detail::TensorParam<'W'>;
using OptInOut = detail::TensorParam<'M'>;

}  // namespace yard
