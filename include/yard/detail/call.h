// SPDX-License-Identifier: Apache-2.0
// The inlined part of a typed call. Not for direct use.
#pragma once

#include <yard/detail/memo.h>
#include <yard/detail/params.h>

#include <array>

namespace yard::detail {

// Functions that return a Rep* return null on success. dispatch() makes a call without a memo.
YARD_API Status::Rep* dispatch(Site* site, const yard_value_t* args);
// Runs the plan of a route without a typed entry, or a timed call. The caller holds the guard.
YARD_API Status::Rep* run_route(Site* site, const Route& route, const yard_value_t* args);
YARD_API void free_call_scratch(yard_call_t* call) noexcept;
// In a catch block, writes the exception's text to the call's buffer, or rethrows a cancellation.
YARD_API void note_exception(yard_call_t* call);

// For a kernel without workspace or state. Assigns fields, as g++ writes a braced list twice.
[[gnu::always_inline]] inline void start_call(yard_call_t& call, char* error, uint32_t flags,
                                              const yard_host_t* host, void* self) noexcept {
  call.size = sizeof call;
  call.flags = flags;
  call.host = host;
  call.self = self;
  call.state = nullptr;
  call.workspace = nullptr;
  call.workspace_size = 0;
  call.error = error;
  call.error_size = ThreadHead::kErrorBytes;
  call.host_data = nullptr;
  error[0] = '\0';
}

inline yard_call_t* call_of(yard_call_t& call) noexcept { return &call; }
template <class Frame>
yard_call_t* call_of(Frame& frame) noexcept {
  return &frame.call;
}
#if YARD_EXCEPTIONS  // otherwise calls enter their kernels in the library
// Calls a kernel through `run` and stops its exceptions. `frame` is the call or contains it, so
// that the address of the call takes no register while the kernel runs. Does not free scratch.
template <class Frame, class F>
[[gnu::always_inline]] inline int32_t enter_kernel(Frame& frame, const F& run) {
  try {
    return run();
  } catch (...) {
    Frame* again = &frame;
    if constexpr (!std::is_same_v<Frame, yard_call_t>) asm("" : "+r"(again));
    note_exception(call_of(*again));
    return YARD_FAULT;  // a constant takes no register in the caller
  }
}
template <class Frame, class... W>
[[gnu::always_inline]] inline int32_t enter_typed(void (*typed)(void), Frame& frame, W... w) {
  return enter_kernel(
      frame, [&]() __attribute__((always_inline)) {
        return reinterpret_cast<int32_t (*)(yard_call_t*, W...)>(typed)(call_of(frame), w...);
      });
}
#endif

// Whether loading a word again is cheaper than keeping it in a register.
#if defined(__x86_64__)
inline constexpr bool kFewRegisters = true;
#else
inline constexpr bool kFewRegisters = false;
#endif
// Makes later code load from memory instead of keeping values in registers.
[[gnu::always_inline]] inline void load_again() noexcept {
  if constexpr (kFewRegisters) asm volatile("" : : : "memory");
}
// Stores a word separately. g++ would gather two in a vector register with twice the instructions.
template <class T>
[[gnu::always_inline]] inline void store_apart(T& to, const T& from) noexcept {
  if constexpr (kFewRegisters)
    *const_cast<volatile T*>(&to) = from;
  else
    to = from;
}

// Whether a call may enter a typed kernel without the library.
template <class... P>
YARD_MODE_TAG inline constexpr bool kInRegisters = YARD_EXCEPTIONS &&
                                                   (!std::is_void_v<typename Param<P>::Type> &&
                                                    ...);

template <class... P>
struct TypedForm {
  static constexpr size_t kTensors = (size_t{0} + ... + (Param<P>::is_tensor ? 1 : 0));
  using Tensors = std::array<const yard_tensor_t*, kTensors>;
  using Each = std::make_index_sequence<kTensors>;

  static constexpr std::array<char, kTensors + 1> kLetter = [] {
    std::array<char, kTensors + 1> to{};
    size_t n = 0;
    ((Param<P>::is_tensor ? void(to[n++] = Param<P>::letter) : void()), ...);
    return to;
  }();
  static constexpr bool is_optional(size_t i) { return kLetter[i] < 'a'; }
  static constexpr bool is_written(size_t i) { return kLetter[i] != 'r' && kLetter[i] != 'R'; }

  struct Pairs {  // of tensors, one or both of them written, in the order of CallMemo::words
    struct {
      uint8_t first, second;
    } at[kTensors * kTensors + 1] = {};
    size_t count = 0;
  };
  static constexpr Pairs kPairs = [] {
    Pairs to;
    for (uint8_t i = 0; i < kTensors; ++i)
      for (uint8_t j = i + 1; j < kTensors; ++j)
        if (is_written(i) || is_written(j)) to.at[to.count++] = {i, j};
    return to;
  }();
  using EachPair = std::make_index_sequence<kPairs.count>;

