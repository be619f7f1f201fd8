// SPDX-License-Identifier: Apache-2.0
// The canonical text of schemas, and the check of what their grammar cannot express.
#include "op/schema.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/lists.h"
#include "base/text.h"
#include "op/scanner.h"

namespace yard::op {
namespace {

// Returns "7", "name" or "2*name".
std::string product_text(int64_t number, const std::string& name) {
  if (name.empty()) return std::to_string(number);
  return number == 1 ? name : std::to_string(number) + "*" + name;
}
std::string term_text(const Term& t) { return product_text(t.number, t.name); }

template <class List, class Text>
std::string joined(const List& list, const Text& text) {
  std::vector<std::string> texts;
  for (const auto& item : list) texts.push_back(text(item));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string default_text(const Param& p) {
  if (const auto* i = std::get_if<int64_t>(&p.fallback))
    return p.kind == Kind::kEnum ? p.enumerators.at(static_cast<size_t>(*i)) : std::to_string(*i);
  if (const auto* f = std::get_if<double>(&p.fallback)) return base::format_double(*f);
  if (const auto* b = std::get_if<bool>(&p.fallback)) return *b ? "true" : "false";
  return base::quote(std::get<std::string>(p.fallback));
}

constexpr std::string_view kReserved[] = {"in", "if", "iff", "or", "unless", "where", "may_alias"};

class Checker {
 public:
  Checker(const Schema& s, Scanner& in) : s_(s), in_(in) {}

  bool run() {
    if (s_.params.size() > YARD_MAX_ARGS)
      return fail(s_.params[YARD_MAX_ARGS].at, "an op has at most {} parameters", YARD_MAX_ARGS);
    return std::ranges::all_of(s_.params, [&](const Param& p) { return param_name(p); }) &&
           std::ranges::all_of(s_.params, [&](const Param& p) { return tensor(p); }) &&
           broadcasts() && variables() && limits() &&
           std::ranges::all_of(s_.clauses, [&](const Clause& c) { return clause(c) && guard(c); });
  }

 private:
  struct Name {
    bool leading = false;
    Position at;
    bool bound = false;           // by a required tensor or an int parameter
    size_t sources = 0;           // the number of parameters that may bind it
    const Param* last = nullptr;  // the last such parameter
  };

  template <class... Args>
  bool fail(Position at, fmt::format_string<Args...> text, Args&&... args) {
    return in_.fail_at(at.offset, text, std::forward<Args>(args)...);
  }

  bool not_reserved(const std::string& name, Position at) {
    return !base::contains(kReserved, name) || fail(at, "'{}' is a reserved word", name);
  }

  bool param_name(const Param& p) {
    return not_reserved(p.name, p.at) &&
           (s_.find(p.name) == &p || fail(p.at, "two parameters are called '{}'", p.name));
  }

  bool tensor(const Param& p) {
    if (p.trailing() > YARD_MAX_RANK)
      return fail(p.at, "'{}' has more than {} dimensions", p.name, YARD_MAX_RANK);
    return std::ranges::all_of(p.dims, [&](const Dim& d) { return d.name.empty() || dim(p, d); });
  }

  bool dim(const Param& p, const Dim& d) {
    if (!not_reserved(d.name, d.at)) return false;
    const Param* const same = s_.find(d.name);
    const bool leading = d.kind == Dim::Kind::kLeading;
    if (same != nullptr && (leading || same->kind != Kind::kInt))
      return fail(d.at, "'{}' is a parameter{}", d.name,
                  leading ? "" : "; only an int parameter can be a dimension");
    Name& n = names_.try_emplace(d.name, Name{leading, d.at}).first->second;
    if (n.leading != leading)
      return fail(
          d.at, "'{0}' is used for leading dimensions ('*{0}') and for a single one; use two names",
          d.name);
    if (d.broadcast && p.is_written())
      return fail(d.at, "'{}' is written and cannot be broadcast", p.name);
    if (same != nullptr || (!d.broadcast && p.is_required())) n.bound = true;
    if (!d.broadcast && std::exchange(n.last, &p) != &p) ++n.sources;
    return true;
  }

  bool broadcasts() {
    for (const Param& p : s_.params)
      for (const Dim& d : p.dims)
        if (d.broadcast && !names_[d.name].bound)
          return fail(d.at,
                      "'{0}{1}|1' needs a '{0}{1}' in a parameter that is neither optional nor a "
                      "list",
                      d.kind == Dim::Kind::kLeading ? "*" : "", d.name);
    return true;
  }

  bool variables() {
    for (const Param& p : s_.params)
      if (!p.variable.empty()) variables_.insert(p.variable);
    for (const Param& p : s_.params)
      if (!p.variable.empty() && !s_.reads_variable(p.variable) &&
          s_.dtypes_of(p.variable) == nullptr)
        return fail(p.at,
                    "dtype variable '{0}' occurs only in outputs; expected an input or a clause "
                    "'{0} in {{...}}' that determines it",
                    p.variable);
    return true;
  }

  bool limits() {
    size_t count = variables_.size();
    for (const auto& [name, n] : names_) count += n.leading ? 2 : 1;
    for (const Param& p : s_.params) count += p.kind == Kind::kInt ? 1 : 0;
    if (count > kMaxNames)
      return fail({}, "more than {} names of dimensions, integers and dtype variables", kMaxNames);
    for (const auto& [name, n] : names_)
      if (!n.bound && n.sources > kMaxSources)
        return fail(n.at, "'{}' occurs in more than {} parameters, all of them optional or lists",
                    name, kMaxSources);
    return true;
  }

  bool clause(const Clause& c) {
    switch (c.kind) {
      case Clause::Kind::kDTypes:
        return variable(c.left) && (s_.dtypes_of(c.left.name) == &c.dtypes ||
                                    fail(c.at, "a second set of dtypes for '{}'", c.left.name));
      case Clause::Kind::kElements: return elements(c);
      case Clause::Kind::kIff:
      case Clause::Kind::kOr: return optional(c.left) && optional(c.right);
      case Clause::Kind::kIffDTypes: return optional(c.left) && variable(c.right);
      case Clause::Kind::kMayAlias: return may_alias(c);
      case Clause::Kind::kFloat: return true;
      case Clause::Kind::kMultiple:
      case Clause::Kind::kCompare: break;
    }
    if (c.left.name.empty() && c.right.name.empty())
      return fail(c.at, "a comparison of two constants has no effect");
    return number(c.left) && number(c.right);
  }

  bool variable(const Term& t) {
    return variables_.contains(t.name) ||
           fail(t.at, "no parameter has the dtype '{}'{}", t.name,
                base::did_you_mean(t.name, {variables_.begin(), variables_.end()}));
  }

  bool elements(const Clause& c) {
    const Param* const p = param(c.left);
    if (p == nullptr) return false;
    if (!p->is_tensor() || p->is_output() || !holds_integers(*p))
      return fail(c.left.at, "'{}' is not a tensor of integers that the op reads", p->name);
    return number(c.right) && number({1, c.factor, c.right.at});
  }

  bool holds_integers(const Param& p) const {
    const auto integer = [](DType t) { return t >= DType::i8 && t <= DType::u64; };
    if (p.variable.empty()) return integer(p.dtype);
    const std::vector<DType>* const dtypes = s_.dtypes_of(p.variable);
    return dtypes != nullptr && std::ranges::all_of(*dtypes, integer);
  }

  const Param* param(const Term& t) {
    const Param* const p = s_.find(t.name);
    if (p == nullptr)
      fail(t.at, "no parameter is called '{}'{}", t.name,
           base::did_you_mean(t.name, s_.param_names()));
    return p;
  }

  bool optional(const Term& t) {
    const Param* const p = param(t);
    return p != nullptr && (p->optional || fail(t.at, "'{}' is not optional", t.name));
  }

  bool guard(const Clause& c) {
    return c.guard == Clause::Guard::kNone || optional({1, c.guard_param, c.guard_at});
  }

  // Checks that a term is a dimension, a product or an int parameter.
  bool number(const Term& t) {
    const Param* const p = s_.find(t.name);
    if (t.name.empty() || names_.contains(t.name) || (p != nullptr && p->kind == Kind::kInt))
      return true;
    if (p != nullptr && p->kind == Kind::kFloat)
      return fail(t.at, "'{0}' is a float: expected '{0} < 1.5', a comparison with a number",
                  t.name);
    if (p != nullptr) return fail(t.at, "'{}' is neither a dimension nor an int", t.name);
    std::vector<std::string> known = base::keys(names_);
    for (const Param& other : s_.params)
      if (other.kind == Kind::kInt) known.push_back(other.name);
    return fail(t.at, "no dimension or int parameter is called '{}'{}", t.name,
                base::did_you_mean(t.name, known));
  }

  bool may_alias(const Clause& c) {
    const Param* const out = param(c.left);
    const Param* const in = out != nullptr ? param(c.right) : nullptr;
    if (in == nullptr) return false;
    if (out->kind != Kind::kTensor || !out->is_output())
      return fail(c.left.at, "'{}' is not an output tensor ('!')", out->name);
    if (in->kind != Kind::kTensor || in->is_written())
      return fail(c.right.at, "'{}' is not a read-only tensor", in->name);
    return true;
  }

  const Schema& s_;
  Scanner& in_;
  std::map<std::string, Name> names_;
  std::set<std::string> variables_;
};

}  // namespace

const Param* Schema::find(std::string_view param) const noexcept {
  const auto it = std::ranges::find(params, param, &Param::name);
  return it != params.end() ? &*it : nullptr;
}

int Schema::index_of(std::string_view param) const noexcept {
  const Param* const p = find(param);
  return p != nullptr ? static_cast<int>(p - params.data()) : -1;
}

std::vector<std::string> Schema::param_names() const {
  std::vector<std::string> names;
  for (const Param& p : params) names.push_back(p.name);
  return names;
}

const std::vector<DType>* Schema::dtypes_of(std::string_view variable) const noexcept {
  for (const Clause& c : clauses)
    if (c.kind == Clause::Kind::kDTypes && c.left.name == variable) return &c.dtypes;
  return nullptr;
}

bool Schema::reads_variable(std::string_view variable) const noexcept {
  return std::ranges::any_of(
      params, [&](const Param& p) { return p.variable == variable && !p.is_output(); });
}

const char* to_string(Compare c) noexcept {
  static constexpr const char* kText[] = {"==", "!=", "<", "<=", ">", ">="};
  return kText[static_cast<int>(c)];
}

std::string to_string(const Dim& d) {
  if (d.kind == Dim::Kind::kAny) return "_";
  const char* const star = d.kind == Dim::Kind::kLeading ? "*" : "";
  return star + product_text(d.number, d.name) + (d.broadcast ? "|1" : "");
}

const char* to_string(Kind scalar) noexcept {
  static constexpr const char* kText[] = {"", "", "int", "float", "bool", "string", "enum"};
  return kText[static_cast<int>(scalar)];
}

std::string type_text(const Param& p) {
  if (p.is_tensor())
    return (p.variable.empty() ? yard::to_string(p.dtype) : p.variable) + "[" +
           joined(p.dims, [](const Dim& d) { return to_string(d); }) +
           (p.kind == Kind::kTensorList ? "][]" : "]");
  if (p.kind != Kind::kEnum) return to_string(p.kind);
  return fmt::format("enum{{{}}}", fmt::join(p.enumerators, ", "));
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
  const auto in_dtypes = [&](const Term& t) {
    return t.name + " in {" + joined(c.dtypes, [](DType d) { return yard::to_string(d); }) + "}";
  };
  const std::string &left = c.left.name, compare = to_string(c.compare);
  std::string out;
  switch (c.kind) {
    case Clause::Kind::kDTypes: return in_dtypes(c.left);
    case Clause::Kind::kIff: return left + " iff " + c.right.name;
    case Clause::Kind::kIffDTypes: return left + " iff " + in_dtypes(c.right);
    case Clause::Kind::kOr: return left + " or " + c.right.name;
    case Clause::Kind::kMayAlias: return left + " may_alias " + c.right.name;
    case Clause::Kind::kElements:
      out = fmt::format("{} in [{}, {}{}{}", left, c.left.number, term_text(c.right),
                        (c.factor.empty() ? "" : "*") + c.factor,
                        c.compare == Compare::kLe ? ']' : ')');
      break;
    case Clause::Kind::kMultiple: out = left + " % " + term_text(c.right) + " == 0"; break;
    case Clause::Kind::kFloat:
      out = left + " " + compare + " " + base::format_double(c.bound);
      if (out.ends_with(".0")) out.resize(out.size() - 2);
      break;
    case Clause::Kind::kCompare:
      out = term_text(c.left) + " " + compare + " " + term_text(c.right);
      break;
  }
  if (c.guard == Clause::Guard::kNone) return out;
  return out + (c.guard == Clause::Guard::kIf ? " if " : " unless ") + c.guard_param;
}

std::string to_string(const Schema& s) {
  std::string out =
      s.name + "(" + joined(s.params, [](const Param& p) { return to_string(p); }) + ")";
  if (s.clauses.empty()) return out;
  return out + " where " + joined(s.clauses, [](const Clause& c) { return to_string(c); });
}

bool check_schema(const Schema& schema, Scanner& in) { return Checker(schema, in).run(); }

}  // namespace yard::op
