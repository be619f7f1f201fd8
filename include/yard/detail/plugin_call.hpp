// SPDX-License-Identifier: Apache-2.0
// Tensor, Call and Named for kernels of plugin.hpp, and the C entries that call them.
#pragma once

#include <cxxabi.h>
#include <yard/detail/exceptions.h>
#include <yard/plugin.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace yard::plugin {

// A borrowed tensor. False when an optional argument is absent.
class Tensor {
 public:
  explicit Tensor(const yard_tensor_t* t) noexcept : t_(t) {}
  explicit operator bool() const noexcept { return t_ != nullptr; }
  const yard_tensor_t* c() const noexcept { return t_; }

  template <class T>
  T* data() const noexcept {
    return reinterpret_cast<T*>(static_cast<char*>(t_->data) + t_->byte_offset);
  }
  uint32_t dtype() const noexcept { return yard_dtype_index(t_->dtype); }  // YARD_F32, ...
  int rank() const noexcept { return t_->ndim; }
  // Negative axes count from the end.
  int64_t size(int axis) const noexcept { return t_->shape[axis < 0 ? axis + t_->ndim : axis]; }
  int64_t stride(int axis) const noexcept {
    if (axis < 0) axis += t_->ndim;
    if (t_->strides) return t_->strides[axis];
    int64_t s = 1;
    for (int i = t_->ndim - 1; i > axis; --i) s *= t_->shape[i];
    return s;
  }
  int64_t numel() const noexcept { return t_->ndim > 0 ? rows() * size(-1) : 1; }
  template <class T, class... I>
  T& at(I... index) const noexcept {
    int64_t offset = 0;
    int axis = 0;
    ((offset += static_cast<int64_t>(index) * stride(axis++)), ...);
    return data<T>()[offset];
  }
  // Counts all dimensions but the last as one. Elements of a row are stride(-1) apart.
  int64_t rows() const noexcept {
    int64_t n = 1;
    for (int i = 0; i + 1 < t_->ndim; ++i) n *= t_->shape[i];
    return n;
  }
  template <class T>
  T* row(int64_t r) const noexcept {
    int64_t offset = 0;
    for (int i = t_->ndim - 2; i >= 0; r /= t_->shape[i--]) offset += r % t_->shape[i] * stride(i);
    if (yard_is_blocks(t_->dtype))  // row<uint8_t>(r) is its first block
      return reinterpret_cast<T*>(data<char>() + offset / t_->dtype.lanes * t_->dtype.bits);
    return data<T>() + offset;
  }
  bool is_compact() const noexcept {  // row-major without gaps
    if (t_->strides == nullptr) return true;
    bool compact = true;
    int64_t expected = 1;
    for (int i = t_->ndim - 1; i >= 0; --i) {
      if (t_->shape[i] == 0) return true;
      if (t_->shape[i] != 1 && t_->strides[i] != expected) compact = false;
      expected *= t_->shape[i];
    }
    return compact;
  }

 private:
  const yard_tensor_t* t_;
};

using TensorList = std::span<const yard_tensor_t* const>;

class Call {
 public:
  explicit Call(yard_call_t* c) noexcept : c_(c) {}
  yard_call_t* c() const noexcept { return c_; }
  template <class T>
  T* self() const noexcept {
    return static_cast<T*>(c_->self);
  }
  template <class T>
  T* state() const noexcept {
    return static_cast<T*>(c_->state);
  }
  bool has(uint32_t flag) const noexcept { return (c_->flags & flag) != 0; }
  // Returns the memory that Kernel::workspace asked for, 64-byte aligned and uninitialised.
  template <class T>
  std::span<T> workspace() const noexcept {
    return {static_cast<T*>(c_->workspace), c_->workspace_size / sizeof(T)};
  }
  // Returns more workspace, valid until the kernel returns, or null.
  template <class T>
  T* scratch(uint64_t count) const noexcept {
    const yard_host_t* host = c_->host;
    if (host == nullptr || host->scratch == nullptr || count > UINT64_MAX / sizeof(T))
      return nullptr;
    return static_cast<T*>(host->scratch(host->self, c_, count * sizeof(T)));
  }

  // `return call.fail(YARD_DECLINED, "odd %d", n);`
  template <class... A>
  int32_t fail(int32_t code, const char* format, A... a) const noexcept {
    if (c_->error && c_->error_size > 0) {
      if constexpr (sizeof...(A) == 0)
        std::snprintf(c_->error, c_->error_size, "%s", format);
      else
        std::snprintf(c_->error, c_->error_size, format, a...);
    }
    return code;
  }

