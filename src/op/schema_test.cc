// SPDX-License-Identifier: Apache-2.0
// Tests every production of the schema grammar, its canonical text, and the table of wrong schemas.
#include "op/schema.h"

#include <gtest/gtest.h>

#include "op/testing.h"

namespace yard::op {
namespace {

Schema parsed_schema(std::string_view text) {
  Result<Schema> s = parse_schema(text);
  EXPECT_TRUE(s.ok()) << s.status().to_string();
  return s.ok() ? *s : Schema{};
}

TEST(Schema, RmsNorm) {
  const Schema s = parsed_schema(kRmsNorm);
  EXPECT_EQ(s.name, "rms_norm");
  ASSERT_EQ(s.params.size(), 4u);
  const Param& out = s.params[0];
  EXPECT_EQ(out.access, Access::kWrite);
  EXPECT_TRUE(out.is_output());
  EXPECT_EQ(out.variable, "T");
  EXPECT_EQ(out.dims[0].kind, Dim::Kind::kLeading);
  EXPECT_EQ(out.dims[0].name, "rows");
  EXPECT_EQ(out.dims[1].name, "hidden");
  EXPECT_EQ(out.trailing(), 1u);
  EXPECT_EQ(std::get<double>(s.params[3].fallback), 1e-6);
  ASSERT_EQ(s.clauses.size(), 1u);
  EXPECT_EQ(s.clauses[0].kind, Clause::Kind::kMayAlias);
  EXPECT_EQ(s.index_of("weight"), 2);
  EXPECT_EQ(s.index_of("nobody"), -1);
}

TEST(Schema, Marks) {
  const Schema s = parsed_schema("f(a!: T[n], b~: T[n], c: T[n], d?: T[n], e!?: T[n], g~?: T[n])");
  EXPECT_EQ(s.params[1].access, Access::kReadWrite);
  EXPECT_TRUE(s.params[1].is_written());
  EXPECT_FALSE(s.params[1].is_output());
  EXPECT_TRUE(s.params[3].optional);
  EXPECT_TRUE(s.params[4].optional && s.params[4].is_output());
  EXPECT_TRUE(s.params[5].optional && s.params[5].access == Access::kReadWrite);
}

TEST(Schema, DimsAndTypes) {
  const Schema s = parsed_schema(
      "f(a: f32[], b: bf16[2*d, 128, _, d|1], c: i64[*r, d], e: T[*r|1, n|1][], g: T[n], n: int)");
  EXPECT_EQ(s.params[0].dtype, DType::f32);
  EXPECT_TRUE(s.params[0].dims.empty());
  const auto& b = s.params[1].dims;
  EXPECT_EQ(b[0].number, 2);
  EXPECT_EQ(b[1].kind, Dim::Kind::kConstant);
  EXPECT_EQ(b[1].number, 128);
  EXPECT_EQ(b[2].kind, Dim::Kind::kAny);
  EXPECT_TRUE(b[3].broadcast);
  EXPECT_EQ(s.params[3].kind, Kind::kTensorList);
  EXPECT_TRUE(s.params[3].dims[0].broadcast);
}

TEST(Schema, Scalars) {
  const Schema s = parsed_schema(
      R"(f(a: int = -3, b: float = 2, c: bool = true, d: string = "x\"y",
           e: enum{none, tanh} = tanh, g: float = -inf, h: int, i: enum{one}))");
  EXPECT_EQ(std::get<int64_t>(s.params[0].fallback), -3);
  EXPECT_EQ(std::get<double>(s.params[1].fallback), 2.0);
  EXPECT_EQ(std::get<bool>(s.params[2].fallback), true);
  EXPECT_EQ(std::get<std::string>(s.params[3].fallback), "x\"y");
  EXPECT_EQ(std::get<int64_t>(s.params[4].fallback), 1);
  EXPECT_EQ(s.params[6].fallback.index(), 0u);
}

TEST(Schema, Clauses) {
  const Schema s = parsed_schema(
      "f(x: T[*r, n], y?: T[m], z?: T[m], k: int) where T in {f32, bfloat16}, n % 8 == 0 if y, "
      "2*m <= n unless z, k > -1, r != 3*k, y iff z, y or z, 4 >= m");
  ASSERT_EQ(s.clauses.size(), 8u);
  EXPECT_EQ(s.clauses[0].dtypes, (std::vector<DType>{DType::f32, DType::bf16}));
  EXPECT_EQ(s.clauses[1].kind, Clause::Kind::kMultiple);
  EXPECT_EQ(s.clauses[1].guard, Clause::Guard::kIf);
  EXPECT_EQ(s.clauses[2].guard, Clause::Guard::kUnless);
  EXPECT_EQ(s.clauses[2].left.number, 2);
  EXPECT_EQ(s.clauses[3].right.number, -1);
  EXPECT_EQ(s.clauses[4].compare, Compare::kNe);
}

TEST(Schema, ClausesAboutOptionalsAndElements) {
  const Schema s = parsed_schema(
      "f(x: T[n, m], y?: f32[m], ids: I[n]) where I in {i32, i64}, n % m == 0 unless y, "
      "y iff T in {i8, u8}, ids in [0, m), ids in [-1, 2*n*m] if y, ids in [0, 9)");
  ASSERT_EQ(s.clauses.size(), 6u);
  EXPECT_EQ(s.clauses[1].kind, Clause::Kind::kMultiple);
  EXPECT_EQ(s.clauses[1].right.name, "m");
  EXPECT_EQ(s.clauses[1].guard, Clause::Guard::kUnless);
  EXPECT_EQ(s.clauses[2].kind, Clause::Kind::kIffDTypes);
  EXPECT_EQ(s.clauses[2].right.name, "T");
  EXPECT_EQ(s.clauses[2].dtypes, (std::vector<DType>{DType::i8, DType::u8}));
  EXPECT_EQ(s.clauses[3].kind, Clause::Kind::kElements);
  EXPECT_EQ(s.clauses[3].compare, Compare::kLt);
  EXPECT_EQ(s.clauses[4].left.number, -1);
  EXPECT_EQ(s.clauses[4].right.number, 2);
  EXPECT_EQ(s.clauses[4].factor, "m");
  EXPECT_EQ(s.clauses[4].compare, Compare::kLe);
  EXPECT_EQ(s.clauses[4].guard, Clause::Guard::kIf);
  EXPECT_EQ(s.clauses[5].right.number, 9);
}

TEST(Schema, RemaindersAreDefinedForAllDivisors) {
  EXPECT_EQ(remainder(7, 3), 1);
  EXPECT_EQ(remainder(-6, 3), 0);
  EXPECT_EQ(remainder(7, 0), 7);
  EXPECT_EQ(remainder(0, 0), 0);
  EXPECT_EQ(remainder(INT64_MIN, -1), 0);
}

TEST(Schema, CanonicalText) {
  for (const auto& [text, canonical] : {
           std::pair<std::string_view, std::string_view>{"f()", "f()"},
           {" a.b_1 ( x:T [ n ] )", "a.b_1(x: T[n])"},
           {"f(x!?:float32[*r,2*n,_,4],y:half[*r|1,n|1][],z:half[*r,n])where n%8==0",
            "f(x!?: f32[*r, 2*n, _, 4], y: f16[*r|1, n|1][], z: f16[*r, n]) where n % 8 == 0"},
           {"f(a:float=1,b:float=0.000001,c:float=1e+20)",
            "f(a: float = 1.0, b: float = 1e-6, c: float = 1e20)"},
           {"f(x: T[1*n], y~: bool[n])", "f(x: T[n], y~: bool[n])"},
           {"f(x:T[n])where\n T in{f32},2 * n<=8", "f(x: T[n]) where T in {f32}, 2*n <= 8"},
           {"f(x:T[n,m],y?:T[n],i:i32[n])where n%m==0 if y,y iff T in{i8},i in[0,2*n*m],i in[1,n)",
            "f(x: T[n, m], y?: T[n], i: i32[n]) where n % m == 0 if y, y iff T in {i8}, "
            "i in [0, 2*n*m], i in [1, n)"},
       }) {
    const Schema s = parsed_schema(text);
    EXPECT_EQ(to_string(s), canonical);
    EXPECT_EQ(parsed_schema(canonical), s);
  }
}

TEST(Schema, BuiltInOnesRoundTrip) {
  for (const char* text : kBuiltIn) {
    const Schema s = parsed_schema(text);
    EXPECT_EQ(to_string(s), text);
    EXPECT_EQ(parsed_schema(to_string(s)), s);
  }
}

struct WrongSchemaCase {
  const char* text;
  size_t column;
  const char* message;
};

class WrongSchema : public testing::TestWithParam<WrongSchemaCase> {};

TEST_P(WrongSchema, PointsAtTheColumn) {
  const WrongSchemaCase& w = GetParam();
  const Result<Schema> s = parse_schema(w.text);
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.status().code(), Code::kParse);
  const std::string message(s.status().message());
  EXPECT_NE(message.find(w.message), std::string::npos) << message;
  EXPECT_EQ(message.find("schema, column " + std::to_string(w.column) + ": "), 0u) << message;
  const std::string caret = "\n  " + std::string(w.column - 1, ' ') + "^";
  EXPECT_EQ(message.substr(message.size() - caret.size()), caret) << message;
}

