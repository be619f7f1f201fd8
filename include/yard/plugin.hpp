// SPDX-License-Identifier: Apache-2.0
// plugin.h for C++: a kernel is a plain function; its C entries and descriptor are made from its signature.
//
// Header-only and standalone like plugin.h: it includes nothing else of the project and needs no library. Exceptions of a
// kernel become YARD_FAULT with their text. Descriptors refer to the strings they are given, which must be literals or
// outlive them.
//
//   using namespace yard::plugin;
//   void scale(Call, Tensor out, Tensor x, double by) {
//     for (int64_t i = 0; i < x.numel(); ++i) out.data<float>()[i] = x.data<float>()[i] * float(by);
//   }
//   const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t*) {
//     static const yard_limit_t limits[] = {dtypes({YARD_F32}), compact()};
//     static const Plugin plugin = Plugin("acme", "1.0")
//         .add(Backend("acme").vendor("acme"))
//         .add(OpDef("scale(out!: T[n], x: T[n], by: float = 1.0)"))
//         .add(Kernel::of<scale>("scale", "vendor.acme").kind(YARD_KIND_VENDOR).limits(limits));
//     return plugin.get();
//   }
//
// A program registers the same descriptors directly: yard::Changes of registry.h takes them.
#pragma once

#if __cplusplus < 202002L
#error "Switchyard needs C++20: compile with -std=c++20 or newer"
#endif

#include <yard/plugin.h>

#include <atomic>
#include <cstdio>
#include <deque>
#include <exception>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

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
  int64_t numel() const noexcept {
    int64_t n = 1;
    for (int i = 0; i < t_->ndim; ++i) n *= t_->shape[i];
    return n;
  }
  // The element at these indices, one for each dimension, whatever the strides.
  template <class T, class... I>
  T& at(I... index) const noexcept {
    int64_t offset = 0;
    int axis = 0;
    ((offset += static_cast<int64_t>(index) * stride(axis++)), ...);
    return data<T>()[offset];
  }
  // All dimensions but the last as one: how many rows there are, and where one begins, whatever the strides. Within it
  // elements are stride(-1) apart, which is 1 under the limit inner_dense().
  int64_t rows() const noexcept {
    int64_t n = 1;
    for (int i = 0; i + 1 < t_->ndim; ++i) n *= t_->shape[i];
    return n;
  }
  template <class T>
  T* row(int64_t r) const noexcept {
    int64_t offset = 0;
    for (int i = t_->ndim - 2; i >= 0; r /= t_->shape[i--]) offset += r % t_->shape[i] * stride(i);
    return data<T>() + offset;
  }
  // Row-major without gaps; a tensor without elements is.
  bool is_compact() const noexcept {
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

// One run of a kernel.
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
  // What Kernel::workspace asked for: 64-byte aligned, uninitialised, this run's alone.
  template <class T>
  std::span<T> workspace() const noexcept {
    return {static_cast<T*>(c_->workspace), c_->workspace_size / sizeof(T)};
  }
  // More of it, until the kernel returns; null when there is none.
  template <class T>
  T* scratch(uint64_t count) const noexcept {
    const yard_host_t* host = c_->host;
    if (host == nullptr || host->scratch == nullptr || count > UINT64_MAX / sizeof(T))
      return nullptr;
    return static_cast<T*>(host->scratch(host->self, c_, count * sizeof(T)));
  }

  // Leaves a message and returns `code`: `return call.fail(YARD_DECLINED, "odd %d", n);`
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

  // Runs body(begin, end) over [0, count) on the host's threads. The first exception of a body is thrown
  // here, after the others have come to their end.
  template <class Body>
  void parallel_for(int64_t count, int64_t grain, const Body& body) const {
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
        try {
          l.body(lo, hi);
        } catch (...) {
          if (!l.failed.exchange(true)) l.error = std::current_exception();
        }
      };
      const int32_t code = host->parallel_for(host->self, count, grain, piece, &loop);
      if (loop.error) std::rethrow_exception(loop.error);
      if (code != YARD_OK) throw std::runtime_error("the host could not run the loop");
    } else if (count > 0) {
      body(int64_t{0}, count);
    }
  }

 private:
  yard_call_t* c_;
};