  // Runs body(begin, end) over [0, count) on the host's threads, and returns YARD_OK. Throws a
  // body's first exception. With -fno-exceptions, returns YARD_FAULT if the loop could not be run.
  template <class Body>
#if !YARD_EXCEPTIONS
  [[nodiscard]]
#endif
  YARD_MODE_TAG int32_t
  parallel_for(int64_t count, int64_t grain, const Body& body) const {
    const yard_host_t* host = c_->host;
    if (host && host->parallel_for && count > grain) {
      struct Loop {
        const Body& body;
        std::atomic<bool> failed{false};
        std::exception_ptr error{};
      } loop{body};
      const auto piece = [](void* context, int64_t lo, int64_t hi) {
        auto& l = *static_cast<Loop*>(context);
        if (l.failed.load(std::memory_order_relaxed)) return;
#if YARD_EXCEPTIONS
        try {
          l.body(lo, hi);
        } catch (...) {
          if (!l.failed.exchange(true)) l.error = std::current_exception();
        }
#else
        l.body(lo, hi);
#endif
      };
      const int32_t code = host->parallel_for(host->self, count, grain, piece, &loop);
      if (loop.error) std::rethrow_exception(loop.error);
#if YARD_EXCEPTIONS
      if (code != YARD_OK) throw std::runtime_error("the host could not run the loop");
#else
      if (code != YARD_OK) return fail(YARD_FAULT, "the host could not run the loop");
#endif
    } else if (count > 0) {
      body(int64_t{0}, count);
    }
    return YARD_OK;
  }

 private:
  yard_call_t* c_;
};

// Finds options, which have the defaults of the schema, or weights by name.
class Named {
 public:
  Named(const yard_named_value_t* items, uint32_t count, yard_call_t* call = nullptr) noexcept
      : items_(items, count), call_(call) {}

  const yard_value_t* find(std::string_view name) const noexcept {
    for (const yard_named_value_t& item : items_)
      if (name == item.name) return &item.value;
    return nullptr;
  }
  // A name that the schema does not have makes the call fail.
  YARD_MODE_TAG int64_t integer(std::string_view name) const { return get(name).u.i; }  // or enum
  YARD_MODE_TAG double number(std::string_view name) const { return get(name).u.f; }
  YARD_MODE_TAG bool flag(std::string_view name) const { return get(name).u.i != 0; }
  YARD_MODE_TAG std::string_view text(std::string_view name) const {
    const yard_value_t& v = get(name);
    return {v.u.string, v.count};
  }
  // Returns a false Tensor if the weight was not given. Weights stay as long as the state.
  Tensor tensor(std::string_view name) const noexcept {
    const yard_value_t* v = find(name);
    return Tensor(v != nullptr && v->tag == YARD_TAG_TENSOR ? v->u.tensor : nullptr);
  }

 private:
  YARD_MODE_TAG const yard_value_t& get(std::string_view name) const {
    const yard_value_t* v = find(name);
#if YARD_EXCEPTIONS
    if (v == nullptr) throw std::out_of_range("no option '" + std::string(name) + "'");
#else
    static constexpr yard_value_t kNone{};
    if (v == nullptr && call_ != nullptr)  // see StateEntries::create()
      Call(call_).fail(YARD_FAULT, "no option '%.*s'", int(name.size()), name.data());
    if (v == nullptr) return kNone;
#endif
    return *v;
  }
  std::span<const yard_named_value_t> items_;
  yard_call_t* call_;
};

// The packed arguments that a state is prepared for, in the op's order.
using Arguments = std::span<const yard_value_t>;

