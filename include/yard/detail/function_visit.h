// SPDX-License-Identifier: Apache-2.0
// What a verifier could reach through the arguments of a dispatched function, as far as their types tell. Not
// for direct use.
//
// Tensors are looked at with their data, values without pointers byte by byte, vectors and spans of such with what
// they hold. For a type of one's own, a function found by its argument says what belongs to it:
//
//   void yard_visit(const Args& a, auto&& see) { see(a.q), see(std::span(a.k, a.size)), see(a.heads); }
#pragma once

#include <yard/plugin.h>
#include <yard/tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace yard::detail {

using SeeBytes = void (*)(void* to, const void* data, size_t bytes);
inline constexpr size_t kMostSeen = size_t{1} << 20;  // bytes of one tensor

inline void visit_tensor(const yard_tensor_t& t, SeeBytes see, void* to) {
  see(to, &t, sizeof t);
  if (t.shape == nullptr || t.ndim < 0 || t.ndim > YARD_MAX_RANK) return;
  const auto rank = static_cast<size_t>(t.ndim);
  see(to, t.shape, rank * sizeof *t.shape);
  if (t.strides != nullptr) see(to, t.strides, rank * sizeof *t.strides);
  if (t.data == nullptr || t.device.type != 1 || (yard_facts(&t) & YARD_FACTS_COMPACT) == 0) return;
  size_t bytes = (t.dtype.bits + 7u) / 8;
  for (size_t i = 0; i < rank; ++i) bytes *= static_cast<size_t>(t.shape[i]);
  see(to, static_cast<const char*>(t.data) + t.byte_offset, std::min(bytes, kMostSeen));
}

template <class T>
inline constexpr bool kIsPlainVector = false;
template <class T>
inline constexpr bool kIsPlainVector<std::vector<T>> =
    std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>;
template <class T, size_t N>
inline constexpr bool kIsPlainVector<std::span<T, N>> = std::is_trivially_copyable_v<T>;

template <class T>
void visit_argument(const T& a, SeeBytes see, void* to) {
  using Plain = std::remove_cv_t<T>;
  const auto see_more = [&](const auto& part) { visit_argument(part, see, to); };
  if constexpr (std::is_same_v<Plain, TensorView>)
    visit_tensor(a.c(), see, to);
  else if constexpr (std::is_same_v<Plain, yard_tensor_t>)
    visit_tensor(a, see, to);
  else if constexpr (requires { yard_visit(a, see_more); })
    yard_visit(a, see_more);
  else if constexpr (kIsPlainVector<Plain>)
    see(to, a.data(), a.size() * sizeof(typename Plain::value_type));
  else if constexpr (std::is_trivially_copyable_v<Plain> && !std::is_function_v<Plain>)
    see(to, &a, sizeof a);
}

}  // namespace yard::detail