namespace detail {

// How a C++ parameter travels: its letter, its register type, and the way back.
template <class T>
struct Wire;
template <>
struct Wire<Tensor> {
  static constexpr char letter = 't';
  using Type = const yard_tensor_t*;
  static Type unpack(const yard_value_t& v) noexcept {
    return v.tag == YARD_TAG_TENSOR ? v.u.tensor : nullptr;
  }
  static Tensor make(Type t) noexcept { return Tensor(t); }
};
template <>
struct Wire<int64_t> {
  static constexpr char letter = 'i';
  using Type = int64_t;
  static Type unpack(const yard_value_t& v) noexcept { return v.u.i; }
  static int64_t make(Type v) noexcept { return v; }
};
template <>
struct Wire<double> {
  static constexpr char letter = 'f';
  using Type = double;
  static Type unpack(const yard_value_t& v) noexcept { return v.u.f; }
  static double make(Type v) noexcept { return v; }
};
template <>
struct Wire<bool> {
  static constexpr char letter = 'b';
  using Type = int32_t;
  static Type unpack(const yard_value_t& v) noexcept { return v.u.i != 0; }
  static bool make(Type v) noexcept { return v != 0; }
};
template <>
struct Wire<std::string_view> {
  static constexpr char letter = 'v';
  using Type = const yard_value_t*;
  static Type unpack(const yard_value_t& v) noexcept { return &v; }
  static std::string_view make(Type v) noexcept { return {v->u.string, v->count}; }
};
template <>
struct Wire<TensorList> {
  static constexpr char letter = 'v';
  using Type = const yard_value_t*;
  static Type unpack(const yard_value_t& v) noexcept { return &v; }
  static TensorList make(Type v) noexcept { return {v->u.list, v->count}; }
};

// The one place where exceptions of a kernel stop.
template <class F>
int32_t guarded(yard_call_t* call, const F& f) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(f())>) {
      f();
      return YARD_OK;
    } else {
      return f();
    }
  } catch (const std::exception& e) {
    return Call(call).fail(YARD_FAULT, "%s", e.what());
  } catch (...) {
    return Call(call).fail(YARD_FAULT, "an exception that is no std::exception");
  }
}

template <auto F, class R, class... A>
struct Entries {
  static constexpr char signature[] = {Wire<A>::letter..., '\0'};
  static int32_t typed(yard_call_t* call, typename Wire<A>::Type... a) noexcept {
    return guarded(call, [&] { return F(Call(call), Wire<A>::make(a)...); });
  }
  static int32_t run(yard_call_t* call, const yard_value_t* args, uint32_t count) noexcept {
    if (count != sizeof...(A))
      return Call(call).fail(YARD_FAULT, "the kernel takes %u arguments, the op has %u",
                             unsigned(sizeof...(A)), unsigned(count));
    return unpack(call, args, std::index_sequence_for<A...>());
  }
  template <size_t... I>
  static int32_t unpack(yard_call_t* call, const yard_value_t* args,
                        std::index_sequence<I...>) noexcept {
    return guarded(call, [&] { return F(Call(call), Wire<A>::make(Wire<A>::unpack(args[I]))...); });
  }
};

template <auto F, class T>
struct EntriesOf;
template <auto F, class R, class... A>
struct EntriesOf<F, R (*)(Call, A...)> : Entries<F, R, A...> {
  static_assert(std::is_void_v<R> || std::is_same_v<R, int32_t>,
                "a kernel returns void (and throws) or int32_t (a yard_code_t)");
};
template <auto F, class R, class... A>
struct EntriesOf<F, R (*)(Call, A...) noexcept> : EntriesOf<F, R (*)(Call, A...)> {};

// The bytes of workspace that F computes from a call's arguments.
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

}  // namespace detail

// Limits, to fill a `yard_limit_t` table: a call reaches the kernel only if all of them hold.

