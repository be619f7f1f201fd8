// SPDX-License-Identifier: Apache-2.0
// From Schema to its canonical text: see schema.h.
#include "base/text.h"
#include "op/schema.h"

namespace yard::op {
namespace {

std::string dim_text(const Dim& d) {
  std::string out;
  switch (d.kind) {
    case Dim::Kind::kAny: return "_";
    case Dim::Kind::kConstant: return std::to_string(d.number);
    case Dim::Kind::kLeading: out = "*" + d.name; break;
    case Dim::Kind::kNamed:
      out = d.number == 1 ? d.name : std::to_string(d.number) + "*" + d.name;
      break;
  }
  return d.broadcast ? out + "|1" : out;
}

std::string term_text(const Term& t) {
  if (t.name.empty()) return std::to_string(t.number);
  return t.number == 1 ? t.name : std::to_string(t.number) + "*" + t.name;
}

template <class List, class Text>
std::string joined(const List& list, const Text& text) {
  std::string out;
  for (const auto& item : list) {
    if (!out.empty()) out += ", ";
    out += text(item);
  }
  return out;
}

std::string default_text(const Param& p) {
  if (const auto* i = std::get_if<int64_t>(&p.fallback))
    return p.kind == Kind::kEnum ? p.enumerators.at(static_cast<size_t>(*i)) : std::to_string(*i);
  if (const auto* f = std::get_if<double>(&p.fallback)) return base::format_double(*f);
  if (const auto* b = std::get_if<bool>(&p.fallback)) return *b ? "true" : "false";
  return base::quote(std::get<std::string>(p.fallback));
}

}  // namespace

int Schema::index_of(std::string_view param) const noexcept {
  for (size_t i = 0; i < params.size(); ++i)
    if (params[i].name == param) return static_cast<int>(i);
  return -1;
}

const char* to_string(Compare c) noexcept {
  static constexpr const char* kText[] = {"==", "!=", "<", "<=", ">", ">="};
  return kText[static_cast<int>(c)];
}

std::string type_text(const Param& p) {
  switch (p.kind) {
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kBool: return "bool";
    case Kind::kString: return "string";
    case Kind::kEnum:
      return "enum{" + joined(p.enumerators, [](const std::string& e) { return e; }) + "}";
    default:
      return (p.variable.empty() ? yard::to_string(p.dtype) : p.variable) + "[" +
             joined(p.dims, dim_text) + (p.kind == Kind::kTensorList ? "][]" : "]");
  }
}

std::string to_string(const Param& p) {
  std::string out = p.name;
  if (p.access == Access::kWrite) out += '!';
  if (p.access == Access::kReadWrite) out += '~';
  if (p.optional) out += '?';
  out += ": " + type_text(p);
  return p.fallback.index() == 0 ? out : out + " = " + default_text(p);
}

std::string to_string(const Clause& c) {
  std::string out;
  switch (c.kind) {
    case Clause::Kind::kDTypes:
      return c.left.name + " in {" + joined(c.dtypes, [](DType t) { return yard::to_string(t); }) +
             "}";
    case Clause::Kind::kIff: return c.left.name + " iff " + c.right.name;
    case Clause::Kind::kOr: return c.left.name + " or " + c.right.name;
    case Clause::Kind::kMayAlias: return c.left.name + " may_alias " + c.right.name;
    case Clause::Kind::kMultiple:
      out = c.left.name + " % " + std::to_string(c.right.number) + " == 0";
      break;
    case Clause::Kind::kCompare:
      out = term_text(c.left) + " " + to_string(c.compare) + " " + term_text(c.right);
      break;
  }
  if (c.guard == Clause::Guard::kIf) out += " if " + c.guard_param;
  if (c.guard == Clause::Guard::kUnless) out += " unless " + c.guard_param;
  return out;
}

std::string to_string(const Schema& s) {
  std::string out =
      s.name + "(" + joined(s.params, [](const Param& p) { return to_string(p); }) + ")";
  if (s.clauses.empty()) return out;
  return out + " where " + joined(s.clauses, [](const Clause& c) { return to_string(c); });
}

}  // namespace yard::op
