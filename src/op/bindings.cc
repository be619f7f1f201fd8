// SPDX-License-Identifier: Apache-2.0
// Values of names, and types with the values filled in: see bindings.h.
#include "op/bindings.h"

namespace yard::op {
namespace {

std::string bound_dim_text(const Dim& d, const Bindings& known) {
  std::string out;
  switch (d.kind) {
    case Dim::Kind::kAny: return "_";
    case Dim::Kind::kConstant: return std::to_string(d.number);
    case Dim::Kind::kLeading: {
      const auto group = known.groups.find(d.name);
      out = "*" + d.name;
      if (group == known.groups.end()) break;
      out.clear();
      for (int64_t n : group->second.value) out += (out.empty() ? "" : ",") + std::to_string(n);
      if (d.broadcast && !out.empty()) return "(" + out + ")|1";
      return out;
    }
    case Dim::Kind::kNamed: {
      const auto bound = known.dims.find(d.name);
      int64_t size;
      if (bound != known.dims.end() &&
          !__builtin_mul_overflow(bound->second.value, d.number, &size))
        out = std::to_string(size);
      else
        out = d.number == 1 ? d.name : std::to_string(d.number) + "*" + d.name;
      break;
    }
  }
  return d.broadcast ? out + "|1" : out;
}

}  // namespace

std::optional<int64_t> Bindings::number(const std::string& name) const {
  if (const auto d = dims.find(name); d != dims.end()) return d->second.value;
  const auto g = groups.find(name);
  if (g == groups.end()) return std::nullopt;
  int64_t product = 1;
  for (int64_t n : g->second.value) product *= n;
  return product;
}

Bindings bind_integers(const Schema& schema, const yard_value_t* args) {
  Bindings b;
  for (size_t i = 0; i < schema.params.size(); ++i)
    if (schema.params[i].kind == Kind::kInt && args[i].tag == YARD_TAG_INT)
      b.dims[schema.params[i].name] = {args[i].u.i, schema.params[i].name};
  return b;
}

std::string expected_text(const Param& p, const Bindings& known) {
  if (!p.is_tensor()) return type_text(p);
  std::string out = p.variable.empty() ? yard::to_string(p.dtype) : p.variable;
  if (const auto t = known.variables.find(p.variable); t != known.variables.end())
    out = yard::to_string(t->second.value);
  out += '[';
  bool first = true;
  for (const Dim& d : p.dims) {
    const std::string text = bound_dim_text(d, known);
    if (text.empty()) continue;  // leading dimensions that are none
    if (!first) out += ',';
    first = false;
    out += text;
  }
  return out + ']';
}

}  // namespace yard::op
