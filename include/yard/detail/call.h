// SPDX-License-Identifier: Apache-2.0
// The inline part of a typed call: a call of a form that this thread remembers goes straight to its kernel's
// typed entry, with its arguments in registers. Not for direct use.
#pragma once

#include <yard/detail/guard.h>
#include <yard/detail/memo.h>
#include <yard/params.h>

#include <array>
#include <cstddef>
#include <tuple>
#include <utility>

namespace yard::detail {

// One call whose form is not remembered, or whose memo is stale; null when it went well. `hash` is that of its
// form.
YARD_API Status::Rep* dispatch(Site* site, const yard_value_t* args, uint64_t hash);
// The same for arguments that do not travel in registers; the library looks for a memo.
YARD_API Status::Rep* dispatch_packed(Site* site, const yard_value_t* args);
// A route whose kernel must be called packed. Inside the guard.
YARD_API Status::Rep* run_route(Site* site, const Route& route, const yard_value_t* args);
// After a route's kernel failed. Inside the guard.
YARD_API Status::Rep* route_failed(Site* site, const void* entry, const void* plan,
                                   const yard_value_t* args, uint32_t flags, int32_t code,
                                   const char* message);
YARD_API void free_call_scratch(yard_call_t* call) noexcept;
// In a catch block: the exception as a fault, its text in the call's error buffer. Lets the unwinding of a
// cancelled thread through.
YARD_API int32_t fault_from_exception(yard_call_t* call);

// What a kernel without workspace or state is given. Field by field: g++ writes the words of a braced list
// twice.
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

// Calls a kernel, by whichever entry `run` knows. The one place where exceptions of kernels end.
template <class F>
[[gnu::always_inline]] inline int32_t call_kernel(yard_call_t& call, const F& run) {
  int32_t code;
  try {
    code = run();
  } catch (...) {
    code = fault_from_exception(&call);
  }
  if (call.host_data != nullptr) [[unlikely]]
    free_call_scratch(&call);
  return code;
}

// Calls a kernel's typed entry.
template <class... W>
[[gnu::always_inline]] inline int32_t call_typed(void (*typed)(void), yard_call_t& call, W... w) {
  return call_kernel(
      call, [&] { return reinterpret_cast<int32_t (*)(yard_call_t*, W...)>(typed)(&call, w...); });
}

template <class... P>
inline constexpr bool kInRegisters = (!std::is_void_v<typename Param<P>::Type> && ...);

// The form of a typed call, known as far as its signature says.
template <class... P>
struct TypedForm {
  static constexpr size_t kTensors = (size_t{0} + ... + (Param<P>::is_tensor ? 1 : 0));
  using Tensors = std::array<const yard_tensor_t*, kTensors>;
  using Addresses = std::array<uint64_t, kTensors>;
  using Each = std::make_index_sequence<kTensors>;

  // The letters of the tensors.
  static constexpr std::array<char, kTensors + 1> kLetter = [] {
    std::array<char, kTensors + 1> to{};
    size_t n = 0;
    ((Param<P>::is_tensor ? void(to[n++] = Param<P>::letter) : void()), ...);
    return to;
  }();
  static constexpr bool is_optional(size_t i) {
    return kLetter[i] == 'R' || kLetter[i] == 'W' || kLetter[i] == 'M';
  }
  static constexpr bool is_written(size_t i) { return kLetter[i] != 'r' && kLetter[i] != 'R'; }

  // Pairs of tensors of which one is written, in the order of CallMemo::words.
  struct Pair {
    uint8_t first, second;
  };
  static constexpr size_t kPairs = [] {
    size_t n = 0;
    for (size_t i = 0; i < kTensors; ++i)
      for (size_t j = i + 1; j < kTensors; ++j) n += is_written(i) || is_written(j) ? 1 : 0;
    return n;
  }();
  static constexpr std::array<Pair, kPairs> kPair = [] {
    std::array<Pair, kPairs> to{};
    size_t n = 0;
    for (uint8_t i = 0; i < kTensors; ++i)
      for (uint8_t j = i + 1; j < kTensors; ++j)
        if (is_written(i) || is_written(j)) to[n++] = {i, j};
    return to;
  }();

  static Tensors tensors(const P&... p) noexcept {
    Tensors to{};
    [[maybe_unused]] size_t n = 0;
    [[maybe_unused]] const auto put = [&]<class Q>(const Q& q) {
      if constexpr (Param<Q>::is_tensor) to[n++] = Param<Q>::wire(q);
    };
    (put(p), ...);
    return to;
  }

