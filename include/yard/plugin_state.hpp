// SPDX-License-Identifier: Apache-2.0
// Kernels with state, for plugin.hpp: a class is made from options, given weights, and ended by the host.
//
//   struct Scaler {
//     explicit Scaler(Named options) : by(options.number("by")) {}
//     void load(Call, Named weights) { bias = weights.tensor("bias"); }  // may be left out
//     int32_t prepare(Call call, Arguments args) { ... }                 // may be left out
//     int32_t trace(Call call, Arguments args) { ... }                   // may be left out: see TraceScope
//     double by;
//     Tensor bias{nullptr};
//   };
//   void scale(Call call, Tensor out, Tensor x) { const auto& s = *call.state<const Scaler>(); ... }
//
//   static const char* const fields[] = {"d", nullptr};                  // a state for each `d`
//   with_state<Scaler>(Kernel::of<scale>("scale", "default.acme"), "by: float = 1.0", fields)
//
// The host makes a state before the first run that needs it and ends it exactly once, also when load or
// prepare fails. Runs may use one state from several threads at once, so they must not change it. An
// exception becomes YARD_FAULT with its text; load, prepare and trace may return a code instead.
#pragma once

#include <yard/plugin.hpp>

#include <string>

namespace yard::plugin {

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
