// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/lists.h"
#include "base/text.h"
#include "op/scanner.h"
#include "op/schema.h"

namespace yard::op {
namespace {

class SchemaParser {
 public:
  explicit SchemaParser(Scanner& in) : in_(in) {}

  bool schema(Schema& s) {
    if (!in_.op_name(s.name) || !in_.expect('(', "after the name of the op")) return false;
    if (!in_.accept(')') && !(in_.list([&] { return param(s.params.emplace_back()); }) &&
                              in_.expect(')', "or ',' after a parameter")))
      return false;
    if (in_.accept_word("where") && !in_.list([&] { return clause(s, s.clauses.emplace_back()); }))
      return false;
    return in_.at_end() ||
           in_.expected(s.clauses.empty() ? "'where' or the end" : "',' or the end after a clause");
  }

 private:
  bool param(Param& p) {
    p.at = {in_.at()};
    if (in_.peek() == '*' || in_.peek() == '.')
      return in_.expected("a parameter name",
                          "; variadics are not supported, use a tensor list: T[dims][]");
    if (!in_.name("a parameter name", p.name)) return false;
    const size_t marks = in_.at();
    p.access = in_.accept('!')   ? Access::kWrite
               : in_.accept('~') ? Access::kReadWrite
                                 : Access::kRead;
    p.optional = in_.accept('?');
    if (in_.peek() == '!' || in_.peek() == '~' || in_.peek() == '?')
      return in_.fail("'!' or '~' comes first, then '?', each once");
    if (!in_.expect(':', "and a type after the parameter's name") || !type(p)) return false;
    if (!p.is_tensor() && p.is_written()) return in_.fail_at(marks, "a scalar takes no '!' or '~'");
    if (!p.is_tensor() && p.optional)
      return in_.fail_at(marks, "a scalar takes no '?'; give it a default instead");
    const size_t equals = in_.at();
    if (!in_.accept('=')) return true;
    if (p.is_tensor())
      return in_.fail_at(equals, "a tensor has no default; '?' after its name makes it optional");
    return fallback(p);
  }

  bool type(Param& p) {
    const size_t start = in_.at();
    const std::string_view w = in_.word();
    // The words int, float and bool name dtypes if a bracket follows.
    const bool bracket = in_.peek() == '[';
    for (const Kind kind : {Kind::kInt, Kind::kFloat, Kind::kBool, Kind::kString, Kind::kEnum}) {
      if (w != to_string(kind) || (bracket && parse_dtype(w))) continue;
      p.kind = kind;
      return kind != Kind::kEnum || enumerators(p);
    }
    if (is_variable(w)) {
      p.variable = std::string(w);
    } else if (const auto t = parse_dtype(w)) {
      p.dtype = *t;
    } else {
      in_.seek(start);
      std::vector<std::string> known = dtype_names();
      known.insert(known.end(), {"int", "float", "bool", "string", "enum"});
      return in_.expected("a type (T[dims], f32[dims], int, float, bool, string, enum{...})",
                          base::did_you_mean(w, known));
    }
    return in_.expect('[', "and dimensions after the dtype") && dims(p);
  }

  bool dims(Param& p) {
    if (!in_.accept(']') &&
        !(in_.list([&] { return dim(p); }) && in_.expect(']', "or ',' after a dimension")))
      return false;
    if (!in_.accept('[')) return true;
    p.kind = Kind::kTensorList;
    return in_.expect(']', "to close the '[]' of a tensor list");
  }

  bool dim(Param& p) {
    Dim& d = p.dims.emplace_back();
    d.at = {in_.at()};
    if (in_.accept('*')) {
      d.kind = Dim::Kind::kLeading;
      if (p.dims.size() > 1) return in_.fail_at(d.at.offset, "a '*' dimension must be the first");
      return dim_name(d);
    }
    if (in_.accept_word("_")) return true;
    if (!in_.at_number()) {
      d.kind = Dim::Kind::kNamed;
      return dim_name(d);
    }
    if (!in_.integer("a size", d.number)) return false;
    if (in_.accept('*')) {
      d.kind = Dim::Kind::kNamed;
      if (d.number < 1 || d.number > kMaxFactor)
        return in_.fail_at(d.at.offset, "a factor is between 1 and {}", kMaxFactor);
      return dim_name(d);
    }
    d.kind = Dim::Kind::kConstant;
    return d.number >= 0 || in_.fail_at(d.at.offset, "a size is not negative");
  }

