// SPDX-License-Identifier: Apache-2.0
// The arguments of a dispatched function for people, as far as their types tell. Not for direct use.
//
// Numbers and texts are themselves, tensors are handed on, everything else is its type.
#pragma once

#include <yard/detail/signature.h>
#include <yard/tensor.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>

namespace yard::detail {

// `tensor` null: `text` says all.
using SayArgument = void (*)(void* to, const char* text, const yard_tensor_t* tensor);

inline std::string number_text(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", v);
  return text;
}

inline std::string quoted_text(std::string_view text) {
  constexpr size_t kMost = 60;
  std::string to = "\"" + std::string(text.substr(0, kMost)) + "\"";
  return text.size() > kMost ? to + "..." : to;
}

template <class T>
std::string argument_text(const T& a) {
  using Plain = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<Plain, bool>) {
    return a ? "true" : "false";
  } else if constexpr (std::is_floating_point_v<Plain>) {
    return number_text(static_cast<double>(a));
  } else if constexpr (std::is_integral_v<Plain>) {
    return std::to_string(a);
  } else if constexpr (std::is_enum_v<Plain>) {
    return std::to_string(static_cast<std::underlying_type_t<Plain>>(a));
  } else if constexpr (std::is_same_v<Plain, std::string> ||
                       std::is_same_v<Plain, std::string_view>) {
    return quoted_text(a);
  } else {
    SignatureText text;
    put_type<Plain>(text);
    return std::string(text.text, text.size);
  }
}

template <class T>
void describe_argument(const T& a, SayArgument say, void* to) {
  using Plain = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<Plain, TensorView>)
    say(to, "", &a.c());
  else if constexpr (std::is_same_v<Plain, yard_tensor_t>)
    say(to, "", &a);
  else
    say(to, argument_text(a).c_str(), nullptr);
}

}  // namespace yard::detail
