// SPDX-License-Identifier: Apache-2.0
// Parses any bytes as a schema. A schema that parses survives printing and parsing again and
// compiles, and the compiled check accepts calls without tensors.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "op/bind.h"
#include "op/facts.h"
#include "op/program.h"
#include "op/schema.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yard::op;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const yard::Result<Schema> schema = parse_schema(text);
  if (!schema.ok()) {
    require(schema.status().message().find('^') != std::string_view::npos);
    return 0;
  }
  const std::string canonical = to_string(*schema);
  const yard::Result<Schema> again = parse_schema(canonical);
  require(again.ok() && *again == *schema && to_string(*again) == canonical);
  const yard::Result<Program> program = Program::compile(canonical);
  require(program.ok() && program->signature().size() == schema->params.size());
  for (const std::string& name : program->field_names()) require(program->field(name).has_value());

  // Builds a call from defaults, and from zeros where a parameter has no default.
  std::vector<yard_value_t> args;
  const yard_tensor_t tensor = [] {
    yard_tensor_t t{};
    t.device = {1, 0};
    t.dtype = {2, 32, 1};
    t.facts = yard::op::facts_of(&t);
    return t;
  }();
  for (const Param& p : schema->params) {
    yard_value_t v = default_value(p);
    if (p.kind == Kind::kTensor) v.tag = YARD_TAG_TENSOR, v.u.tensor = &tensor;
    if (p.kind == Kind::kTensorList) v.tag = YARD_TAG_LIST;
    args.push_back(v);
  }
  const auto n = static_cast<uint32_t>(args.size());
  const bool fits = program->tags_fit(args.data(), n) && program->fits(args.data()) >= 0;
  require(program->explain_mismatch(args.data(), n).ok() == fits);
  if (fits) program->infer_outputs(args.data()).status().ignore();
  return 0;
}
