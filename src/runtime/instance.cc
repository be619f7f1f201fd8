// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <yard/bound.h>
#include <yard/runtime.h>

#include "base/results.h"
#include "dispatch/core.h"
#include "exec/states.h"

namespace yard {
namespace {

Status bad(std::string what) { return Status(Code::kInvalidArgument, std::move(what)); }

// Whether some kernel of the op can be created with these options.
Status check_accepted(const registry::OpRecord& op_record,
                      const std::vector<exec::OwnedValue>& options) {
  if (options.empty()) return {};
  Status s = bad(fmt::format("no kernel of op '{}' accepts these options", op_record.op->name));
  for (const auto& [id, kernel] : op_record.kernels) {
    if (kernel->d.create == nullptr) continue;
    const auto taken = exec::kernel_options(*kernel, options);
    if (taken.ok()) return {};
    s.note(fmt::format("{}: {}", id, taken.status().message()));
  }
  return s;
}

// Whether some kernel of the op takes these weights; one that loads none says nothing about them.
Status check_taken(const registry::OpRecord& op_record, const exec::Weights& weights) {
  if (weights.empty()) return {};
  Status s = bad(fmt::format("no kernel of op '{}' takes these weights", op_record.op->name));
  bool loads = false;
  for (const auto& [id, kernel] : op_record.kernels) {
    if (kernel->d.load == nullptr) continue;
    loads = true;
    const Status taken = exec::check_weights(*kernel, weights);
    if (taken.ok()) return {};
    s.note(fmt::format("{}: {}", id, taken.message()));
  }
  return loads ? s : Status();
}

}  // namespace

Result<Instance> Instance::make(Runtime& runtime, std::string_view op,
                                std::span<const Arg> options) {
  YARD_ASSIGN_OR_RETURN(const auto found, runtime.core().sites.find(op));
  std::vector<exec::OwnedValue> owned;
  for (const Arg& a : options) {
    const yard_value_t& v = a.value.c();
    if (a.name.empty()) return bad(fmt::format("op '{}': an option needs a name", op));
    if (v.tag == YARD_TAG_TENSOR || v.tag == YARD_TAG_LIST || v.tag == YARD_TAG_NONE)
      return bad(fmt::format(
          "op '{}': option '{}': expected a scalar; tensors are loaded as weights", op, a.name));
    for (const exec::OwnedValue& o : owned)
      if (o.name == a.name) return bad(fmt::format("op '{}': option '{}' twice", op, a.name));
    std::string text = v.tag == YARD_TAG_STRING ? std::string(v.u.string, v.count) : "";
    owned.push_back({std::string(a.name), std::move(text), v});
  }
  YARD_RETURN_IF_ERROR(check_accepted(*found.record, owned));
  Instance made;
  made.runtime_ = &runtime;
  made.op_ = op;
  made.states_ = std::make_shared<exec::States>(runtime.core().state_budget);
  made.states_->set_options(std::move(owned));
  runtime.core().add_instance(made.states_);
  return made;
}

Result<Instance> Instance::make(Runtime& runtime, std::string_view op,
                                std::initializer_list<Arg> options) {
  return make(runtime, op, std::span(options.begin(), options.size()));
}
Result<Instance> Instance::make(std::string_view op, std::initializer_list<Arg> options) {
  return make(Runtime::shared(), op, options);
}

Status Instance::load(std::initializer_list<Arg> weights) {
  return load(std::span(weights.begin(), weights.size()));
}

Status Instance::load(std::span<const Arg> weights) {
  std::vector<std::pair<std::string, TensorView>> named;
  for (const Arg& a : weights) {
    const yard_value_t& v = a.value.c();
    if (a.name.empty()) return bad(fmt::format("op '{}': a weight needs a name", op_));
    if (v.tag != YARD_TAG_TENSOR || v.u.tensor == nullptr)
      return bad(fmt::format("op '{}': weight '{}': expected a tensor", op_, a.name));
    for (const auto& [name, view] : named)
      if (name == a.name) return bad(fmt::format("op '{}': weight '{}' twice", op_, a.name));
    named.emplace_back(a.name, TensorView(*v.u.tensor));
  }
  if (const auto found = runtime_->core().sites.find(op_); found.ok())
    YARD_RETURN_IF_ERROR(check_taken(*found->record, named));
  states_->set_weights(std::move(named));
  return {};
}

Status Instance::call(std::initializer_list<Arg> args, Options options) const {
  options.instance = this;
  return runtime_->call(op_, args, options);
}

size_t Instance::states() const { return states_->held().states; }

uint64_t Instance::state_bytes() const { return states_->held().bytes; }

}  // namespace yard
