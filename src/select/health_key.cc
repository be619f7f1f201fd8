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

CallKind call_kind(const op::Program& program, const std::vector<op::Field>& dims,
                   const yard_value_t* args) {
  CallKind kind;
  kind.device = device_of(args, program.arg_count());
  DType dtypes[YARD_MAX_ARGS];
  size_t n = 0;
  for (uint32_t i = 0; i < program.arg_count(); ++i) {
    if (!program.schema().params[i].is_tensor()) continue;
    const yard_value_t& v = args[i];
    const yard_tensor_t* t = v.tag == YARD_TAG_TENSOR                ? v.u.tensor
                             : v.tag == YARD_TAG_LIST && v.count > 0 ? v.u.list[0]
                                                                     : nullptr;
    dtypes[n++] = t != nullptr ? static_cast<DType>(t->facts & YARD_FACTS_DTYPE) : DType::invalid;
  }
  kind.dtypes = health::pack_dtypes({dtypes, n});
  for (const op::Field& f : dims)
    kind.sizes.add(static_cast<uint64_t>(std::max<int64_t>(op::read(f, args), 0)));
  return kind;
}

health::Key health_key(const registry::Kernel& kernel, const CallKind& kind) {
  health::Key key;
  key.op = kernel.op, key.kernel = kernel.id, key.backend = kernel.backend_name;
  key.device = kind.device, key.dtypes = kind.dtypes, key.sizes = kind.sizes;
  return key;
}

}  // namespace yard::select