namespace detail {

// Defines how a C++ parameter travels: its letter, its register type, and the way back.
template <class T, char kLetter>
struct ScalarWire {
  static constexpr char letter = kLetter;
  using Type = std::conditional_t<kLetter == 'b', int32_t, T>;
  static Type unpack(const yard_value_t& v) noexcept {
    if constexpr (kLetter == 'f') return v.u.f;
    return static_cast<Type>(kLetter == 'b' ? v.u.i != 0 : v.u.i);
  }
  static T make(Type v) noexcept { return static_cast<T>(v); }
};
template <class T>
struct Wire;
template <>
struct Wire<int64_t> : ScalarWire<int64_t, 'i'> {};
template <>
struct Wire<double> : ScalarWire<double, 'f'> {};
template <>
struct Wire<bool> : ScalarWire<bool, 'b'> {};
template <>
struct Wire<Tensor> {
  static constexpr char letter = 't';
  using Type = const yard_tensor_t*;
  static Type unpack(const yard_value_t& v) noexcept {
    return v.tag == YARD_TAG_TENSOR ? v.u.tensor : nullptr;
  }
  static Tensor make(Type t) noexcept { return Tensor(t); }
};
struct ValueWire {
  static constexpr char letter = 'v';
  using Type = const yard_value_t*;
  static Type unpack(const yard_value_t& v) noexcept { return &v; }
};
template <>
struct Wire<std::string_view> : ValueWire {
  static std::string_view make(Type v) noexcept { return {v->u.string, v->count}; }
};
template <>
struct Wire<TensorList> : ValueWire {
  static TensorList make(Type v) noexcept { return {v->u.list, v->count}; }
};

// Exceptions of a kernel stop here. Only the unwinding of a cancelled thread passes.
template <class F>
YARD_MODE_TAG int32_t guarded([[maybe_unused]] yard_call_t* call, const F& f) {
  const auto run = [&]() -> int32_t {
    if constexpr (std::is_void_v<decltype(f())>)
      return f(), YARD_OK;
    else
      return f();
  };
#if YARD_EXCEPTIONS
  try {
    return run();
  } catch (const std::exception& e) {
    const char* const what = e.what();
    return Call(call).fail(YARD_FAULT, "%s",
                           what != nullptr ? what : "an exception without a message");
  } catch (...) {
    if (abi::__cxa_current_exception_type() == nullptr) throw;
    return Call(call).fail(YARD_FAULT, "an exception that is not a std::exception");
  }
#else
  return run();
#endif
}

template <auto F, class... A>
struct YARD_MODE_TAG Entries {
  static constexpr char signature[] = {Wire<A>::letter..., '\0'};
  static int32_t typed(yard_call_t* call, typename Wire<A>::Type... a) {
    return guarded(call, [&] { return F(Call(call), Wire<A>::make(a)...); });
  }
  static int32_t run(yard_call_t* call, const yard_value_t* args, uint32_t count) {
    if (count != sizeof...(A))
      return Call(call).fail(YARD_FAULT, "the kernel takes %u arguments, the op has %u",
                             unsigned(sizeof...(A)), unsigned(count));
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return typed(call, Wire<A>::unpack(args[I])...);
    }
    (std::index_sequence_for<A...>());
  }
};

template <auto F, class T>
struct EntriesOf;
template <auto F, class R, class... A>
struct EntriesOf<F, R (*)(Call, A...)> : Entries<F, A...> {
  static_assert(std::is_void_v<R> || std::is_same_v<R, int32_t>,
                "a kernel returns void (and throws) or int32_t (a yard_code_t)");
};
template <auto F, class R, class... A>
struct EntriesOf<F, R (*)(Call, A...) noexcept> : EntriesOf<F, R (*)(Call, A...)> {};

template <auto F, class T>
struct WorkspaceOf;
template <auto F, class... A>
struct WorkspaceOf<F, int64_t (*)(A...)> {
  static int64_t bytes(void*, const yard_value_t* args, uint32_t count) noexcept {
    if (count != sizeof...(A)) return -1;
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return F(Wire<A>::make(Wire<A>::unpack(args[I]))...);
    }
    (std::index_sequence_for<A...>());
  }
};

template <class S>
struct YARD_MODE_TAG StateEntries {
  using Given = const yard_named_value_t*;
  static int32_t create(yard_call_t* call, Given options, uint32_t count, void** state) {
    return guarded(call, [&]() -> int32_t {
      std::unique_ptr<S> made(new S(Named(options, count, call)));
      // Without exceptions Named::get() leaves its message here.
      if (!YARD_EXCEPTIONS && call->error_size > 0 && call->error[0] != '\0') return YARD_FAULT;
      *state = made.release();
      return YARD_OK;
    });
  }
  static S& of(const yard_call_t* call) noexcept { return *static_cast<S*>(call->state); }
  static int32_t load(yard_call_t* call, Given weights, uint32_t count) {
    return guarded(call, [&] { return of(call).load(Call(call), Named(weights, count)); });
  }
  static int32_t prepare(yard_call_t* call, const yard_value_t* args, uint32_t count) {
    return guarded(call, [&] { return of(call).prepare(Call(call), Arguments(args, count)); });
  }
  static int32_t trace(yard_call_t* call, const yard_value_t* args, uint32_t count) {
    return guarded(call, [&] { return of(call).trace(Call(call), Arguments(args, count)); });
  }
  static int64_t bytes(void*, const void* state) noexcept {
#if YARD_EXCEPTIONS
    try {
      return static_cast<int64_t>(static_cast<const S*>(state)->bytes());
    } catch (...) {
      return -1;
    }
#else
    return static_cast<int64_t>(static_cast<const S*>(state)->bytes());
#endif
  }
  static void destroy(void*, void* state) noexcept { delete static_cast<S*>(state); }
};

}  // namespace detail

}  // namespace yard::plugin
