// SPDX-License-Identifier: Apache-2.0
#include "verify/kernel_runner.h"

#include <fmt/format.h>

#include "base/lists.h"
#include "base/results.h"
#include "base/text.h"
#include "op/bind.h"
#include "select/reasons.h"
#include "select/select.h"
#include "verify/parsed_call.h"

namespace yard::verification {
namespace {

auto bind(const op::Program& program, const CallTensors& tensors) {
  std::vector<op::Given> given;
  for (const Arg& a : tensors.args()) given.push_back({a.name, a.value.c()});
  return op::bind(program, given);
}

// Returns values to try for an option. Its default has a larger share.
std::vector<exec::OwnedValue> values_of(const op::Param& p) {
  const yard_value_t usual = op::default_value(p);
  std::vector<exec::OwnedValue> to;
  const auto add = [&](const Value& v, const std::string& text = "") {
    to.push_back({p.name, text, v.c()});
  };
  if (p.kind == op::Kind::kEnum)
    for (const std::string& word : p.enumerators) add(word, word);
  if (p.kind == op::Kind::kBool)
    for (const bool v : {false, true}) add(v);
  if (p.kind == op::Kind::kInt)
    for (const int v : {1, 2, 4, 0, -1, 16}) add(v);
  if (to.empty()) {
    const double f = usual.tag == YARD_TAG_FLOAT ? usual.u.f : 1.0;
    for (const double v : {f, 0.5, f * 2}) add(v);
  }
  exec::OwnedValue first = to[0];
  if (usual.tag != YARD_TAG_NONE)
    first = p.kind == op::Kind::kEnum ? to[static_cast<size_t>(usual.u.i)]
                                      : exec::OwnedValue{p.name, "", usual};
  to.insert(to.begin(), 2, first);
  return to;
}

op::SpecValue spec_value(const exec::OwnedValue& o) {
  switch (o.value.tag) {
    case YARD_TAG_INT: return {o.value.u.i};
    case YARD_TAG_FLOAT: return {o.value.u.f};
    case YARD_TAG_BOOL: return {o.value.u.i != 0};
    default:
      if (base::is_bare_word(o.text)) return {op::Word{o.text}};
      return {o.text};
  }
}

std::vector<exec::OwnedValue> owned(const std::vector<Arg>& options) {
  std::vector<exec::OwnedValue> to;
  for (const Arg& a : options) {
    const yard_value_t& v = a.value.c();
    to.push_back({std::string(a.name),
                  v.tag == YARD_TAG_STRING ? std::string(v.u.string, v.count) : std::string(), v});
  }
  return to;
}

bool has(const exec::Weights& weights, std::string_view name) {
  return base::contains(base::keys(weights), name);
}

void add_text(std::string& list, const std::string& name, const std::string& text) {
  list += fmt::format("{}{}={}", list.empty() ? "" : ", ", name, text);
}

// Adds the tensor. If it has no data, adds one of the same form with generated contents.
void add_weight(const std::string& name, const TensorView& given, uint64_t seed, TestInstance& to) {
  add_text(to.loaded, name, op::brief(given.c()));
  if (given.data() != nullptr) {
    to.made.emplace_back(name, given);
    return;
  }
  const Buffer& made = to.weights.emplace_back(TensorView(nullptr, given.dtype(), given.shape()),
                                               YARD_MAX_ALIGN, false);
  fill(made.view(), Random(seed ^ (to.weights.size() * 0x9e3779b97f4a7c15ull)), Contents::kNormal,
       IntegerRange());
  to.made.emplace_back(name, made.view());
}

// Returns the form of a declared weight in a call, or nullopt if the call does not determine it.
std::optional<TensorView> declared_form(const op::Program& program, const op::Call& call,
                                        const op::Param& p) {
  DType dtype = p.dtype;
  for (size_t i = 0; i < program.schema().params.size() && !p.variable.empty(); ++i)
    if (program.schema().params[i].variable == p.variable && call.args()[i].tag == YARD_TAG_TENSOR)
      dtype = from_dlpack(call.args()[i].u.tensor->dtype);
  if (dtype == DType::invalid) return std::nullopt;
  std::vector<int64_t> shape;
  for (const op::Dim& d : p.dims) {
    int64_t size = d.number;
    if (d.kind != op::Dim::Kind::kConstant) {
      const auto field = program.field(d.name);
      if (!field || !op::find(*field, call.args(), size)) return std::nullopt;
      size *= d.number;
    }
    shape.push_back(size);
  }
  return TensorView(nullptr, dtype, shape);
}

}  // namespace

KernelRunner::KernelRunner(const OpUnderTest& op, const registry::Kernel& kernel)
    : candidates_({op.op_record, {{}, kernel.id}, op.where}),
      plan_(exec::Plan::make(0, {}, std::vector<exec::Attempt>{{&kernel, stats_.get()}})),
      kernel_(kernel) {
  for (size_t i = 0; i < candidates_.all().size(); ++i)
    if (candidates_.all()[i].kernel->id == kernel.id) index_ = i;
}

std::string KernelRunner::unavailable() const {
  const registry::Backend& backend = *kernel_.backend;
  const registry::DeviceProbe& probe =
      backend.probe({std::max(backend.d.device_type, 1), 0}, candidates_.host());
  if (probe.available) return {};
  return fmt::format("backend '{}' is not available: {}", backend.name, probe.text);
}

std::optional<Outcome> KernelRunner::refusal(const op::Call& call) const {
  select::Notes notes;
  if (!select::select(candidates_, call.args(), call.count(), call.flags(), &notes).empty())
    return std::nullopt;
  const select::Notes::Entry& e = notes.entries[index_];
  return Outcome{Outcome::Verdict::kSkipped, 0, std::string(select::reason_name(e.verdict.reason)),
                 select::describe(candidates_, candidates_.all()[index_], e.verdict, e.text)};
}

CallLimits KernelRunner::limits() const {
  std::vector<op::Predicate> predicates;
  for (const select::Limit& l : candidates_.all()[index_].limits) predicates.push_back(l.predicate);
  CallLimits to = CallLimits::of(candidates_.program(), predicates, kernel_.d.flags);
  if (kernel_.needs_weights) to.flags |= YARD_CALL_LOADED;
  return to;
}

Status KernelRunner::run(uint32_t flags, const CallTensors& tensors, exec::States* states,
                         bool* changed_float_state) const {
  const op::Program& program = candidates_.program();
  YARD_ASSIGN_OR_RETURN(const auto bound, bind(program, tensors));
  base::ThreadRecord& thread = base::this_thread();
  // Kernels expect a guard, as in any call. The op record keeps alive what they use.
  const base::Guard guard(thread);
  const exec::Request request{.op = program.name().c_str(),
                              .host = candidates_.host(),
                              .args = bound.values,
                              .count = bound.count,
                              .flags = flags,
                              .strict = true,
                              .writes_inputs = program.has_inout(),
                              .program = &program,
                              .states = states != nullptr ? states : states_.get()};
  exec::Outcome outcome;
  Status s = exec::execute(thread, *plan_, request, outcome);
  if (changed_float_state != nullptr) *changed_float_state = outcome.changed_float_state;
  if (s.ok() && outcome.changed_float_state)
    return exec::kernel_failure(program.name().c_str(), kernel_, YARD_FAULT,
                                "it changed the floating-point control state of its thread "
                                "(rounding mode, flush-to-zero or traps)");
  return s;
}

Difference compare_results(const registry::Op& op, std::span<const CallTensors::Written> found,
                           const CallTensors& expected,
                           std::span<const yard_tolerance_t> tolerances) {
  Difference d = compare(found, expected.written(), tolerances);
  if (d.within || op.d.magnitude == nullptr) return d;
  const auto right = bind(*op.program, expected);
  if (!right.ok()) return d;
  const CallTensors magnitudes(expected.call(), right->values);
  const auto bound = bind(*op.program, magnitudes);
  char error[256] = "";
  yard_call_t call{};
  call.size = sizeof call, call.error = error, call.error_size = sizeof error;
  if (!bound.ok() || op.d.magnitude(&call, bound->values, bound->count) != YARD_OK) return d;
  return compare(found, expected.written(), tolerances, magnitudes.written());
}

const registry::Kernel* find_kernel(const registry::OpRecord& op_record, std::string_view id) {
  const auto it = op_record.kernels.find(std::string(id));
  return it != op_record.kernels.end() ? it->second.get() : nullptr;
}

const registry::Kernel* reference_kernel(const registry::OpRecord& op_record) {
  const registry::Kernel* best = nullptr;
  for (const auto& [id, k] : op_record.kernels)
    if (k->kind == Kind::kReference && (best == nullptr || k->priority > best->priority))
      best = k.get();
  return best;
}

InstanceGenerator::InstanceGenerator(const registry::Kernel& kernel,
                                     const registry::Kernel& reference, const VerifyOptions& given)
    : kernel_(kernel), given_(given) {
  if (kernel.options == nullptr || reference.options == nullptr) return;
  for (const op::Param& p : kernel.options->params) {
    const op::Param* const same = reference.options->find(p.name);
    if (same != nullptr && same->kind == p.kind && p.kind != op::Kind::kString &&
        std::ranges::find(given.options, p.name, &Arg::name) == given.options.end())
      varied_.emplace_back(values_of(p));
  }
}

std::unique_ptr<TestInstance> InstanceGenerator::next(const op::Program& program,
                                                      const op::Call& call, uint64_t seed,
                                                      Random* random) {
  auto to = std::make_unique<TestInstance>();
  std::vector<exec::OwnedValue> options = owned(given_.options);
  if (random != nullptr)
    for (auto& values : varied_) options.push_back(values.next(*random));
  for (const exec::OwnedValue& o : options)
    add_text(to->options, o.name, op::to_string(spec_value(o)));
  to->states.set_options(std::move(options));
  for (const Arg& a : given_.weights)
    add_weight(std::string(a.name), TensorView(*a.value.c().u.tensor), seed, *to);
  to->add_arguments(kernel_, program);
  if (kernel_.weights == nullptr) return to;
  for (const op::Param& p : kernel_.weights->params) {
    if (has(to->made, p.name) || program.index_of(p.name) >= 0) continue;  // the call has it
    if (const auto form = declared_form(program, call, p)) add_weight(p.name, *form, seed, *to);
  }
  return to;
}

void TestInstance::add_arguments(const registry::Kernel& kernel, const op::Program& program) {
  if (kernel.weights == nullptr) return;
  for (const op::Param& p : kernel.weights->params)
    if (program.index_of(p.name) >= 0 && !base::contains(arguments, p.name))
      arguments.push_back(p.name);
}

void TestInstance::load(const std::vector<Arg>& args) {
  exec::Weights all = std::move(made);
  for (const Arg& a : args)
    if (base::contains(arguments, a.name) && a.value.c().tag == YARD_TAG_TENSOR &&
        !has(all, a.name))
      all.emplace_back(a.name, TensorView(*a.value.c().u.tensor));
  states.set_weights(std::move(all));
}

}  // namespace yard::verification
