// SPDX-License-Identifier: Apache-2.0
// plugin.h for C++. A kernel is a plain function, whose signature gives its C entries and its
// descriptor. The header is standalone like plugin.h.
//
//   using namespace yard::plugin;
//   void scale(Call, Tensor out, Tensor x, double by);
//   Plugin make() {
//     static constexpr yard_limit_t limits[] = {dtypes({YARD_F32}), compact()};
//     return Plugin("acme", "1.0")
//         .add(Backend("acme").vendor("acme"))
//         .add(OpDef("scale(out!: T[n], x: T[n], by: float = 1.0)"))
//         .add(Kernel::of<scale>("scale", "vendor.acme").kind(YARD_KIND_VENDOR).limits(limits));
//   }
//   const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t*) {
//     return made_once<make>();
//   }
//
// Exceptions of a kernel become YARD_FAULT with their text. With -fno-exceptions, kernels return
// codes, and so does Call::parallel_for (docs/guides/writing_plugins.md). Descriptors borrow the
// strings they are given. Programs pass descriptors to yard::Changes (registry.h).
#pragma once

#include <pthread.h>
#include <yard/plugin.h>
#include <yard/detail/plugin_call.hpp>

#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>
#include <vector>

namespace yard::plugin {

// These functions make limits for a `yard_limit_t` table. A call must fit all limits. `field` is a
// dimension or an integer, and `argument` a tensor (all if null), a scalar or an optional.
constexpr yard_limit_t limit(uint32_t kind, const char* field, int64_t a = 0,
                             int64_t b = 0) noexcept {
  return {kind, 0, field, a, b, 0};
}
constexpr yard_limit_t dtypes(std::initializer_list<int> indices,
                              const char* argument = nullptr) noexcept {
  uint64_t mask = 0;
  for (int i : indices) mask |= YARD_DTYPE_BIT(i);
  return limit(YARD_LIMIT_DTYPE, argument, static_cast<int64_t>(mask));
}
constexpr auto at_least(const char* field, int64_t n) { return limit(YARD_LIMIT_MIN, field, n); }
constexpr auto at_most(const char* field, int64_t n) { return limit(YARD_LIMIT_MAX, field, n); }
constexpr auto multiple_of(const char* field, int64_t n) {
  return limit(YARD_LIMIT_MULTIPLE, field, n);
}
constexpr auto compact(const char* argument = nullptr) {
  return limit(YARD_LIMIT_COMPACT, argument);
}
constexpr auto inner_dense(const char* argument = nullptr) {
  return limit(YARD_LIMIT_INNER_DENSE, argument);
}
constexpr auto plain(const char* argument = nullptr) { return limit(YARD_LIMIT_PLAIN, argument); }
constexpr auto aligned(int64_t bytes, const char* argument = nullptr) {
  return limit(YARD_LIMIT_ALIGN, argument, bytes);
}
constexpr auto rank_between(const char* argument, int64_t lo, int64_t hi) {
  return limit(YARD_LIMIT_RANK, argument, lo, hi);
}
constexpr auto equals(const char* argument, int64_t value) {
  return limit(YARD_LIMIT_EQUALS, argument, value);
}
constexpr auto absent(const char* argument) { return limit(YARD_LIMIT_ABSENT, argument); }
constexpr auto present(const char* argument) { return limit(YARD_LIMIT_PRESENT, argument); }

class Backend {
 public:
  explicit Backend(const char* name) noexcept { d.size = sizeof d, d.name = name; }
  Backend& vendor(const char* v) noexcept { return d.vendor = v, *this; }
  Backend& summary(const char* s) noexcept { return d.summary = s, *this; }
  Backend& device(int32_t type) noexcept { return d.device_type = type, *this; }
  Backend& flags(uint32_t f) noexcept { return d.flags |= f, *this; }
  Backend& enable(int32_t e) noexcept { return d.enable = e, *this; }
  Backend& env(const char* variable) noexcept { return d.env = variable, *this; }
  Backend& probe(decltype(yard_backend_t::probe) f, void* self = nullptr) noexcept {
    return d.probe = f, d.self = self, *this;
  }
  Backend& reasons(std::span<const char* const> texts) noexcept {
    return d.reasons = texts.data(), d.reason_count = static_cast<uint32_t>(texts.size()), *this;
  }
  operator const yard_backend_t&() const noexcept { return d; }
  yard_backend_t d{};
};

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
  // F is int32_t or void F(Call, A...), with one A for each of the op's parameters.
  template <auto F>
  YARD_MODE_TAG OpDef& magnitude() noexcept {
    return d.magnitude = &detail::EntriesOf<F, decltype(F)>::run, *this;
  }
  operator const yard_op_t&() const noexcept { return d; }
  yard_op_t d{};
};

