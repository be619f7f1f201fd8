// SPDX-License-Identifier: Apache-2.0
#include "select/health_key.h"

#include <algorithm>

namespace yard::select {

std::vector<op::Field> health_dims(const op::Program& program) {
  std::vector<op::Field> dims;
  for (const std::string& name : program.field_names()) {
    if (name.find('.') != std::string::npos) continue;  // `x.rank` and the like
    const auto field = program.field(name);
    const bool size =
        field && (field->kind == op::Field::Kind::kDim || field->kind == op::Field::Kind::kProduct);
    if (size && dims.size() < health::Buckets::kMost) dims.push_back(*field);
  }
  return dims;
}

Device device_of(const yard_value_t* args, uint32_t count) noexcept {
  for (uint32_t i = 0; i < count; ++i) {
    const yard_tensor_t* t = args[i].tag == YARD_TAG_TENSOR                      ? args[i].u.tensor
                             : args[i].tag == YARD_TAG_LIST && args[i].count > 0 ? args[i].u.list[0]
                                                                                 : nullptr;
    if (t != nullptr) return {t->device.type, t->device.index};
  }
  return {};
}

uint64_t call_dtypes(const op::Program& program, const yard_value_t* args) noexcept {
  DType dtypes[YARD_MAX_ARGS];
  size_t n = 0;
  for (uint32_t i = 0; i < program.arg_count(); ++i) {
    if (!program.schema().params[i].is_tensor()) continue;
    int64_t dtype;
    const bool there = op::find(op::Field::of(op::Field::Kind::kDType, i), args, dtype);
    dtypes[n++] = there ? static_cast<DType>(dtype) : DType::invalid;
  }
  return health::pack_dtypes({dtypes, n});
}

CallKind call_kind(const op::Program& program, const std::vector<op::Field>& dims,
                   const yard_value_t* args) {
  CallKind kind{device_of(args, program.arg_count()), call_dtypes(program, args), {}};
  for (const op::Field& f : dims)
    kind.sizes.add(static_cast<uint64_t>(std::max<int64_t>(op::read(f, args), 0)));
  return kind;
}

std::vector<op::Predicate> size_predicates(const health::Buckets& sizes,
                                           const std::vector<op::Field>& dims) {
  std::vector<op::Predicate> to;
  const auto buckets = sizes.get();
  for (size_t i = 0; i < buckets.size(); ++i) {
    const auto [low, high] = health::Buckets::range(buckets[i]);
    // Two thresholds, not one range: a range of row counts can then be found between them.
    if (low > 0)
      to.push_back({dims[i], op::IntegerTest::at_least(static_cast<int64_t>(low)), false});
    if (high < INT64_MAX)
      to.push_back({dims[i], op::IntegerTest::at_most(static_cast<int64_t>(high)), true});
  }
  return to;
}

health::Key health_key(const registry::Kernel& kernel, const CallKind& kind) {
  health::Key key;
  key.op = kernel.op, key.kernel = kernel.id, key.backend = kernel.backend_name;
  key.device = kind.device, key.dtypes = kind.dtypes, key.sizes = kind.sizes;
  return key;
}

}  // namespace yard::select