constexpr yard_limit_t dtypes(std::initializer_list<int> indices,
                              const char* argument = nullptr) noexcept {
  uint64_t mask = 0;
  for (int i : indices) mask |= YARD_DTYPE_BIT(i);
  return {YARD_LIMIT_DTYPE, 0, argument, static_cast<int64_t>(mask), 0, 0};
}
constexpr yard_limit_t at_least(const char* field, int64_t n) noexcept {
  return {YARD_LIMIT_MIN, 0, field, n, 0, 0};
}
constexpr yard_limit_t at_most(const char* field, int64_t n) noexcept {
  return {YARD_LIMIT_MAX, 0, field, n, 0, 0};
}
constexpr yard_limit_t multiple_of(const char* field, int64_t n) noexcept {
  return {YARD_LIMIT_MULTIPLE, 0, field, n, 0, 0};
}
constexpr yard_limit_t compact(const char* argument = nullptr) noexcept {
  return {YARD_LIMIT_COMPACT, 0, argument, 0, 0, 0};
}
constexpr yard_limit_t inner_dense(const char* argument = nullptr) noexcept {
  return {YARD_LIMIT_INNER_DENSE, 0, argument, 0, 0, 0};
}
constexpr yard_limit_t plain(const char* argument = nullptr) noexcept {
  return {YARD_LIMIT_PLAIN, 0, argument, 0, 0, 0};
}
constexpr yard_limit_t aligned(int64_t bytes, const char* argument = nullptr) noexcept {
  return {YARD_LIMIT_ALIGN, 0, argument, bytes, 0, 0};
}
constexpr yard_limit_t rank_between(const char* argument, int64_t lo, int64_t hi) noexcept {
  return {YARD_LIMIT_RANK, 0, argument, lo, hi, 0};
}
constexpr yard_limit_t equals(const char* argument, int64_t value) noexcept {
  return {YARD_LIMIT_EQUALS, 0, argument, value, 0, 0};
}
constexpr yard_limit_t absent(const char* argument) noexcept {
  return {YARD_LIMIT_ABSENT, 0, argument, 0, 0, 0};
}
constexpr yard_limit_t present(const char* argument) noexcept {
  return {YARD_LIMIT_PRESENT, 0, argument, 0, 0, 0};
}

// Descriptors. Each converts to its C struct, which Changes and Plugin take.

// A family of kernels with one vendor, one probe and one switch.
class Backend {
 public:
  explicit Backend(const char* name) noexcept { d.size = sizeof d, d.name = name; }
  Backend& vendor(const char* v) noexcept { return d.vendor = v, *this; }
  Backend& summary(const char* s) noexcept { return d.summary = s, *this; }
  Backend& device(int32_t type) noexcept { return d.device_type = type, *this; }
  Backend& flags(uint32_t f) noexcept { return d.flags |= f, *this; }
  Backend& enable(int32_t e) noexcept { return d.enable = e, *this; }
  Backend& env(const char* variable) noexcept { return d.env = variable, *this; }
  // Whether a device can be used now: called before the first choice that needs it.
  Backend& probe(decltype(yard_backend_t::probe) f, void* self = nullptr) noexcept {
    return d.probe = f, d.self = self, *this;
  }
  Backend& reasons(std::span<const char* const> texts) noexcept {
    return d.reasons = texts.data(), d.reason_count = static_cast<uint32_t>(texts.size()), *this;
  }
  operator const yard_backend_t&() const noexcept { return d; }
  yard_backend_t d{};
};

// The definition of an op: its schema, and what the schema cannot say.
class OpDef {
 public:
  explicit OpDef(const char* schema) noexcept { d.size = sizeof d, d.schema = schema; }
  OpDef& summary(const char* s) noexcept { return d.summary = s, *this; }
  OpDef& infer(decltype(yard_op_t::infer) f, void* self = nullptr) noexcept {
    return d.infer = f, d.self = self, *this;
  }
  OpDef& tolerances(std::span<const yard_tolerance_t> t) noexcept {
    return d.tolerances = t.data(), d.tolerance_count = static_cast<uint32_t>(t.size()), *this;
  }
  operator const yard_op_t&() const noexcept { return d; }
  yard_op_t d{};
};

class Kernel {
 public:
  // A kernel around the function F: int32_t or void F(Call, A...), one A per parameter of the op.
  template <auto F>
  static Kernel of(const char* op, const char* id) noexcept {
    using E = detail::EntriesOf<F, decltype(F)>;
    Kernel k;
    k.d.size = sizeof k.d, k.d.op = op, k.d.id = id, k.d.kind = YARD_KIND_DEFAULT;
    k.d.run = &E::run;
    k.d.typed = reinterpret_cast<void (*)(void)>(&E::typed);
    k.d.typed_signature = E::signature;
    return k;
  }
  // The same for a typed op, yard::Op of op.h.
  template <auto F, class O>
  requires requires(const O& o) { o.name(); }
  static Kernel of(const O& op, const char* id) noexcept { return of<F>(op.name(), id); }