  bool dim_name(Dim& d) {
    if (!in_.name("a dimension: name, k*name, a number, '_' or '*name'", d.name)) return false;
    d.broadcast = in_.accept('|');
    const size_t start = in_.at();
    int64_t one = 1;
    if (d.broadcast && !in_.integer("1 after '|'", one)) return false;
    return one == 1 || in_.fail_at(start, "expected 1 after '|'");
  }

  bool enumerators(Param& p) {
    if (!in_.expect('{', "and enumerators after 'enum'")) return false;
    const auto enumerator = [&] {
      const size_t start = in_.at();
      std::string e;
      if (!in_.name("an enumerator", e)) return false;
      if (e == "true" || e == "false" || e == "inf" || e == "nan")
        return in_.fail_at(start, "'{}' is a literal and cannot be an enumerator", e);
      if (base::contains(p.enumerators, e))
        return in_.fail_at(start, "enumerator '{}' is repeated", e);
      p.enumerators.push_back(std::move(e));
      return true;
    };
    return in_.list(enumerator) && in_.expect('}', "or ',' after an enumerator");
  }

  bool fallback(Param& p) {
    const size_t start = in_.at();
    const auto wrong = [&](const std::string& wanted) {
      in_.seek(start);
      return in_.expected(wanted + " as the default of '" + p.name + "'");
    };
    Scanner::Number n;
    switch (p.kind) {
      case Kind::kInt:
        if (!in_.at_number()) return wrong("an integer");
        if (!in_.number(n)) return false;
        p.fallback = n.i;
        return !n.is_float || wrong("an integer");
      case Kind::kFloat: {
        const bool minus = !in_.at_number() && in_.accept('-');
        const bool infinite = in_.accept_word("inf");
        if (!infinite && (minus || !in_.at_number())) return wrong("a number");
        if (!infinite && !in_.number(n)) return false;
        p.fallback = !infinite ? n.value() : minus ? -__builtin_inf() : __builtin_inf();
        return true;
      }
      case Kind::kBool: {
        const bool yes = in_.accept_word("true");
        p.fallback = yes;
        return yes || in_.accept_word("false") || wrong("true or false");
      }
      case Kind::kString:
        if (in_.peek() != '"') return wrong("a string in double quotes");
        return in_.quoted(p.fallback.emplace<std::string>());
      default: {
        const auto e = std::ranges::find(p.enumerators, in_.word());
        if (e == p.enumerators.end()) return wrong(base::one_of(p.enumerators));
        p.fallback = static_cast<int64_t>(e - p.enumerators.begin());
        return true;
      }
    }
  }

  bool clause(const Schema& s, Clause& c) {
    c.at = {in_.at()};
    if (is_variable(in_.peek_word())) {
      c.kind = Clause::Kind::kDTypes;
      return in_dtypes(c.left, c.dtypes);
    }
    if (!term(c.left)) return false;
    const std::string_view verb = in_.peek_word();
    static constexpr std::pair<std::string_view, Clause::Kind> kVerbs[] = {
        {"iff", Clause::Kind::kIff},
        {"or", Clause::Kind::kOr},
        {"may_alias", Clause::Kind::kMayAlias}};
    const auto after_name = [&] {
      if (!c.left.name.empty() && c.left.number == 1) return !in_.word().empty();
      return in_.fail("expected a parameter name before '{}'", verb);
    };
    if (verb == "in") return after_name() && elements(c) && guard(c);
    for (const auto& [name, kind] : kVerbs) {
      if (verb != name) continue;
      if (!after_name()) return false;
      c.kind = kind;
      c.right.at = {in_.at()};
      if (kind == Clause::Kind::kIff && is_variable(in_.peek_word())) {
        c.kind = Clause::Kind::kIffDTypes;
        return in_dtypes(c.right, c.dtypes);
      }
      return in_.name("a parameter name", c.right.name);
    }
    if (in_.peek() == '%' ? !multiple(c) : !comparison(s, c)) return false;
    return guard(c);
  }

