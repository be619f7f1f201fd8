// SPDX-License-Identifier: Apache-2.0
// What a Program says about itself; compiler.cc makes one.
#include "op/program.h"

#include "op/compiler.h"
#include "op/program_cold.h"

namespace yard::op {

Result<Program> Program::compile(std::string_view schema_text) {
  Result<Schema> s = parse_schema(schema_text);
  if (!s.ok()) return std::move(s).status();
  return Compiler(std::move(*s)).run();
}

Result<Program> Program::compile(const Schema& schema) { return compile(to_string(schema)); }

const Schema& Program::schema() const noexcept { return cold_->schema; }
std::string_view Program::signature() const noexcept { return cold_->signature; }
std::span<const uint8_t> Program::outputs() const noexcept { return cold_->outputs; }
bool Program::has_inout() const noexcept { return cold_->has_inout; }
bool Program::needs_shape_function() const noexcept { return cold_->needs_shape_function; }

bool Program::checks_scalars() const noexcept {
  for (const Step& s : cold_->steps)
    if (s.op == Step::Op::kEnum || s.op == Step::Op::kInt) return true;
  return false;
}

bool Program::may_alias(uint32_t output, uint32_t input) const noexcept {
  for (const auto& [out, in] : cold_->aliases)
    if (out == output && in == input) return true;
  return false;
}

std::optional<Field> Program::field(std::string_view name) const {
  for (const auto& [known, f] : cold_->fields)
    if (known == name) return f;
  return std::nullopt;
}

std::vector<std::string> Program::field_names() const {
  std::vector<std::string> names;
  for (const auto& entry : cold_->fields) names.push_back(entry.first);
  return names;
}

}  // namespace yard::op