  [[gnu::always_inline]] static uint64_t hash(uint32_t site, uint64_t scope,
                                              const Tensors& t) noexcept {
    uint64_t h = hash_begin(site, scope);
    [&]<size_t... I>(std::index_sequence<I...>) {
      ((h = hash_step(h, absent<I>(t) ? 1 : TensorView::of(*t[I]).form_hash())), ...);
    }
    (Each());
    // Working in place is common.
    if constexpr (kPairs > 0)
      if (!is_optional(kPair[0].first) && !is_optional(kPair[0].second))
        h ^= uint64_t{t[kPair[0].first]->data == t[kPair[0].second]->data} << 60;
    return h;
  }

  [[gnu::always_inline]] static bool matches(const CallMemo& m, const Tensors& t,
                                             const P&... p) noexcept {
    // Places first: forms that differ in nothing else have the same hash.
    return has_data(t, Each()) &&
           same_places(m.words + kPlaces, t, std::make_index_sequence<kPairs>()) &&
           same_tensors(m, t, Each()) && (m.more == 0 || same_more(m, t, Each(), p...));
  }

 private:
  static constexpr size_t kPlaces = CallMemo::kPerTensor * kTensors;
  static constexpr bool kHasOptional = [] {
    for (size_t i = 0; i < kTensors; ++i)
      if (is_optional(i)) return true;
    return false;
  }();

  template <size_t I>
  [[gnu::always_inline]] static bool absent(const Tensors& t) noexcept {
    if constexpr (is_optional(I))
      return t[I] == nullptr;
    else
      return false;
  }