  static Tensors tensors(const P&... p) noexcept {
    Tensors to{};
    [[maybe_unused]] size_t n = 0;
    [[maybe_unused]] const auto put = [&]<class Q>(const Q& q) {
      if constexpr (Param<Q>::is_tensor) to[n++] = Param<Q>::wire(q);
    };
    (put(p), ...);
    return to;
  }

  struct Seen {
    uint64_t head[kTensors + 1], dims[kTensors + 1];  // of their forms
    uint64_t data[kTensors + 1];                      // their addresses, where forms are exact
  };
  [[gnu::always_inline]] static Seen look_at(const Tensors& t) noexcept {
    Seen s;
    s.head[0] = 0;  // of a call without tensors
    [&]<size_t... I>(std::index_sequence<I...>) {
      ((s.head[I] = absent<I>(t) ? 0 : TensorView::of(*t[I]).form().head,
        s.dims[I] = absent<I>(t) ? 0 : TensorView::of(*t[I]).form().dims,
        s.data[I] = absent<I>(t) ? 0 : reinterpret_cast<uintptr_t>(t[I]->data)),
       ...);
    }
    (Each());
    return s;
  }

  [[gnu::always_inline]] static uint64_t hash(const Site& site, const ThreadHead& thread,
                                              const Seen& s) noexcept {
    uint64_t dims = 0;
    for (size_t i = 0; i < kTensors; ++i) dims += s.dims[i];
    uint64_t h = hash_begin(site.id, thread.scope, dims);
    h ^= first_in_place(s);
    [&]<size_t... I>(std::index_sequence<I...>) { ((h ^= hash_part(I, s.head[I])), ...); }
    (Each());
    return hash_end(thread, h);
  }

  // Whether `m`, whose first word is known to be equal, fits the call that `first` describes.
  [[gnu::always_inline]] static bool matches(const CallMemo& m, const Seen& first,
                                             const P&... p) noexcept {
    load_again();
    const Tensors t = tensors(p...);
    const Seen s = kFewRegisters ? look_at(t) : first;
    return is_likely(same_forms(m.words, t, s, Each())) &&
           is_likely(same_distances(m.words + kDistances, s.data, EachPair())) &&
           is_likely((any_bit(s.data, Each()) & m.zero_bits) == 0) &&
           (is_likely(m.more == 0) ||
            ((m.more & CallMemo::kLong) == 0 && same_aligned_scalars(m, s.data, p...)));
  }

 private:
  // Working in place is common, so it is part of the hash.
  [[gnu::always_inline]] static uint64_t first_in_place(const Seen& s) noexcept {
    if constexpr (kPairs.count > 0)
      return in_place_part(s.data[kPairs.at[0].first] == s.data[kPairs.at[0].second]);
    else
      return 0;
  }
  static constexpr size_t kDistances = 2 * kTensors;

  template <size_t I>
  [[gnu::always_inline]] static bool absent(const Tensors& t) noexcept {
    if constexpr (is_optional(I))
      return t[I] == nullptr;
    else
      return false;
  }

