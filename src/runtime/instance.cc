// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <yard/bound.h>
#include <yard/runtime.h>

#include <algorithm>

#include "base/lists.h"
#include "base/results.h"
#include "dispatch/core.h"
#include "exec/states.h"

namespace yard {
namespace {

// Returns OK if check(kernel) succeeds for some kernel that has this function.
template <class Function, class Check>
Status check_some(const registry::OpRecord& op_record, Function yard_kernel_t::*function,
                  std::string_view what, const Check& check) {
  Status s = base::invalid("no kernel of op '{}' {}", op_record.op->name, what);
  for (const auto& [id, kernel] : op_record.kernels) {
    if (kernel->d.*function == nullptr) continue;
    const Status one = check(*kernel);
    if (one.ok()) return {};
    s.note(fmt::format("{}: {}", id, one.message()));
  }
  return s;
}

}  // namespace

Result<Instance> Instance::make(Runtime& runtime, std::string_view op,
                                std::span<const Arg> options) {
  return base::or_out_of_memory([&]() -> Result<Instance> {
    YARD_ASSIGN_OR_RETURN(const auto found, runtime.core().sites.find(op));
    std::vector<exec::OwnedValue> owned;
    for (const Arg& a : options) {
      const yard_value_t& v = a.value.c();
      if (a.name.empty()) return base::invalid("op '{}': an option needs a name", op);
      if (v.tag == YARD_TAG_TENSOR || v.tag == YARD_TAG_LIST || v.tag == YARD_TAG_NONE)
        return base::invalid(
            "op '{}': option '{}': expected a scalar; tensors are loaded as weights", op, a.name);
      if (std::ranges::find(owned, a.name, &exec::OwnedValue::name) != owned.end())
        return base::invalid("op '{}': option '{}' twice", op, a.name);
      std::string text = v.tag == YARD_TAG_STRING ? std::string(v.u.string, v.count) : "";
      owned.push_back({std::string(a.name), std::move(text), v});
    }
    if (!owned.empty())
      YARD_RETURN_IF_ERROR(
          check_some(*found.record, &yard_kernel_t::create, "accepts these options",
                     [&](const auto& k) { return exec::kernel_options(k, owned).status(); }));
    Instance made;
    made.runtime_ = &runtime;
    made.op_ = op;
    made.states_ = std::make_shared<exec::States>(runtime.core().state_budget);
    made.states_->set_options(std::move(owned));
    runtime.core().add_instance(made.states_);
    return made;
  });
}

Result<Instance> Instance::make(Runtime& runtime, std::string_view op,
                                std::initializer_list<Arg> options) {
  return make(runtime, op, std::span(options.begin(), options.size()));
}
Result<Instance> Instance::make(std::string_view op, std::initializer_list<Arg> options) {
  return base::or_out_of_memory([&] { return make(Runtime::shared(), op, options); });
}

Status Instance::load(std::initializer_list<Arg> weights) {
  return load(std::span(weights.begin(), weights.size()));
}

Status Instance::load(std::span<const Arg> weights) {
  return base::or_out_of_memory([&]() -> Status {
    exec::Weights named;
    for (const Arg& a : weights) {
      const yard_value_t& v = a.value.c();
      if (a.name.empty()) return base::invalid("op '{}': a weight needs a name", op_);
      if (v.tag != YARD_TAG_TENSOR || v.u.tensor == nullptr)
        return base::invalid("op '{}': weight '{}': expected a tensor", op_, a.name);
      if (base::contains(base::keys(named), a.name))
        return base::invalid("op '{}': weight '{}' twice", op_, a.name);
      named.emplace_back(a.name, TensorView(*v.u.tensor));
    }
    // Only kernels that load weights can check them.
    const auto loads = [](const auto& k) { return k.second->d.load != nullptr; };
    if (const auto found = runtime_->core().sites.find(op_);
        found.ok() && !named.empty() && std::ranges::any_of(found->record->kernels, loads))
      YARD_RETURN_IF_ERROR(
          check_some(*found->record, &yard_kernel_t::load, "takes these weights",
                     [&](const auto& k) { return exec::check_weights(k, named); }));
    states_->set_weights(std::move(named));
    return {};
  });
}

Status Instance::call(std::initializer_list<Arg> args, Options options) const {
  options.instance = this;
  return runtime_->call(op_, args, options);
}

size_t Instance::states() const { return states_->held().states; }

uint64_t Instance::state_bytes() const { return states_->held().bytes; }

}  // namespace yard