  template <size_t... I>
  [[gnu::always_inline]] static bool has_data(const Tensors& t,
                                              std::index_sequence<I...>) noexcept {
    return (... && (absent<I>(t) || t[I]->data != nullptr));
  }
  template <size_t... I>
  [[gnu::always_inline]] static bool same_tensors(const CallMemo& m, const Tensors& t,
                                                  std::index_sequence<I...>) noexcept {
    if constexpr (kHasOptional)
      if ((0u | ... | (absent<I>(t) ? 0u : 1u << I)) != m.present) return false;
    const WordPair all = (WordPair{} | ... | differs<I>(m.words + CallMemo::kPerTensor * I, t));
    return (all[0] | all[1]) == 0;
  }
  // Views have their sizes and strides in one place, and at least four of them.
  template <size_t I>
  [[gnu::always_inline]] static WordPair differs(const uint64_t* w, const Tensors& t) noexcept {
    if (absent<I>(t)) return WordPair{};
    const auto* const form = reinterpret_cast<const WordPair*>(w);
    // Not auto, which would drop the alignment.
    const UnalignedWordPair* const head = reinterpret_cast<const UnalignedWordPair*>(&t[I]->device);
    const auto* const dims = reinterpret_cast<const WordPair*>(t[I] + 1);
    return (*head ^ form[0]) | (dims[0] ^ form[1]) | (dims[1] ^ form[2]);
  }
  template <size_t I>
  [[gnu::always_inline]] static uint64_t address(const Tensors& t) noexcept {
    return absent<I>(t) ? 0 : address_of(*t[I]);
  }
  template <size_t... K>
  [[gnu::always_inline]] static bool same_places(const uint64_t* w, const Tensors& t,
                                                 std::index_sequence<K...>) noexcept {
    return (... &&
            (address<kPair[K].second>(t) - address<kPair[K].first>(t) - w[2 * K] <= w[2 * K + 1]));
  }
  template <size_t... I>
  [[gnu::always_inline]] static bool same_more(const CallMemo& m, const Tensors& t,
                                               std::index_sequence<I...>, const P&... p) noexcept {
    const uint64_t* w = m.words + kPlaces + 2 * kPairs;
    if ((m.more & CallMemo::kAlignment) != 0) {
      if ((uint64_t{0} | ... | ((address<I>(t) ^ w[2 * I]) & w[2 * I + 1])) != 0) return false;
      w += 2 * kTensors;
    }
    if ((m.more & (CallMemo::kScalars | CallMemo::kLong)) == 0) return true;
    if ((m.more & CallMemo::kScalars) != 0) {
      uint64_t unlike = 0;
      [[maybe_unused]] const auto compare = [&]<class Q>(const Q& q) {
        if constexpr (!Param<Q>::is_tensor) {
          const yard_value_t v = Param<Q>::pack(q);
          unlike |= word_at(&v.u) ^ *w++;
        }
      };
      (compare(p), ...);
      if (unlike != 0) return false;
    }
    if ((m.more & CallMemo::kLong) != 0)
      return (... && (absent<I>(t) || (w = same_rest(*t[I], w)) != nullptr));
    return true;
  }
};

// Runs a memo's kernel in this thread; null in `failed` when the call went well. False if the memo is stale.
template <class... P>
[[gnu::always_inline]] inline bool run_memo(Site* site, ThreadHead& thread, const CallMemo& m,
                                            Status::Rep*& failed, const P&... p) {
  Guard guard(thread, Guard::Inline());
  guard.announce(m.route.entry);
  if (!m.route.is_current()) [[unlikely]]
    return false;
  const auto typed = m.route.typed;
  if (typed == nullptr) [[unlikely]] {
    const yard_value_t args[kCells<P...>] = {Param<P>::pack(p)...};
    failed = run_route(site, m.route, args);
    return true;
  }
  // What only a failure needs is in memory, not in registers that would have to be saved. A kernel may call
  // ops itself, and the memo become another form's.
  struct {
    Site* site;
    const void *entry, *plan;
    std::tuple<P...> args;
  } kept{site, m.route.entry, m.route.plan, {p...}};
  asm volatile("" : "+m"(kept));
  char* const error = thread.message();
  yard_call_t call;
  start_call(call, error, m.route.flags, m.route.host, m.route.self);
  ThreadHead::Value& calls = *m.calls;
  const int32_t code = call_typed(typed, call, Param<P>::wire(p)...);
  if (code == YARD_OK) [[likely]] {
    count(calls);
    failed = nullptr;
    return true;
  }
  const auto pack = [](const P&... q) {
    return std::array<yard_value_t, kCells<P...>>{Param<P>::pack(q)...};
  };
  failed = route_failed(kept.site, kept.entry, kept.plan, std::apply(pack, kept.args).data(),
                        call.flags, code, error);
  return true;
}

// A typed call that the memo at its home does not serve.
template <class... P>
[[gnu::noinline]] Status::Rep* call_other_way(Site* site, uint64_t hash, P... p) {
  using Form = TypedForm<P...>;
  ThreadHead* const thread = t_thread;
  if (thread != nullptr && thread->depth < ThreadHead::kInlineSlots) {
    const typename Form::Tensors t = Form::tensors(p...);
    const uint64_t key = CallMemo::key_of(site->id, hash);
    const CallMemo* m = thread->memos->set(hash);
    for (const CallMemo* const end = m + CallMemos::kWays; m != end; ++m) {
      if (m->key != key || m->scope != thread->scope || !Form::matches(*m, t, p...)) continue;
      Status::Rep* failed;
      if (run_memo(site, *thread, *m, failed, p...)) return failed;
      break;
    }
  }
  const yard_value_t args[kCells<P...>] = {Param<P>::pack(p)...};
  return dispatch(site, args, hash);
}

// One typed call; null when it went well. Nothing is called between here and the kernel, so that little has to be
// saved.
template <class... P>
__attribute__((no_stack_protector)) inline Status::Rep* call_typed_op(Site* site, P... p) {
  if constexpr (kInRegisters<P...>) {
    using Form = TypedForm<P...>;
    uint64_t hash = 0;
    ThreadHead* const thread = t_thread;
    if (thread != nullptr && thread->depth < ThreadHead::kInlineSlots) [[likely]] {
      const typename Form::Tensors t = Form::tensors(p...);
      hash = Form::hash(site->id, thread->scope, t);
      const CallMemo& m = thread->memos->of[CallMemos::home(hash)];
      if (m.key == CallMemo::key_of(site->id, hash) && m.scope == thread->scope &&
          Form::matches(m, t, p...)) [[likely]] {
        Status::Rep* failed;
        if (run_memo(site, *thread, m, failed, p...)) [[likely]]
          return failed;
      }
    }
    return call_other_way<P...>(site, hash, p...);
  } else {
    const yard_value_t args[kCells<P...>] = {Param<P>::pack(p)...};
    return dispatch_packed(site, args);
  }
}

}  // namespace yard::detail