  Kernel& backend(const char* b) noexcept { return d.backend = b, *this; }
  Kernel& summary(const char* s) noexcept { return d.summary = s, *this; }
  Kernel& kind(yard_kind_t k) noexcept { return d.kind = k, *this; }
  // 1 to 1000, higher is tried first; else its kind's: default 150, vendor 100, reference 50.
  Kernel& priority(int32_t p) noexcept { return d.priority = p, *this; }
  Kernel& flags(uint32_t f) noexcept { return d.flags |= f, *this; }
  Kernel& features(const char* f) noexcept { return d.features = f, *this; }
  Kernel& self(void* s) noexcept { return d.self = s, *this; }
  Kernel& limits(std::span<const yard_limit_t> l) noexcept {
    return d.limits = l.data(), d.limit_count = static_cast<uint32_t>(l.size()), *this;
  }
  // `reads` ends in nullptr; without it every new shape is verified again.
  Kernel& verify(decltype(yard_kernel_t::verify) f, const char* const* reads = nullptr) noexcept {
    return d.verify = f, d.verify_reads = reads, *this;
  }
  Kernel& reasons(std::span<const char* const> texts) noexcept {
    return d.reasons = texts.data(), d.reason_count = static_cast<uint32_t>(texts.size()), *this;
  }
  Kernel& cost(decltype(yard_kernel_t::cost) f, const char* const* reads) noexcept {
    return d.cost = f, d.cost_reads = reads, *this;
  }
  Kernel& workspace(decltype(yard_kernel_t::workspace) f) noexcept {
    return d.workspace = f, *this;
  }
  // int64_t F(A...) with the kernel's parameters: the bytes that Call::workspace() will have.
  template <auto F>
  Kernel& workspace() noexcept {
    return d.workspace = &detail::WorkspaceOf<F, decltype(F)>::bytes, *this;
  }
  operator const yard_kernel_t&() const noexcept { return d; }
  yard_kernel_t d{};
};

// A hook or a dispatched function; made by hook<F>() and function<F>() of plugin_hooks.hpp.
class Hook {
 public:
  explicit Hook(const char* name) noexcept { d.size = sizeof d, d.name = name; }
  Hook& backend(const char* b) noexcept { return d.backend = b, *this; }
  Hook& priority(int32_t p) noexcept { return d.priority = p, *this; }
  Hook& flags(uint32_t f) noexcept { return d.flags |= f, *this; }
  // It may only bring a new name.
  Hook& only_adds() noexcept {
    return d.flags = (d.flags & ~YARD_HOOK_OVERRIDES) | YARD_HOOK_ADDS, *this;
  }
  Hook& reasons(std::span<const char* const> texts) noexcept {
    return d.reasons = texts.data(), d.reason_count = static_cast<uint32_t>(texts.size()), *this;
  }
  operator const yard_hook_t&() const noexcept { return d; }
  yard_hook_t d{};
};

// Collects descriptors; keep it in a static.
class Plugin {
 public:
  Plugin(const char* name, const char* version) noexcept {
    d_.size = sizeof d_, d_.abi = YARD_ABI_VERSION, d_.name = name, d_.version = version;
  }
  Plugin& add(const Backend& b) & { return put(b.d, backends_, d_.backends, d_.backend_count); }
  Plugin& add(const OpDef& o) & { return put(o.d, ops_, d_.ops, d_.op_count); }
  Plugin& add(const Kernel& k) & { return put(k.d, kernels_, d_.kernels, d_.kernel_count); }
  Plugin& add(const Hook& h) & { return put(h.d, hooks_, d_.hooks, d_.hook_count); }
  template <class T>
  Plugin&& add(const T& t) && {
    return std::move(add(t));
  }

  // The descriptor; valid as long as this object is neither changed nor moved.
  const yard_plugin_t* get() const noexcept { return &d_; }

 private:
  template <class T>
  struct Kept {
    std::deque<T> items;  // addresses stay
    std::vector<const T*> list;
  };
  template <class T>
  Plugin& put(const T& item, Kept<T>& kept, const T* const*& list, uint32_t& count) {
    kept.list.push_back(&kept.items.emplace_back(item));
    list = kept.list.data(), count = static_cast<uint32_t>(kept.list.size());
    return *this;
  }
  yard_plugin_t d_{};
  Kept<yard_backend_t> backends_;
  Kept<yard_op_t> ops_;
  Kept<yard_kernel_t> kernels_;
  Kept<yard_hook_t> hooks_;
};