INSTANTIATE_TEST_SUITE_P(
    Form, WrongSchema,
    testing::Values(
        WrongSchemaCase{"", 1, "expected the name of an op, got the end"},
        WrongSchemaCase{"Rms(x: T[n])", 1, "names are lower-case"},
        WrongSchemaCase{"f", 2, "expected '(' after the name of the op, got the end"},
        WrongSchemaCase{"f.(x: T[n])", 3, "expected letters, digits or '_' after '.'"},
        WrongSchemaCase{"f(x)", 4, "expected ':' and a type after the parameter's name, got ')'"},
        WrongSchemaCase{"f(x: )", 6, "expected a type"},
        WrongSchemaCase{"f(x: f23[n])", 6, "did you mean 'f32'?"},
        WrongSchemaCase{"f(x: flaot)", 6, "did you mean 'float'?"},
        WrongSchemaCase{"f(x: T)", 7, "expected '[' and dimensions after the dtype, got ')'"},
        WrongSchemaCase{"f(x: T[n)", 9, "expected ']' or ',' after a dimension, got ')'"},
        WrongSchemaCase{"f(x: T[n,])", 10, "expected a dimension"},
        WrongSchemaCase{"f(x: T[n, *r])", 11, "a '*' dimension must be the first"},
        WrongSchemaCase{"f(x: T[0*n])", 8, "a factor is between 1 and 65535"},
        WrongSchemaCase{"f(x: T[70000*n])", 8, "a factor is between 1 and 65535"},
        WrongSchemaCase{"f(x: T[-1])", 8, "a size is not negative"},
        WrongSchemaCase{"f(x: T[1.5])", 8, "expected a size, got a number with a fraction"},
        WrongSchemaCase{"f(x: T[8n])", 8, "is malformed"},
        WrongSchemaCase{"f(x: T[99999999999999999999])", 8, "is out of range"},
        WrongSchemaCase{"f(x: T[n|2])", 10, "expected 1 after '|'"},
        WrongSchemaCase{"f(x: T[N])", 8, "expected a dimension"},
        WrongSchemaCase{"f(x: T[n][)", 11, "to close the '[]' of a tensor list"},
        WrongSchemaCase{"f(x?!: T[n])", 5, "'!' or '~' comes first"},
        WrongSchemaCase{"f(x!!: T[n])", 5, "'!' or '~' comes first"},
        WrongSchemaCase{"f(x?: int)", 4, "a scalar takes no '?'"},
        WrongSchemaCase{"f(x!: float)", 4, "a scalar takes no '!' or '~'"},
        WrongSchemaCase{"f(x: T[n] = 3)", 11, "a tensor has no default"},
        WrongSchemaCase{"f(x: int = 1.5)", 12,
                        "expected an integer as the default of 'x', got '1'"},
        WrongSchemaCase{"f(x: int = true)", 12,
                        "expected an integer as the default of 'x', got 'true'"},
        WrongSchemaCase{"f(x: float = yes)", 14,
                        "expected a number as the default of 'x', got 'yes'"},
        WrongSchemaCase{"f(x: float = nan)", 14,
                        "expected a number as the default of 'x', got 'nan'"},
        WrongSchemaCase{"f(x: bool = 1)", 13,
                        "expected true or false as the default of 'x', got '1'"},
        WrongSchemaCase{"f(x: string = abc)", 15,
                        "expected a string in double quotes as the default of"},
        WrongSchemaCase{"f(x: string = \"abc)", 20, "no closing"},
        WrongSchemaCase{"f(x: string = \"a\\qc\")", 17, "escapes are"},
        WrongSchemaCase{"f(x: enum{a, b} = c)", 19,
                        "expected a or b as the default of 'x', got 'c'"},
        WrongSchemaCase{"f(x: enum{a, a})", 14, "enumerator 'a' is repeated"},
        WrongSchemaCase{"f(x: enum{true})", 11, "cannot be an enumerator"},
        WrongSchemaCase{"f(x: enum{})", 11, "expected an enumerator"},
        WrongSchemaCase{"f(*xs: T[n])", 3, "variadics are not supported"},
        WrongSchemaCase{"f(...)", 3, "variadics are not supported"},
        WrongSchemaCase{"f(x: T[n],)", 11, "expected a parameter name"},
        WrongSchemaCase{"f(x: T[n]) were", 12, "expected 'where' or the end, got 'were'"},
        WrongSchemaCase{"f(x: T[n]) where", 17, "expected a name or a number, got the end"},
        WrongSchemaCase{"f(x: T[n]) where n", 19, "expected a comparison"},
        WrongSchemaCase{"f(x: T[n]) where n = 3", 20, "expected a comparison"},
        WrongSchemaCase{"f(x: T[n]) where n % 0 == 0", 22, "a divisor is at least 1"},
        WrongSchemaCase{"f(x: T[n]) where n % 8 == 1", 27, "expected 0"},
        WrongSchemaCase{"f(x: T[n]) where 2*n % 8 == 0", 18, "expected a name before '%'"},
        WrongSchemaCase{"f(x: T[n]) where n % T == 0", 22, "expected a name or a number after"},
        WrongSchemaCase{"f(x: i8[n]) where x in {i8}", 24, "expected '[' and an interval"},
        WrongSchemaCase{"f(x: i8[n]) where 2*x in [0, n)", 23, "expected a parameter name before"},
        WrongSchemaCase{"f(x: i8[n]) where x in [n, 3)", 25, "expected a whole number"},
        WrongSchemaCase{"f(x: i8[n]) where x in [0; n)", 26, "expected ',' and a bound"},
        WrongSchemaCase{"f(x: i8[n]) where x in [0, n}", 29, "expected ')' or ']' after the bound"},
        WrongSchemaCase{"f(x: i8[n]) where x in [0, 2*3)", 30, "expected a name or a number"},
        WrongSchemaCase{"f(x: T[n]) where T is {f32}", 20, "expected 'in'"},
        WrongSchemaCase{"f(x: T[n]) where T in {f32, float32}", 29, "is repeated"},
        WrongSchemaCase{"f(x: T[n]) where T in {flt32}", 24, "expected a dtype"},
        WrongSchemaCase{"f(x: T[n]) where T in {bf61}", 24, "did you mean 'bf16'?"},
        WrongSchemaCase{"f(x: T[n]) where n == 1 n == 2", 25, "expected ',' or the end"}));

