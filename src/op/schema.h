// SPDX-License-Identifier: Apache-2.0
// The schema of an op: what its calls look like, in one line.
//
//   rms_norm(out!: T[*rows, hidden], x: T[*rows, hidden], weight: T[hidden], eps: float = 1e-6)
//       where out may_alias x
//
// Grammar (blanks and newlines between tokens are free):
//
//   schema  := op '(' [param {',' param}] ')' ['where' clause {',' clause}]
//   op      := [a-z][a-z0-9_]* {'.' [a-z0-9_]+}
//   name    := [a-z][a-z0-9_]*                   (in if iff or unless where may_alias are reserved)
//   param   := name ['!' | '~'] ['?'] ':' type ['=' default]
//   type    := dtype '[' [dim {',' dim}] ']' ['[' ']']
//            | 'int' | 'float' | 'bool' | 'string' | 'enum' '{' name {',' name} '}'
//   dtype   := a dtype (f32, bf16, ...) | VARIABLE       VARIABLE := [A-Z][A-Za-z0-9_]*
//   dim     := '_' | INT | '*' name ['|' '1'] | [INT '*'] name ['|' '1']      ('*' name only first)
//   clause  := VARIABLE 'in' dtypes | name 'in' '[' INT ',' term ['*' name] (']' | ')') [guard]
//            | name '%' (INT | name) '==' '0' [guard] | term cmp term [guard]
//            | name cmp NUMBER [guard]
//            | name 'iff' name | name 'iff' VARIABLE 'in' dtypes | name 'or' name
//            | name 'may_alias' name                      dtypes := '{' dtype {',' dtype} '}'
//   term    := INT | [INT '*'] name    cmp := == != < <= > >=    guard := ('if' | 'unless') name
//
// docs/reference/schema.md describes the meaning. Schemas are plain values. parse_schema() checks
// meaning as well as form, so a Schema that it returns is valid.
#pragma once

#include <yard/tensor.h>

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

namespace yard::op {

// An offset in the parsed text, for error messages. All positions compare equal.
struct Position {
  size_t offset = 0;
  friend bool operator==(Position, Position) noexcept { return true; }
};

struct Dim {
  enum class Kind : uint8_t {
    kNamed,     // d, 2*d
    kConstant,  // 128
    kAny,       // _
    kLeading,   // *rows
  };
  Kind kind = Kind::kAny;
  bool broadcast = false;  // |1
  int64_t number = 1;      // the factor of a named dimension, the size of a constant one
  std::string name;
  Position at;
  bool operator==(const Dim&) const = default;
};

enum class Access : uint8_t { kRead, kWrite, kReadWrite };
enum class Kind : uint8_t { kTensor, kTensorList, kInt, kFloat, kBool, kString, kEnum };

// The default of a scalar; for enums, the index of the enumerator. monostate if there is none.
using Default = std::variant<std::monostate, int64_t, double, bool, std::string>;

struct Param {
  std::string name;
  Kind kind = Kind::kTensor;
  Access access = Access::kRead;
  bool optional = false;
  DType dtype = DType::invalid;  // of a tensor whose dtype is fixed
  std::string variable;          // of any other tensor
  std::vector<Dim> dims;
  std::vector<std::string> enumerators;
  Default fallback;
  Position at;

  bool is_tensor() const noexcept { return kind == Kind::kTensor || kind == Kind::kTensorList; }
  bool is_output() const noexcept { return access == Access::kWrite; }
  bool is_written() const noexcept { return access != Access::kRead; }
  // Whether it is a single tensor that every call gives.
  bool is_required() const noexcept { return kind == Kind::kTensor && !optional; }
  bool has_leading() const noexcept { return !dims.empty() && dims[0].kind == Dim::Kind::kLeading; }
  // The number of dimensions other than the leading group.
  size_t trailing() const noexcept { return dims.size() - (has_leading() ? 1 : 0); }
  bool operator==(const Param&) const = default;
};

// `number`, or `number * name`.
struct Term {
  int64_t number = 1;
  std::string name;
  Position at;
  bool operator==(const Term&) const = default;
};

// Like value % divisor, but returns value when divisor is 0. Defined for all values.
inline int64_t remainder(int64_t value, int64_t divisor) noexcept {
  if (divisor == 0) return value;
  return divisor == -1 ? 0 : value % divisor;
}

enum class Compare : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe };
template <class Number>
bool compares(Number left, Compare c, Number right) noexcept {
  switch (c) {
    case Compare::kEq: return left == right;
    case Compare::kNe: return left != right;
    case Compare::kLt: return left < right;
    case Compare::kLe: return left <= right;
    case Compare::kGt: return left > right;
    case Compare::kGe: return left >= right;
  }
  return false;
}

struct Clause {
  enum class Kind : uint8_t {
    kDTypes,     // left.name in {dtypes}
    kElements,   // elements of left.name in [left.number, right * factor); with kLe, also the bound
    kMultiple,   // left.name % right == 0
    kCompare,    // left compare right
    kFloat,      // left.name compare bound, of a float parameter
    kIff,        // left.name iff right.name
    kIffDTypes,  // left.name iff right.name in {dtypes}
    kOr,         // left.name or right.name
    kMayAlias,   // left.name may_alias right.name
  };
  enum class Guard : uint8_t { kNone, kIf, kUnless };
  Kind kind = Kind::kCompare;
  Compare compare = Compare::kEq;
  Guard guard = Guard::kNone;
  Term left, right;
  double bound = 0;    // of kFloat
  std::string factor;  // the second name in the bound of kElements, or empty
  std::vector<DType> dtypes;
  std::string guard_param;
  Position at, guard_at;
  bool operator==(const Clause&) const = default;
};

struct Schema {
  std::string name;
  std::vector<Param> params;
  std::vector<Clause> clauses;

  // Returns -1 if the schema has no such parameter.
  int index_of(std::string_view param) const noexcept;
  // Returns null if the schema has no such parameter.
  const Param* find(std::string_view param) const noexcept;
  std::vector<std::string> param_names() const;
  // Returns the dtypes that a clause gives a variable, or null if no clause does.
  const std::vector<DType>* dtypes_of(std::string_view variable) const noexcept;
  // Whether a parameter that is not a pure output has the dtype variable.
  bool reads_variable(std::string_view variable) const noexcept;
  bool operator==(const Schema&) const = default;
};

// Failures are Code::kParse. The message names the place and shows the line with a caret below it.
Result<Schema> parse_schema(std::string_view text);

// Checks what the grammar cannot express, and reports the first error to the scanner of the text.
class Scanner;
bool check_schema(const Schema& schema, Scanner& in);

// Returns the canonical text. parse_schema(to_string(s)) == s for every valid schema.
std::string to_string(const Schema& schema);
std::string to_string(const Dim& dim);
std::string to_string(const Param& param);
std::string to_string(const Clause& clause);
const char* to_string(Compare c) noexcept;
// Returns the word for a kind of scalars, or "" for tensors.
const char* to_string(Kind scalar) noexcept;
// Returns a parameter's type as in a schema, such as "T[*rows, hidden]" or "enum{a, b}".
std::string type_text(const Param& param);

// The largest factor in `k*d`.
inline constexpr int64_t kMaxFactor = 65535;
// The limit of named dimensions, integers and dtype variables. Leading groups count twice.
inline constexpr size_t kMaxNames = 64;
// The limit of optional or list parameters that bind a name which no required parameter binds.
inline constexpr size_t kMaxSources = 6;

}  // namespace yard::op
