// SPDX-License-Identifier: Apache-2.0
// The parameter types of typed ops, and how each travels to the library.
//
// An op's C++ signature is checked against its schema when the op is first used: `Out` for `out!`,
// `InOut` for `x~`, `In` for plain tensors, the `Opt` forms for optional ones, any arithmetic type for
// int and float, enums (or integers) for enum parameters, std::string_view for strings.
#pragma once

#include <yard/tensor.h>
#include <yard/value.h>

#include <optional>
#include <string_view>
#include <type_traits>

namespace yard {

namespace detail {
class TensorParam {
 public:
  TensorParam(const TensorView& v) noexcept : t_(&v.c()) {}  // NOLINT: implicit on purpose
  const yard_tensor_t* c() const noexcept { return t_; }

 protected:
  TensorParam() noexcept = default;
  const yard_tensor_t* t_ = nullptr;
};
class OptTensorParam : public TensorParam {
 public:
  using TensorParam::TensorParam;
  OptTensorParam(std::nullopt_t) noexcept {}  // NOLINT
  OptTensorParam(std::nullptr_t) noexcept {}  // NOLINT
};
}  // namespace detail

// Borrowed for the length of the call.
struct In : detail::TensorParam {
  using TensorParam::TensorParam;
};
struct Out : detail::TensorParam {
  using TensorParam::TensorParam;
};
struct InOut : detail::TensorParam {
  using TensorParam::TensorParam;
};
struct OptIn : detail::OptTensorParam {
  using OptTensorParam::OptTensorParam;
};
struct OptOut : detail::OptTensorParam {
  using OptTensorParam::OptTensorParam;
};
struct OptInOut : detail::OptTensorParam {
  using OptTensorParam::OptTensorParam;
};
struct InList {
  InList(const TensorList& l) noexcept : items(l.items()) {}  // NOLINT
  std::span<const yard_tensor_t* const> items;
};

namespace detail {

// letter: what the library compares with the schema. Type and wire(): how a kernel's typed entry takes
// it (plugin.h). pack(): the cell of the packed call.
template <class P>
struct Param {
  static_assert(
      std::is_arithmetic_v<P> || std::is_enum_v<P>,
      "an op's parameter is In, Out, InOut, OptIn, OptOut, OptInOut, InList, an arithmetic "
      "or enum type, or std::string_view");
  static constexpr bool is_tensor = false;
  static constexpr char letter = std::is_same_v<P, bool>       ? 'b'
                                 : std::is_floating_point_v<P> ? 'f'
                                                               : 'n';
  using Type = std::conditional_t<std::is_same_v<P, bool>, int32_t,
                                  std::conditional_t<std::is_floating_point_v<P>, double, int64_t>>;
  static yard_value_t pack(P p) noexcept {
    yard_value_t v;
    v.count = 0;
    if constexpr (std::is_floating_point_v<P>) {
      v.tag = YARD_TAG_FLOAT, v.u.f = static_cast<double>(p);
    } else {
      v.tag = std::is_same_v<P, bool> ? YARD_TAG_BOOL : YARD_TAG_INT;
      v.u.i = static_cast<int64_t>(p);
    }
    return v;
  }
  static Type wire(P p) noexcept { return static_cast<Type>(p); }
};

template <char Letter>
struct TensorParamTraits {
  static constexpr bool is_tensor = true;
  static constexpr char letter = Letter;
  using Type = const yard_tensor_t*;
  static yard_value_t pack(const TensorParam& p) noexcept {
    yard_value_t v;
    v.tag = YARD_TAG_TENSOR, v.count = 0, v.u.tensor = p.c();
    return v;
  }
  static Type wire(const TensorParam& p) noexcept { return p.c(); }
};
template <char Letter>
struct OptTensorParamTraits : TensorParamTraits<Letter> {
  static yard_value_t pack(const OptTensorParam& p) noexcept {
    yard_value_t v;
    v.tag = p.c() != nullptr ? YARD_TAG_TENSOR : YARD_TAG_NONE, v.count = 0, v.u.tensor = p.c();
    return v;
  }
};
template <>
struct Param<In> : TensorParamTraits<'r'> {};
template <>
struct Param<Out> : TensorParamTraits<'w'> {};
template <>
struct Param<InOut> : TensorParamTraits<'m'> {};
template <>
struct Param<OptIn> : OptTensorParamTraits<'R'> {};
template <>
struct Param<OptOut> : OptTensorParamTraits<'W'> {};
template <>
struct Param<OptInOut> : OptTensorParamTraits<'M'> {};

// Strings and lists have no register form; calls that pass them go packed.
template <>
struct Param<InList> {
  static constexpr bool is_tensor = false;
  static constexpr char letter = 'l';
  using Type = void;
  static yard_value_t pack(const InList& l) noexcept {
    yard_value_t v;
    v.tag = YARD_TAG_LIST, v.count = static_cast<uint32_t>(l.items.size()),
    v.u.list = l.items.data();
    return v;
  }
};
template <>
struct Param<std::string_view> {
  static constexpr bool is_tensor = false;
  static constexpr char letter = 's';
  using Type = void;
  static yard_value_t pack(std::string_view s) noexcept {
    yard_value_t v;
    v.tag = YARD_TAG_STRING, v.count = static_cast<uint32_t>(s.size()), v.u.string = s.data();
    return v;
  }
};

template <class... P>
inline constexpr size_t kCells = sizeof...(P) > 0 ? sizeof...(P) : 1;
template <class... P>
inline constexpr char kLetters[] = {Param<P>::letter..., '\0'};

}  // namespace detail
}  // namespace yard
