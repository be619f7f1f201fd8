// SPDX-License-Identifier: Apache-2.0
// The canonical text of a C++ signature, by which a program and a library that was built elsewhere check that they mean
// the same function.
//
//   yard::signature_of<int64_t(const Builder&, float*)>()     "i64(const ir::Builder{48:8}&, f32*)"
//
// Integers are i8 to u64, floating-point numbers f32 and f64. A class or enum has its full name and {size:alignment}: a
// library that was compiled with another size or alignment is refused. Other differences of a class are found if its
// fields are declared, where program and library see it; then the names and types of these are part of the text:
//
//   template <> struct yard::TypeFields<ir::Value> : yard::Fields<&ir::Value::id, &ir::Value::width> {};
//   "void(ir::Value{16:8 id:f64 width:i32})"
//
// All fields are declared, in their order; of an aggregate anything else does not compile. A type of an unnamed
// namespace also has a number of its source file (one for all files that share a precompiled header with this one in
// it). A type that stays incomplete, or whose name compilers spell differently, is given a name:
//
//   template <> struct yard::TypeName<Context> { static constexpr std::string_view text = "acme::Context"; };
//
// Standalone: plugins include it, too. Evaluated at compile time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace yard {

// Specialise it, with a member `text`, to name a type.
template <class T>
struct TypeName {};

// Specialise it, as a class that derives from Fields, to make the fields of a class part of signatures.
template <class T>
struct TypeFields {};

namespace detail {

struct SignatureText {
  char text[4096] = {};
  size_t size = 0;
  constexpr void put(std::string_view s) {
    for (const char c : s) text[size++] = c;  // too long: does not compile
  }
  constexpr void put(size_t n) {
    char digits[20] = {};
    size_t count = 0;
    do digits[count++] = static_cast<char>('0' + n % 10);
    while ((n /= 10) != 0);
    while (count > 0) put(std::string_view(&digits[--count], 1));
  }
};

// As the compiler spells it: "... [with T = ir::Builder]" or "... [T = ir::Builder]".
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

// Common templates of one type, which compilers spell differently; null for other types.
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

// ---- Declared fields ----

template <auto Member>
constexpr const char* spelled_member() {
  return __PRETTY_FUNCTION__;
}
// The identifier that "... Member = &ir::Value::id]" ends with.
template <auto Member>
constexpr std::string_view member_name() {
  const std::string_view all = spelled_member<Member>();
  const size_t end = all.rfind(']');
  return all.substr(all.rfind(':', end) + 1, end - all.rfind(':', end) - 1);
}
template <class M>
struct MemberOf;
template <class M, class T>
struct MemberOf<M T::*> {
  using Class = T;
  using Type = std::remove_cv_t<M>;
};
template <auto Member>
using MemberType = typename MemberOf<decltype(Member)>::Type;

// Initialises a T, and nothing else; anything.
template <class T>
struct Exactly {
  template <class U>
  requires(std::is_same_v<U, T>) constexpr operator U() const noexcept;
};
struct Anything {
  template <class U>
  constexpr operator U() const noexcept;
};
template <class... T>
struct Initializers {
  template <class More>
  using And = Initializers<T..., More>;
};
// Appends what initialises a field: of an array, each element.
template <class List, class M>
struct Append {
  using Type = typename List::template And<Exactly<M>>;
};
template <class List, class M>
struct Append<List, M[1]> : Append<List, std::remove_cv_t<M>> {};
template <class List, class M, size_t N>
struct Append<List, M[N]> : Append<typename Append<List, std::remove_cv_t<M>>::Type, M[N - 1]> {};
template <class List, class... M>
struct AppendAll {
  using Type = List;
};
template <class List, class M, class... More>
struct AppendAll<List, M, More...> : AppendAll<typename Append<List, M>::Type, More...> {};

template <class T, class... I>
constexpr bool initialises(Initializers<I...>) {
  return requires { T{I{}...}; };
}
template <class T>
struct Unmade {
  union {
    char none;
    T object;
  };
  constexpr Unmade() : none() {}
  constexpr ~Unmade() {}
};
// Whether the first of two fields of one type comes first; of different types: true.
template <auto A, auto B>
constexpr bool in_order() {
  if constexpr (std::is_same_v<decltype(A), decltype(B)>) {
    Unmade<typename MemberOf<decltype(A)>::Class> of;
    return &(of.object.*A) < &(of.object.*B);
  }
  return true;
}
template <auto First, auto... Rest>
constexpr bool all_in_order() {
  if constexpr (sizeof...(Rest) > 0)
    return (in_order<First, Rest>() && ...) && all_in_order<Rest...>();
  return true;
}
// Whether these are all fields of T, in their order. Known of aggregates only.
template <class T, auto... Members>
constexpr bool are_all_fields() {
  if constexpr (std::is_aggregate_v<T>) {
    using List = typename AppendAll<Initializers<>, MemberType<Members>...>::Type;
    return initialises<T>(List()) && !initialises<T>(typename List::template And<Anything>()) &&
           all_in_order<Members...>();
  }
  return true;
}

// A field may point to its own class, or to one that is not complete here: classes behind pointers have their name only.
template <class T>
constexpr void put_field_type(SignatureText& to) {
  if constexpr (std::is_pointer_v<T>) {
    using To = std::remove_pointer_t<T>;
    if constexpr (std::is_class_v<To> || std::is_union_v<To>) {
      using Plain = std::remove_cv_t<To>;
      to.put(std::is_const_v<To> ? "const " : "");
      if constexpr (requires { TypeName<Plain>::text; })
        to.put(TypeName<Plain>::text);
      else
        to.put(type_name<Plain>());
    } else {
      put_field_type<To>(to);
    }
    to.put("*");
  } else if constexpr (std::is_array_v<T>) {
    put_field_type<std::remove_all_extents_t<T>>(to);
    [&]<size_t... I>(std::index_sequence<I...>) {
      ((to.put("["), to.put(std::extent_v<T, I>), to.put("]")), ...);
    }
    (std::make_index_sequence<std::rank_v<T>>());
  } else {
    put_type<T>(to);
  }
}

// ---- Types ----

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
  to.put("{"), to.put(sizeof(T)), to.put(":"), to.put(alignof(T));
  if constexpr (requires { TypeFields<T>::template put_fields<T>(to); })
    TypeFields<T>::template put_fields<T>(to);
  to.put("}");
}

// Types of unnamed namespaces: two files may have different ones of the same name and size.
constexpr bool is_of_one_file(std::string_view name) {
  return name.find("{anonymous}") != name.npos || name.find("(anonymous namespace)") != name.npos;
}
// Such a T gives this function internal linkage, so that every file has its own. The path is hashed: it is private.
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

// The fields of a class, as pointers to members: all of them, in their order. Nested classes declare their own.
template <auto... Members>
struct Fields {
  template <class T>
  static constexpr void put_fields(detail::SignatureText& to) {
    static_assert(detail::are_all_fields<T, Members...>(),
                  "yard::Fields must list all fields of the class, in their order");
    ((to.put(" "), to.put(detail::member_name<Members>()), to.put(":"),
      detail::put_field_type<detail::MemberType<Members>>(to)),
     ...);
  }
};

// The text of R(A...). Lives as long as the program; in a plugin, as long as it is loaded.
template <class S>
constexpr const char* signature_of() {
  static_assert(std::is_function_v<S>, "a signature is written R(A...)");
  return detail::Signature<S>::kText.data();
}

}  // namespace yard
