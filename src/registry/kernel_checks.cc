// SPDX-License-Identifier: Apache-2.0
#include "registry/kernel_checks.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace yard::registry {

Status resolve_params(Kernel& k, const op::Program& program) {
  if (k.params.empty()) return {};
  std::vector<std::string> fixed = k.verify_reads;
  for (const op::Param& p : program.schema().params)
    if (k.reads_all) fixed.push_back(p.name);
  for (size_t i = 0; i < k.limits.size(); ++i)
    if (k.limits[i].kind == YARD_LIMIT_ABSENT || k.limits[i].kind == YARD_LIMIT_EQUALS)
      fixed.push_back(k.limit_fields[i]);
  auto map = op::ArgumentMap::resolve(program, k.params, fixed);
  if (!map.ok())
    return std::move(map).status().note(fmt::format("in kernel '{}' of op '{}'", k.id, k.op));
  k.map = std::make_shared<const op::ArgumentMap>(*std::move(map));
  return {};
}

Status check_kernel(const Kernel& k, const Backend& backend, const op::Program& program) {
  const auto bad = [&](const std::string& what) {
    return Status(Code::kInvalidArgument,
                  fmt::format("kernel '{}' of op '{}': {}", k.id, k.op, what));
  };
  if (k.kind == Kind::kVendor && backend.vendor.empty())
    return bad(fmt::format("a kernel of kind vendor needs a vendor, and backend '{}' has none",
                           backend.name));
  const bool on_host = backend.d.device_type == Device{}.type;
  if (k.map != nullptr && on_host && (k.d.flags & YARD_KERNEL_ASYNC) != 0)
    for (const op::KernelParam& p : k.map->params)
      if (!p.requirements.empty())
        return bad(
            fmt::format("its parameter '{}' may need a transform, and it is asynchronous: results "
                        "would be copied before they are there",
                        p.name));
  const std::string_view signature = k.map != nullptr ? k.map->signature : program.signature();
  if (k.d.typed != nullptr && k.typed_signature != signature)
    return bad(fmt::format("its typed entry has signature '{}', {} is '{}'", k.typed_signature,
                           k.map != nullptr ? "that of its parameters" : "the op's", signature));
  const auto unknown = [&](const std::string& field, const char* where) {
    std::vector<std::string> names = program.field_names();
    for (const op::Param& p : program.schema().params) names.push_back(p.name);
    return bad(fmt::format("{} names '{}', which is no field of the op{}", where, field,
                           base::did_you_mean(field, names)));
  };
  for (size_t i = 0; i < k.limits.size(); ++i) {
    const std::string& field = k.limit_fields[i];
    if (field.empty()) continue;
    const uint32_t kind = k.limits[i].kind;
    const bool integer = kind == YARD_LIMIT_MIN || kind == YARD_LIMIT_MAX ||
                         kind == YARD_LIMIT_MULTIPLE || kind == YARD_LIMIT_EQUALS;
    const bool known = integer ? program.field(field).has_value() : program.index_of(field) >= 0;
    if (!known) return unknown(field, "a limit");
    if (integer) continue;
    const op::Param& p = program.schema().params[static_cast<size_t>(program.index_of(field))];
    const bool optional = kind == YARD_LIMIT_ABSENT || kind == YARD_LIMIT_PRESENT;
    if (optional ? !p.optional : !p.is_tensor())
      return bad(fmt::format("a limit needs '{}' to be {}, which it is not", field,
                             optional ? "optional" : "a tensor"));
  }
  for (const std::string& f : k.verify_reads)
    if (!program.field(f) && program.index_of(f) < 0) return unknown(f, "verify_reads");
  for (const std::string& f : k.cost_reads)
    if (!program.field(f)) return unknown(f, "cost_reads");
  for (const std::string& f : k.state_fields)
    if (!program.field(f)) return unknown(f, "state_fields");
  return {};
}

}  // namespace yard::registry