  typedef char Bytes __attribute__((vector_size(16)));
  typedef uint32_t Four __attribute__((vector_size(16), may_alias));
  typedef uint64_t Two __attribute__((vector_size(16)));
  // The first word of the forms at `w` is known to be equal.
  template <size_t... I>
  [[gnu::always_inline]] static bool same_forms(const uint64_t* w,
                                                [[maybe_unused]] const Tensors& t,
                                                [[maybe_unused]] const Seen& s,
                                                std::index_sequence<I...>) noexcept {
#if defined(__x86_64__)
    if constexpr (kTensors > 0 && !(is_optional(I) || ...)) {  // compares both words of a form
      // Loads the words one by one, since they were stored one by one, perhaps a moment ago.
      const auto form = [](const TensorView& v) __attribute__((always_inline)) {
        Two words{v.form().head, 0};
        asm("" : "+x"(words));
        words[1] = v.form().dims;
        return words;
      };
      const auto same = (... & (reinterpret_cast<Four>(form(TensorView::of(*t[I]))) ==
                                reinterpret_cast<const Four*>(w)[I]));
      return __builtin_ia32_pmovmskb128(reinterpret_cast<Bytes>(same)) == 0xffff;
    }
#endif
    return (uint64_t{0} | ... |
            ((I == 0 ? 0 : s.head[I] ^ w[2 * I]) | (s.dims[I] ^ w[2 * I + 1]))) == 0;
  }
  template <size_t... K>
  [[gnu::always_inline]] static bool same_distances(const uint64_t* w, const uint64_t* at,
                                                    std::index_sequence<K...>) noexcept {
    return (... && (at[kPairs.at[K].second] - at[kPairs.at[K].first] - w[2 * K] <= w[2 * K + 1]));
  }
  template <size_t... I>
  [[gnu::always_inline]] static uint64_t any_bit(const uint64_t* at,
                                                 std::index_sequence<I...>) noexcept {
    return (uint64_t{0} | ... | at[I]);
  }
  template <size_t... I>
  [[gnu::always_inline]] static uint64_t alignments(const uint64_t* at,
                                                    std::index_sequence<I...>) noexcept {
    return (uint64_t{0} | ... |
            (I < CallMemo::kAlignable ? (at[I] & 0xff) << (8 * (I % CallMemo::kAlignable)) : 0));
  }
  [[gnu::always_inline]] static bool same_aligned_scalars(const CallMemo& m, const uint64_t* at,
                                                          const P&... p) noexcept {
    return (alignments(at, Each()) & m.align_mask) == m.align &&
           ((m.more & CallMemo::kScalars) == 0 ||
            same_scalars(m.words + kDistances + 2 * kPairs.count, p...));
  }
  [[gnu::always_inline]] static bool same_scalars(const uint64_t* w, const P&... p) noexcept {
    uint64_t unlike = 0;
    [[maybe_unused]] const auto compare = [&]<class Q>(const Q& q) {
      if constexpr (!Param<Q>::is_tensor) {
        const yard_value_t v = Param<Q>::pack(q);
        unlike |= word_at(&v.u) ^ *w++;
      }
    };
    (compare(p), ...);
    return unlike == 0;
  }
};

// Keeps in memory what a call needs after its kernel, since every call would have to save
// registers. The memo may hold another form by then, because kernels may call ops.
struct Kept {
  Site* site;
  const void* plan;
  yard_call_t call;
};
template <class... P>
struct TypedKept : Kept {
  uint64_t args[kCells<P...>];  // the payloads of their cells
};
// Ends a call whose kernel failed or was given scratch. The caller holds the guard.
YARD_API Status::Rep* after_kernel(Kept& kept, const uint64_t* args, const HazardSlot& entry,
                                   ThreadHead::Value& calls, int32_t code);

// Returns false if the memo is stale, else `failed` is null on success. The thread is_unfenced().
template <class... P>
[[gnu::always_inline]] inline bool run_memo(Site* site, ThreadHead& thread, const CallMemo& m,
                                            Status::Rep*& failed, const P&... p) {
  char* const error = thread.next_message();
  BasicGuard<true> guard(thread);
  guard.move_to(m.route.entry);
  if (!m.route.is_current()) [[unlikely]]
    return false;
  const auto typed = m.route.typed;
  if (typed == nullptr || thread.count_down()) [[unlikely]] {
    const yard_value_t args[kCells<P...>] = {Param<P>::pack(p)...};
    failed = run_route(site, m.route, args);
    return true;
  }
  TypedKept<P...> kept;
  store_apart(kept.site, site);
  store_apart(kept.plan, m.route.plan);
  [[maybe_unused]] uint64_t* arg = kept.args;
  (store_apart(*arg++, Param<P>::payload(p)), ...);
  start_call(kept.call, error, m.route.flags, m.route.host, m.route.self);
  asm volatile("" : "+m"(kept));
  ThreadHead::Value& calls = *m.calls;
  const int32_t code = enter_typed(typed, kept, Param<P>::wire(p)...);
  if (code == YARD_OK && kept.call.host_data == nullptr) [[likely]] {
    count(calls);
    failed = nullptr;
  } else {
    failed = after_kernel(kept, kept.args, guard.slot(), calls, code);
  }
  return true;
}

template <class... P>
[[gnu::noinline]] Status::Rep* call_in_library(Site* site, P... p) {
  const yard_value_t args[kCells<P...>] = {Param<P>::pack(p)...};
  return dispatch(site, args);
}

// A hit calls nothing before the kernel, so that few registers have to be saved.
template <class... P>
YARD_MODE_TAG __attribute__((no_stack_protector)) inline Status::Rep* call_typed_op(Site* site,
                                                                                    P... p) {
  if constexpr (kInRegisters<P...>) {
    using Form = TypedForm<P...>;
    ThreadHead* const thread = t_thread;
    if (thread != nullptr && thread->is_unfenced()) [[likely]] {
      const typename Form::Seen first = Form::look_at(Form::tensors(p...));
      const uint64_t hash = Form::hash(*site, *thread, first);
      const CallMemo* const m = thread->memos->find(hash, site->id, first.head[0]);
      Status::Rep* failed;
      if (is_likely(m != nullptr) && is_likely(m->scope == thread->scope) &&
          is_likely(Form::matches(*m, first, p...)) &&
          is_likely(run_memo(site, *thread, *m, failed, p...)))
        return failed;
    }
  }
  return call_in_library<P...>(site, p...);
}
// Takes the program's own tensors. Making the views and the call in one function saves 3 ns.
template <class... P, class... A>
YARD_MODE_TAG __attribute__((no_stack_protector, flatten)) inline Status::Rep* call_own_tensors(
    Site* site, const A&... a) {
  return call_typed_op<P...>(site, as_argument(a)...);
}

}  // namespace yard::detail