  static bool is_variable(std::string_view w) { return !w.empty() && w[0] >= 'A' && w[0] <= 'Z'; }

  // Parses VARIABLE 'in' dtypes.
  bool in_dtypes(Term& variable, std::vector<DType>& dtypes) {
    variable.at = {in_.at()};
    variable.name = std::string(in_.word());
    if (!in_.accept_word("in")) return in_.expected("'in' after the dtype variable");
    const auto dtype = [&] {
      const size_t start = in_.at();
      DType t;
      if (!in_.dtype(t)) return false;
      if (base::contains(dtypes, t))
        return in_.fail_at(start, "dtype '{}' is repeated", yard::to_string(t));
      dtypes.push_back(t);
      return true;
    };
    return in_.expect('{', "and dtypes after 'in'") && in_.list(dtype) &&
           in_.expect('}', "or ',' after a dtype");
  }

  // Parses the interval after 'in'.
  bool elements(Clause& c) {
    c.kind = Clause::Kind::kElements;
    if (!in_.expect('[', "and an interval after 'in'") ||
        !in_.integer("a whole number", c.left.number) ||
        !in_.expect(',', "and a bound after the least value") || !term(c.right))
      return false;
    if (!c.right.name.empty() && in_.accept('*') && !in_.name("a name", c.factor)) return false;
    c.compare = in_.accept(']') ? Compare::kLe : Compare::kLt;
    return c.compare == Compare::kLe || in_.expect(')', "or ']' after the bound");
  }

  bool term(Term& t) {
    t.at = {in_.at()};
    if (in_.at_number()) {
      if (!in_.integer("a whole number", t.number)) return false;
      if (!in_.accept('*')) return true;
    }
    return in_.name("a name or a number", t.name);
  }

  bool multiple(Clause& c) {
    c.kind = Clause::Kind::kMultiple;
    if (c.left.name.empty() || c.left.number != 1)
      return in_.fail_at(c.left.at.offset, "expected a name before '%'");
    in_.accept('%');
    c.right.at = {in_.at()};
    if (in_.at_number()) {
      if (!in_.integer("a number after '%'", c.right.number)) return false;
      if (c.right.number < 1) return in_.fail_at(c.right.at.offset, "a divisor is at least 1");
    } else if (!in_.name("a name or a number after '%'", c.right.name)) {
      return false;
    }
    if (!in_.accept("==")) return in_.expected("'== 0' after the divisor");
    const size_t zero = in_.at();
    int64_t rest = 0;
    if (!in_.integer("0", rest)) return false;
    return rest == 0 || in_.fail_at(zero, "expected 0: name % k == 0");
  }

  bool comparison(const Schema& s, Clause& c) {
    const Param* const p = c.left.number == 1 ? s.find(c.left.name) : nullptr;
    const bool is_float = p != nullptr && p->kind == Kind::kFloat;
    c.kind = is_float ? Clause::Kind::kFloat : Clause::Kind::kCompare;
    // A longer operator comes before its prefixes.
    for (const Compare compare :
         {Compare::kEq, Compare::kNe, Compare::kLe, Compare::kGe, Compare::kLt, Compare::kGt}) {
      if (!in_.accept(to_string(compare))) continue;
      c.compare = compare;
      if (!is_float) return term(c.right);
      if (!in_.at_number()) return in_.expected("a number to compare '" + c.left.name + "' with");
      Scanner::Number n;
      if (!in_.number(n)) return false;
      c.bound = n.value();
      return true;
    }
    return in_.expected("a comparison (== != < <= > >=), '%', 'in', 'iff', 'or' or 'may_alias'");
  }

  bool guard(Clause& c) {
    c.guard = in_.accept_word("if")       ? Clause::Guard::kIf
              : in_.accept_word("unless") ? Clause::Guard::kUnless
                                          : Clause::Guard::kNone;
    if (c.guard == Clause::Guard::kNone) return true;
    c.guard_at = {in_.at()};
    return in_.name("a parameter name", c.guard_param);
  }

  Scanner& in_;
};

}  // namespace

Result<Schema> parse_schema(std::string_view text) {
  Scanner in(text, "schema");
  Schema s;
  if (!SchemaParser(in).schema(s) || !check_schema(s, in)) return in.take_status();
  return s;
}

}  // namespace yard::op