INSTANTIATE_TEST_SUITE_P(
    Meaning, WrongSchema,
    testing::Values(
        WrongSchemaCase{"f(x: T[n], x: T[n])", 12, "two parameters are called 'x'"},
        WrongSchemaCase{"f(in: T[n])", 3, "'in' is a reserved word"},
        WrongSchemaCase{"f(x: T[where])", 8, "'where' is a reserved word"},
        WrongSchemaCase{"f(x: T[y], y: T[n])", 8,
                        "'y' is a parameter; only an int parameter can be a dimension"},
        WrongSchemaCase{"f(x: T[e], e: enum{a})", 8, "only an int parameter"},
        WrongSchemaCase{"f(x: T[*k], k: int)", 8, "'k' is a parameter"},
        WrongSchemaCase{"f(x: T[*r], y: T[r])", 18, "'r' is used for leading dimensions"},
        WrongSchemaCase{"f(x!: T[n|1], y: T[n])", 9, "is written and cannot be broadcast"},
        WrongSchemaCase{"f(x: T[n|1])", 8, "'n|1' needs a 'n'"},
        WrongSchemaCase{"f(x: T[*r|1, n])", 8, "'*r|1' needs a '*r'"},
        WrongSchemaCase{"f(x: T[n|1], y?: T[n], z: T[n][])", 8, "neither optional nor a list"},
        WrongSchemaCase{"f(x!: T[n], y: U[n])", 3, "dtype variable 'T' occurs only in outputs"},
        WrongSchemaCase{"f(x: T[n]) where n % m == 0", 22, "is called 'm'"},
        WrongSchemaCase{"f(x: T[n]) where x iff T in {i8}", 18, "'x' is not optional"},
        WrongSchemaCase{"f(x?: T[n]) where x iff U in {i8}", 25, "no parameter has the dtype 'U'"},
        WrongSchemaCase{"f(x: f32[n]) where x in [0, n)", 20, "'x' is not a tensor of integers"},
        WrongSchemaCase{"f(x: T[n]) where x in [0, n)", 18, "'x' is not a tensor of integers"},
        WrongSchemaCase{"f(x!: i8[n]) where x in [0, n)", 20, "'x' is not a tensor of integers"},
        WrongSchemaCase{"f(x: i8[n]) where y in [0, n)", 19, "no parameter is called 'y'"},
        WrongSchemaCase{"f(x: i8[n]) where x in [0, n*m)", 28, "is called 'm'"},
        WrongSchemaCase{"f(x: i8[n]) where x in [0, n) if x", 34, "'x' is not optional"},
        WrongSchemaCase{"f(x: T[n]) where U in {f32}", 18, "no parameter has the dtype 'U'"},
        WrongSchemaCase{"f(x: T[n]) where T in {f32}, T in {f16}", 30,
                        "a second set of dtypes for 'T'"},
        WrongSchemaCase{"f(x: T[n]) where m == 1", 18,
                        "no dimension or int parameter is called 'm'"},
        WrongSchemaCase{"f(x: T[hidden]) where hiden == 1", 23, "did you mean 'hidden'?"},
        WrongSchemaCase{"f(x: T[n]) where x == 1", 18, "'x' is neither a dimension nor an int"},
        WrongSchemaCase{"f(x: T[n]) where 1 == 2", 18, "a comparison of two constants"},
        WrongSchemaCase{"f(x: T[n], a: float) where a > n", 32,
                        "expected a number to compare 'a' with, got 'n'"},
        WrongSchemaCase{"f(x: T[n], a: float) where 0 < a", 32,
                        "'a' is a float: expected 'a < 1.5'"},
        WrongSchemaCase{"f(x: T[n], a: float) where 2*a > 1", 28, "'a' is a float"},
        WrongSchemaCase{"f(x: T[n], a: float) where a > 1e999", 32, "out of range"},
        WrongSchemaCase{"f(x: T[n], a: float) where a > 1 if x", 37, "'x' is not optional"},
        WrongSchemaCase{"f(x: T[n]) where n == 1 if x", 28, "'x' is not optional"},
        WrongSchemaCase{"f(x: T[n]) where n == 1 unless y", 32, "no parameter is called 'y'"},
        WrongSchemaCase{"f(x?: T[n], y: T[n]) where x iff y", 34, "'y' is not optional"},
        WrongSchemaCase{"f(x: T[n], y: T[n]) where x may_alias y", 27,
                        "'x' is not an output tensor"},
        WrongSchemaCase{"f(x!: T[n], y~: T[n]) where x may_alias y", 41,
                        "'y' is not a read-only tensor"},
        WrongSchemaCase{"f(x: T[a,b,c,d,e,f,g,h,i])", 3, "more than 8 dimensions"},
        WrongSchemaCase{
            "f(a:int,b:int,c:int,d:int,e:int,f:int,g:int,h:int,i:int,j:int,k:int,l:int,m:int,n:int,"
            "o:int,p:int,q:int,r:int,s:int,t:int,u:int,v:int,w:int,x:int,y:int)",
            147, "at most 24 parameters"},
        WrongSchemaCase{
            "f(x: U[], a?: T[n], b?: T[n], c?: T[n], d?: T[n], e?: T[n], g?: T[n], h?: T[n])", 17,
            "more than 6 parameters, all of them optional"}));

TEST(Schema, NumbersAreComparedWithConstants) {
  const Schema s =
      parse_schema("f(x?: T[n], a: float) where a>=0, a < 3.4028235e38, a != -1.5 if x").value();
  ASSERT_EQ(s.clauses.size(), 3u);
  EXPECT_EQ(s.clauses[1].kind, Clause::Kind::kFloat);
  EXPECT_EQ(s.clauses[1].bound, 3.4028235e38);
  EXPECT_EQ(parse_schema(to_string(s)).value(), s) << to_string(s);
}

TEST(Schema, ErrorsInTextOfSeveralLines) {
  const Result<Schema> s = parse_schema("f(\n  x: T[n],\n  y: Q\n)");
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(
      s.status().message(),
      "schema, line 4, column 1: expected '[' and dimensions after the dtype, got ')'\n  )\n  ^");
}

}  // namespace
}  // namespace yard::op
