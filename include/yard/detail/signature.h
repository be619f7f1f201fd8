// SPDX-License-Identifier: Apache-2.0
// The canonical text of a C++ signature, by which a program and a library compare functions.
// Standalone, since plugins include it. Evaluated at compile time.
//
//   yard::signature_of<int64_t(const Builder&, float*)>()  // "i64(const ir::Builder{48:8}&, f32*)"
//
// A class or enum appears with its full name and {size:alignment}, and in an unnamed namespace with
// a number of its file. Types that stay incomplete or that compilers spell differently get names:
//   template <> struct yard::TypeName<T> { static constexpr std::string_view text = "acme::T"; };
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace yard {

template <class T>
struct TypeName {};

namespace detail {

struct SignatureText {
  char text[4096] = {};
  size_t size = 0;
  constexpr void put(std::string_view s) {
    for (const char c : s) text[size++] = c;  // a text that is too long does not compile
  }
  constexpr void put(size_t n) {
    char digits[20] = {};
    size_t count = 0;
    do digits[count++] = static_cast<char>('0' + n % 10);
    while ((n /= 10) != 0);
    while (count > 0) put(std::string_view(&digits[--count], 1));
  }
};

// Returns T as the compiler spells it: "... [with T = ir::Builder]" or "... [T = ir::Builder]".
template <class T>
constexpr const char* spelled() {
  return __PRETTY_FUNCTION__;
}
template <class T>
constexpr std::string_view type_name() {
  const std::string_view all = spelled<T>();
  const size_t from = all.find("T = ") + 4;
  return all.substr(from, all.rfind(']') - from);
}

// Compilers spell these common templates of one type differently.
template <class T>
inline constexpr const char* kTemplate = nullptr;
template <class T>
inline constexpr const char* kTemplate<std::optional<T>> = "std::optional<";
template <class T>
inline constexpr const char* kTemplate<std::vector<T>> = "std::vector<";
template <class T>
inline constexpr const char* kTemplate<std::unique_ptr<T>> = "std::unique_ptr<";
template <class T>
inline constexpr const char* kTemplate<std::shared_ptr<T>> = "std::shared_ptr<";

template <class T>
constexpr void put_type(SignatureText& to);

template <template <class...> class W, class T, class... Rest>
constexpr void put_first_argument(SignatureText& to, const W<T, Rest...>*) {
  put_type<T>(to);
}

template <class T>
constexpr void put_layout(SignatureText& to) {
  static_assert(
      requires { sizeof(T); },
      "a class in a signature must be complete, so that its layout can be compared; give "
      "an opaque one a yard::TypeName");
  to.put("{"), to.put(sizeof(T)), to.put(":"), to.put(alignof(T)), to.put("}");
}

// Two files may have different types of unnamed namespaces with the same name and size.
constexpr bool is_of_one_file(std::string_view name) {
  return name.find("{anonymous}") != name.npos || name.find("(anonymous namespace)") != name.npos;
}
// A T of one file gives this function internal linkage. The path is private, so it is hashed.
template <class T>
constexpr void put_file(SignatureText& to) {
  uint64_t hash = 14695981039346656037ull;
  for (const char c : std::string_view(__BASE_FILE__))
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  to.put("@"), to.put(static_cast<size_t>(hash % 1000000007));
}

template <class T>
struct FunctionText;

template <class T>
constexpr void put_type(SignatureText& to) {
  if constexpr (requires { TypeName<T>::text; }) {
    to.put(TypeName<T>::text);
  } else if constexpr (std::is_lvalue_reference_v<T>) {
    put_type<std::remove_reference_t<T>>(to), to.put("&");
  } else if constexpr (std::is_rvalue_reference_v<T>) {
    put_type<std::remove_reference_t<T>>(to), to.put("&&");
  } else if constexpr (std::is_const_v<T>) {
    // const is written before a type and after a pointer.
    if constexpr (std::is_pointer_v<T>)
      put_type<std::remove_const_t<T>>(to), to.put(" const");
    else
      to.put("const "), put_type<std::remove_const_t<T>>(to);
  } else if constexpr (std::is_function_v<T>) {
    FunctionText<T>::put(to);
  } else if constexpr (std::is_pointer_v<T>) {
    put_type<std::remove_pointer_t<T>>(to), to.put("*");
  } else if constexpr (std::is_void_v<T>) {
    to.put("void");
  } else if constexpr (std::is_same_v<T, bool>) {
    to.put("bool");
  } else if constexpr (std::is_same_v<T, char>) {
    to.put("char");
  } else if constexpr (std::is_arithmetic_v<T>) {
    to.put(std::is_floating_point_v<T> ? "f" : std::is_signed_v<T> ? "i" : "u");
    to.put(sizeof(T) * 8);
  } else if constexpr (std::is_same_v<T, std::string>) {
    to.put("std::string"), put_layout<T>(to);
  } else if constexpr (std::is_same_v<T, std::string_view>) {
    to.put("std::string_view"), put_layout<T>(to);
  } else if constexpr (kTemplate<T> != nullptr) {
    to.put(kTemplate<T>), put_first_argument(to, static_cast<const T*>(nullptr)), to.put(">");
    put_layout<T>(to);
  } else {
    to.put(type_name<T>()), put_layout<T>(to);
    if constexpr (is_of_one_file(type_name<T>())) put_file<T>(to);
  }
}

template <class R, class... A>
struct FunctionText<R(A...)> {
  static constexpr void put(SignatureText& to) {
    put_type<R>(to), to.put("(");
    bool first = true;
    ((to.put(first ? "" : ", "), first = false, put_type<A>(to)), ...);
    to.put(")");
  }
};
// noexcept makes no difference to the caller.
template <class R, class... A>
struct FunctionText<R(A...) noexcept> : FunctionText<R(A...)> {};

template <class S>
constexpr SignatureText signature_text() {
  SignatureText to;
  FunctionText<S>::put(to);
  return to;
}

template <class S>
struct Signature {
  static constexpr size_t kSize = signature_text<S>().size;
  static constexpr std::array<char, kSize + 1> kText = [] {
    std::array<char, kSize + 1> to{};
    const SignatureText all = signature_text<S>();
    for (size_t i = 0; i < kSize; ++i) to[i] = all.text[i];
    return to;
  }();
};

}  // namespace detail

// Returns the text of R(A...). In a plugin, it lives as long as the plugin.
template <class S>
constexpr const char* signature_of() {
  static_assert(std::is_function_v<S>, "a signature is written R(A...)");
  return detail::Signature<S>::kText.data();
}

}  // namespace yard