// A parameter of a kernel that does not take the op's parameters; see yard_param_t.
class Param {
 public:
  explicit Param(const char* name) noexcept { d.size = sizeof d, d.name = name; }
  // These make a constant. Strings end in NUL.
  Param(const char* name, bool v) noexcept : Param(name, YARD_TAG_BOOL) {
    d.constant.u.i = v ? 1 : 0;
  }
  Param(const char* name, int v) noexcept : Param(name, int64_t{v}) {}
  Param(const char* name, int64_t v) noexcept : Param(name, YARD_TAG_INT) { d.constant.u.i = v; }
  Param(const char* name, double v) noexcept : Param(name, YARD_TAG_FLOAT) { d.constant.u.f = v; }
  Param(const char* name, const char* v) noexcept : Param(name, YARD_TAG_STRING) {
    d.constant.u.string = v;
    d.constant.count = static_cast<uint32_t>(std::char_traits<char>::length(v));
  }
  // Makes an optional tensor that is never given.
  Param(const char* name, std::nullptr_t) noexcept : Param(name, YARD_TAG_NONE) {}

  Param& from(const char* source) noexcept { return d.source = source, *this; }
  Param& layout(const char* l) noexcept { return d.layout = l, *this; }
  // rows() allows gaps between rows, and strided() allows any strides.
  Param& rows(const char* l) noexcept { return d.layout = l, d.flags |= YARD_PARAM_ROWS, *this; }
  Param& strided(const char* l) noexcept {
    return d.layout = l, d.flags |= YARD_PARAM_STRIDED, *this;
  }
  Param& dtypes(std::initializer_list<int> indices) noexcept {
    for (int i : indices) d.dtypes |= YARD_DTYPE_BIT(i);
    return *this;
  }
  Param& align(int64_t bytes) noexcept { return d.align = bytes, *this; }
  Param& pad(int64_t multiple) noexcept { return d.pad = multiple, *this; }
  yard_param_t d{};

 private:
  Param(const char* name, yard_tag_t tag) noexcept : Param(name) {
    d.flags = YARD_PARAM_CONSTANT, d.constant.tag = tag;
  }
};

// All parameters of a kernel, in its order. Keep this object in a static.
//
//   static const Params params = {Param("out").layout("BHSD"), Param("dropout", 0.0)};
class Params {
 public:
  Params(std::initializer_list<Param> params) : params_(params) {
    for (const Param& p : params_) list_.push_back(&p.d);
  }
  Params(const Params&) = delete;
  Params& operator=(const Params&) = delete;
  const yard_param_t* const* list() const noexcept { return list_.data(); }
  uint32_t count() const noexcept { return static_cast<uint32_t>(list_.size()); }

 private:
  std::vector<Param> params_;
  std::vector<const yard_param_t*> list_;
};

class Kernel {
 public:
  // F is int32_t or void F(Call, A...), with one A for each parameter of the op or of params().
  template <auto F>
  YARD_MODE_TAG static Kernel of(const char* op, const char* id) noexcept {
    using E = detail::EntriesOf<F, decltype(F)>;
    Kernel k;
    k.d.size = sizeof k.d, k.d.op = op, k.d.id = id, k.d.kind = YARD_KIND_DEFAULT;
    k.d.run = &E::run;
    k.d.typed = reinterpret_cast<void (*)(void)>(&E::typed);
    k.d.typed_signature = E::signature;
    return k;
  }
  template <auto F, class O>
  requires requires(const O& o) { o.name(); }
  YARD_MODE_TAG static Kernel of(const O& op, const char* id) noexcept {
    return of<F>(op.name(), id);
  }

  Kernel& backend(const char* b) noexcept { return d.backend = b, *this; }
  Kernel& summary(const char* s) noexcept { return d.summary = s, *this; }
  Kernel& kind(yard_kind_t k) noexcept { return d.kind = k, *this; }
  // `p` is from 1 to 1000, or 0 for the priority of the kind. Higher ones are tried first.
  Kernel& priority(int32_t p) noexcept { return d.priority = p, *this; }
  Kernel& flags(uint32_t f) noexcept { return d.flags |= f, *this; }
  Kernel& features(const char* f) noexcept { return d.features = f, *this; }
  Kernel& self(void* s) noexcept { return d.self = s, *this; }
  Kernel& limits(std::span<const yard_limit_t> l) noexcept {
    return d.limits = l.data(), d.limit_count = static_cast<uint32_t>(l.size()), *this;
  }
  // `p` must outlive the registration.
  Kernel& params(const Params& p) noexcept {
    return d.params = p.list(), d.param_count = p.count(), *this;
  }
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
  // int64_t F(A...) takes the kernel's parameters and returns the bytes for Call::workspace().
  template <auto F>
  Kernel& workspace() noexcept {
    return d.workspace = &detail::WorkspaceOf<F, decltype(F)>::bytes, *this;
  }
  operator const yard_kernel_t&() const noexcept { return d; }
  yard_kernel_t d{};
};