// Kernels with state: a class that is made from options and given weights, and that the host destroys.
//
//   struct Scaler {
//     explicit Scaler(Named options) : by(options.number("by")) {}
//     void load(Call, Named weights) { bias = weights.tensor("bias"); }  // optional
//     int32_t prepare(Call call, Arguments args) { ... }                 // optional
//     int32_t trace(Call call, Arguments args) { ... }                   // optional: see TraceScope
//     double by;
//     Tensor bias{nullptr};
//   };
//   void scale(Call call, Tensor out, Tensor x) { const auto& s = *call.state<const Scaler>(); ... }
//
//   static const char* const fields[] = {"d", nullptr};                  // a state for each `d`
//   with_state<Scaler>(Kernel::of<scale>("scale", "default.acme"), "by: float = 1.0", fields)
//
// The host makes a state before the first run that needs it and destroys it exactly once, also when load or prepare fails.
// Several threads may run on one state at once, so runs must not change it. An exception becomes YARD_FAULT with its text;
// load, prepare and trace may return a code instead.

// Options or weights by name. Options are complete: the schema's defaults are filled in.
class Named {
 public:
  Named(const yard_named_value_t* items, uint32_t count) noexcept : items_(items, count) {}

  // Null if it was not given.
  const yard_value_t* find(std::string_view name) const noexcept {
    for (const yard_named_value_t& item : items_)
      if (name == item.name) return &item.value;
    return nullptr;
  }
  int64_t integer(std::string_view name) const { return get(name).u.i; }  // also of an enum
  double number(std::string_view name) const { return get(name).u.f; }
  bool flag(std::string_view name) const { return get(name).u.i != 0; }
  std::string_view text(std::string_view name) const {
    const yard_value_t& v = get(name);
    return {v.u.string, v.count};
  }
  // False if it was not given. A weight stays as long as the state.
  Tensor tensor(std::string_view name) const noexcept {
    const yard_value_t* v = find(name);
    return Tensor(v != nullptr && v->tag == YARD_TAG_TENSOR ? v->u.tensor : nullptr);
  }

 private:
  const yard_value_t& get(std::string_view name) const {
    const yard_value_t* v = find(name);
    if (v == nullptr) throw std::out_of_range("no option '" + std::string(name) + "'");
    return *v;
  }
  std::span<const yard_named_value_t> items_;
};

// The packed arguments of the call that a state is prepared for, in the op's order.
using Arguments = std::span<const yard_value_t>;

namespace detail {

template <class S>
struct StateEntries {
  static int32_t create(yard_call_t* call, const yard_named_value_t* options, uint32_t count,
                        void** state) noexcept {
    return guarded(call, [&] { *state = new S(Named(options, count)); });
  }
  static int32_t load(yard_call_t* call, const yard_named_value_t* weights,
                      uint32_t count) noexcept {
    return guarded(call, [&] {
      return static_cast<S*>(call->state)->load(Call(call), Named(weights, count));
    });
  }
  static int32_t prepare(yard_call_t* call, const yard_value_t* args, uint32_t count) noexcept {
    return guarded(call, [&] {
      return static_cast<S*>(call->state)->prepare(Call(call), Arguments(args, count));
    });
  }
  static int32_t trace(yard_call_t* call, const yard_value_t* args, uint32_t count) noexcept {
    return guarded(call, [&] {
      return static_cast<S*>(call->state)->trace(Call(call), Arguments(args, count));
    });
  }
  static void destroy(void*, void* state) noexcept { delete static_cast<S*>(state); }
};

}  // namespace detail

// The kernel, with a state of class S. `options` is the schema of what S is made from; `fields` ends in
// nullptr and names the fields for whose values states are kept apart.
template <class S>
Kernel with_state(Kernel kernel, const char* options = nullptr,
                  const char* const* fields = nullptr) noexcept {
  using E = detail::StateEntries<S>;
  kernel.d.options_schema = options, kernel.d.state_fields = fields;
  kernel.d.create = &E::create, kernel.d.destroy = &E::destroy;
  if constexpr (requires(S & s, Call c, Named n) { s.load(c, n); }) kernel.d.load = &E::load;
  if constexpr (requires(S & s, Call c, Arguments a) { s.prepare(c, a); })
    kernel.d.prepare = &E::prepare;
  if constexpr (requires(S & s, Call c, Arguments a) { s.trace(c, a); }) kernel.d.trace = &E::trace;
  return kernel;
}

}  // namespace yard::plugin