// Collects descriptors. made_once() keeps this object as long as the process runs.
class Plugin {
 public:
  Plugin(const char* name, const char* version) {
    d_.size = sizeof d_, d_.abi = YARD_ABI_VERSION, d_.name = name, d_.version = version;
  }
  Plugin& add(const yard_backend_t& b) & {
    return put(b, backends_, d_.backends, d_.backend_count);
  }
  Plugin& add(const yard_op_t& o) & { return put(o, ops_, d_.ops, d_.op_count); }
  Plugin& add(const yard_kernel_t& k) & { return put(k, kernels_, d_.kernels, d_.kernel_count); }
  Plugin& add(const yard_function_t& f) & {
    return put(f, functions_, d_.functions, d_.function_count);
  }
  template <class T>
  Plugin&& add(const T& t) && {
    return std::move(add(t));
  }

  // The result is valid until this object is changed or moved.
  const yard_plugin_t* get() const noexcept { return &d_; }

 private:
  template <class T>
  struct Kept {
    std::deque<T> items;  // a deque, so that addresses stay
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
  Kept<yard_function_t> functions_;
};

// Calls kMake() once. A forked child might wait for ever for a function-local static.
template <Plugin (*kMake)()>
YARD_MODE_TAG const yard_plugin_t* made_once() {
  static constinit const Plugin* made = nullptr;
  static constinit pthread_once_t once = PTHREAD_ONCE_INIT;
  ::pthread_once(&once, [] { made = new Plugin(kMake()); });
  return made->get();
}

// Makes a kernel with state, an S. Only the constructor is required. See also Call::state().
//
//   struct Scaler {
//     explicit Scaler(Named options) : by(options.number("by")) {}
//     void load(Call, Named weights) { bias = weights.tensor("bias"); }
//     int32_t prepare(Call call, Arguments args);
//     int32_t trace(Call call, Arguments args);  // see TraceScope
//     int64_t bytes() const;                     // asked after prepare
//     double by;
//     Tensor bias{nullptr};
//   };
//   with_state<Scaler>(Kernel::of<scale>("scale", "default.acme"), "by: float = 1.0", kFields)
//
// Several threads may run on one state at once, so runs must not change it. `options` and `weights`
// are schemas. States are kept apart for the values of `fields`, which ends in nullptr.
template <class S>
YARD_MODE_TAG Kernel with_state(Kernel kernel, const char* options = nullptr,
                                const char* const* fields = nullptr,
                                const char* weights = nullptr) noexcept {
  using E = detail::StateEntries<S>;
  kernel.d.options_schema = options, kernel.d.state_fields = fields;
  kernel.d.weights_schema = weights;
  kernel.d.create = &E::create, kernel.d.destroy = &E::destroy;
  if constexpr (requires(S & s, Call c, Named n) { s.load(c, n); }) kernel.d.load = &E::load;
  if constexpr (requires(S & s, Call c, Arguments a) { s.prepare(c, a); })
    kernel.d.prepare = &E::prepare;
  if constexpr (requires(S & s, Call c, Arguments a) { s.trace(c, a); }) kernel.d.trace = &E::trace;
  if constexpr (requires(const S& s) { s.bytes(); }) kernel.d.state_bytes = &E::bytes;
  return kernel;
}

// These help to estimate costs from measurements: `fields[0] * measured_once<measure>()`.

template <class F>
double best_ns(const F& f, int runs = 3) {
  using Clock = std::chrono::steady_clock;
  double best = 1e12;
  for (int run = 0; run < runs; ++run) {
    const auto start = Clock::now();
    f();
    best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - start).count());
  }
  return std::max(best, 1.0);
}

template <auto kMeasure>
const decltype(kMeasure())& measured_once() {
  static constinit decltype(kMeasure()) measured{};
  static constinit pthread_once_t once = PTHREAD_ONCE_INIT;  // as in made_once()
  ::pthread_once(&once, [] { measured = kMeasure(); });
  return measured;
}

inline constinit std::atomic<int32_t (*)(void*)> cost_threads{nullptr};
inline void set_cost_host(const yard_host_t* host) noexcept {
  cost_threads = host != nullptr ? host->concurrency : nullptr;
}

inline double threads_now() noexcept {
  const auto host_threads = cost_threads.load(std::memory_order_relaxed);
  if (host_threads == nullptr) return std::max(1u, std::thread::hardware_concurrency());
  return std::max(host_threads(nullptr), 1);
}

// Returns the speedup of threads that share `pieces` pieces of work. Each further thread adds 0.85.
inline double speed_of_threads(double pieces) {
  return 1 + 0.85 * (std::clamp(pieces, 1.0, threads_now()) - 1);
}

// The nanoseconds that one thread takes for a product of matrices [rows, k] * [k, n], for each
// element of the second one. Libraries copy that one first, which pays off only for many rows.
struct ProductTimes {
  static constexpr int kRows[] = {1, 8, 64};
  double ns[std::size(kRows)] = {};

  double at(double rows) const {
    constexpr size_t kLast = std::size(kRows) - 1;
    if (rows <= kRows[0]) return ns[0];
    if (rows >= kRows[kLast]) return ns[kLast] * rows / kRows[kLast];
    size_t i = 1;
    while (rows > kRows[i]) ++i;
    const double part = (rows - kRows[i - 1]) / (kRows[i] - kRows[i - 1]);
    return ns[i - 1] + part * (ns[i] - ns[i - 1]);
  }
};

}  // namespace yard::plugin
