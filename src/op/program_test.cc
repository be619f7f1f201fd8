// SPDX-License-Identifier: Apache-2.0
// Tests queries of a compiled schema, which calls fit, and fields.
#include "op/program.h"

#include <gtest/gtest.h>

#include "op/testing.h"

namespace yard::op {
namespace {

// Returns fits(), after checking that explain_mismatch() agrees.
int32_t fit(const Program& p, const std::vector<yard_value_t>& args) {
  const auto n = static_cast<uint32_t>(args.size());
  const int32_t r = p.tags_fit(args.data(), n) ? p.fits(args.data()) : -1;
  const Status why = p.explain_mismatch(args.data(), n);
  EXPECT_EQ(why.ok(), r >= 0) << why.to_string();
  return r;
}

TEST(Program, Queries) {
  const Program p = compiled(kRotary);
  EXPECT_EQ(p.name(), "rotary_embedding");
  EXPECT_EQ(p.arg_count(), 8u);
  EXPECT_EQ(p.signature(), "tttttifi");
  EXPECT_EQ(p.index_of("sin"), 4);
  EXPECT_TRUE(p.outputs().empty());
  EXPECT_TRUE(p.has_inout());
  const Program r = compiled(kRmsNorm);
  EXPECT_EQ(r.signature(), "tttf");
  ASSERT_EQ(r.outputs().size(), 1u);
  EXPECT_EQ(r.outputs()[0], 0);
  EXPECT_FALSE(r.has_inout());
  EXPECT_TRUE(r.may_alias(0, 1));
  EXPECT_FALSE(r.may_alias(0, 2));
  EXPECT_EQ(compiled("f(a: T[n][], b: bool, c: string, d: enum{x})").signature(), "vbvi");
}

TEST(Program, CompilesSchemasBuiltManually) {
  Schema s = *parse_schema(kSiluAndMul);
  EXPECT_TRUE(Program::compile(to_string(s)).ok());
  s.params[1].name = "out";
  EXPECT_EQ(Program::compile(to_string(s)).status().code(), Code::kParse);
}

TEST(Program, CopiesShareAndOutlive) {
  std::optional<Program> copy;
  {
    const Program p = compiled(kRmsNorm);
    copy = p;
  }
  Values v;
  EXPECT_EQ(fit(*copy, {v.f32({2, 4}), v.f32({2, 4}), v.f32({4}), number(0)}), 0);
}

TEST(Fits, RmsNormOfEveryRank) {
  const Program p = compiled(kRmsNorm);
  Values v;
  for (const auto& shape : std::vector<std::vector<int64_t>>{
           {4}, {2, 4}, {3, 2, 4}, {1, 1, 2, 1, 2, 1, 2, 4}, {0, 4}, {2, 0, 4}}) {
    EXPECT_EQ(fit(p, {v.f32(shape), v.f32(shape), v.f32({4}), number(0)}), 0);
    EXPECT_EQ(fit(p, {v.f32(shape), v.f32(shape), v.f32({5}), number(0)}), -1);
  }
  EXPECT_EQ(fit(p, {v.f32({}), v.f32({}), v.f32({4}), number(0)}), -1);
  EXPECT_EQ(fit(p, {v.f32({2, 4}), v.f32({4, 2}), v.f32({4}), number(0)}), -1);
  EXPECT_EQ(fit(p, {v.f32({2, 4}), v.f32({1, 2, 4}), v.f32({4}), number(0)}), -1);
  EXPECT_EQ(fit(p, {v.f32({2, 4}), v.tensor(DType::f16, {2, 4}), v.f32({4}), number(0)}), -1);
  EXPECT_EQ(
      fit(p, {v.f32({2, 4}), v.f32({2, 4}), v.tensor(DType::f32, {4}, {}, {2, 0}), number(0)}), -1);
  EXPECT_EQ(fit(p, {v.f32({2, 4}), v.f32({2, 4}), v.f32({4})}), -1);
  EXPECT_EQ(fit(p, {v.f32({2, 4}), v.f32({2, 4}), v.f32({4}), integer(0)}), -1);
  EXPECT_EQ(fit(p, {v.f32({2, 4}), v.f32({2, 4}), none(), number(0)}), -1);
}

TEST(Fits, Aliasing) {
  const Program p = compiled(kRmsNorm);
  Values v;
  const yard_value_t x = v.f32({2, 4});
  auto* data = static_cast<char*>(x.u.tensor->data);
  EXPECT_EQ(fit(p, {x, x, v.f32({4}), number(0)}), static_cast<int32_t>(YARD_CALL_ALIASED));
  EXPECT_EQ(fit(p, {v.at(data, DType::f32, {2, 4}, {4, 1}), x, v.f32({4}), number(0)}),
            static_cast<int32_t>(YARD_CALL_ALIASED));
  EXPECT_EQ(fit(p, {v.at(data + 4, DType::f32, {2, 4}), x, v.f32({4}), number(0)}), -1) << "partly";
  EXPECT_EQ(fit(p, {v.at(data, DType::f32, {2, 4}, {8, 1}), x, v.f32({4}), number(0)}), -1)
      << "strides";
  EXPECT_EQ(fit(p, {v.f32({2, 4}), x, v.at(data, DType::f32, {4}), number(0)}), 0)
      << "inputs may share";
  EXPECT_EQ(fit(p, {x, v.f32({2, 4}), v.at(data, DType::f32, {4}), number(0)}), -1)
      << "not with weight";
  EXPECT_EQ(fit(p, {v.at(data + 32, DType::f32, {2, 4}), x, v.f32({4}), number(0)}), 0)
      << "right behind";
  const yard_value_t left = v.at(data, DType::f32, {2, 4}, {8, 1});
  const yard_value_t right = v.at(data + 16, DType::f32, {2, 4}, {8, 1});
  EXPECT_EQ(fit(p, {left, right, v.f32({4}), number(0)}), 0) << "halves of the same rows";
}

TEST(Fits, WrittenTensorsDoNotOverlapThemselves) {
  const Program p = compiled(kRmsNorm);
  Values v;
  const yard_value_t w = v.f32({4}), x = v.f32({2, 4});
  EXPECT_EQ(fit(p, {v.tensor(DType::f32, {2, 4}, {0, 1}), x, w, number(0)}), -1);
  EXPECT_EQ(fit(p, {v.tensor(DType::f32, {2, 4}, {3, 1}), x, w, number(0)}), -1);
  EXPECT_EQ(fit(p, {v.tensor(DType::f32, {2, 4}, {1, 2}), x, w, number(0)}), 0) << "transposed";
  EXPECT_EQ(fit(p, {v.tensor(DType::f32, {1, 4}, {0, 1}), v.f32({1, 4}), w, number(0)}), 0);
  EXPECT_EQ(fit(p, {v.f32({2, 4}), v.tensor(DType::f32, {2, 4}, {0, 1}), w, number(0)}), 0)
      << "input";
}

TEST(Fits, InOutNeverOverlaps) {
  const Program p = compiled(kAddRmsNorm);
  Values v;
  const yard_value_t a = v.f32({2, 4}), b = v.f32({2, 4}), c = v.f32({2, 4}), w = v.f32({4});
  EXPECT_EQ(fit(p, {a, b, c, w, number(0)}), 0);
  EXPECT_EQ(fit(p, {a, b, a, w, number(0)}), static_cast<int32_t>(YARD_CALL_ALIASED));
  EXPECT_EQ(fit(p, {a, a, c, w, number(0)}), -1);
  EXPECT_EQ(fit(p, {a, b, b, w, number(0)}), -1);
}

TEST(Fits, MetadataOverlapsNothing) {
  const Program p = compiled(kRmsNorm);
  Values v;
  const yard_value_t x = v.at(nullptr, DType::f32, {2, 4}), w = v.at(nullptr, DType::f32, {4});
  EXPECT_EQ(fit(p, {x, x, w, number(0)}), 0);
  const std::vector<yard_value_t> without = {v.f32({2, 4}), v.f32({2, 4}), w, number(0)};
  EXPECT_TRUE(p.has_null_data(without.data()));
  EXPECT_EQ(p.fits_live(without.data()), -1);
  const std::vector<yard_value_t> with = {v.f32({2, 4}), v.f32({2, 4}), v.f32({4}), number(0)};
  EXPECT_FALSE(p.has_null_data(with.data()));
  EXPECT_EQ(p.fits_live(with.data()), 0);
  const yard_value_t empty = v.at(nullptr, DType::f32, {0, 4});
  const std::vector<yard_value_t> nothing = {empty, empty, v.f32({4}), number(0)};
  EXPECT_FALSE(p.has_null_data(nothing.data()));
  EXPECT_EQ(p.fits(nothing.data()), 0);
  EXPECT_EQ(p.fits_live(nothing.data()), -1) << "it writes nothing";
  const Program l = compiled("f(out!: T[n], xs: T[n][])");
  const std::vector<yard_value_t> list = {v.f32({4}), v.list({v.f32({4}), w})};
  EXPECT_TRUE(l.has_null_data(list.data()));
}

TEST(Fits, NoFacts) {
  const Program p = compiled(kRmsNorm);
  Values v;
  for (size_t bad = 0; bad < 3; ++bad) {
    std::vector<yard_value_t> args = {v.f32({2, 4}), v.f32({2, 4}), v.f32({4}), number(0)};
    yard_tensor_t t = *args[bad].u.tensor;
    t.facts = 0;
    args[bad].u.tensor = &t;
    EXPECT_EQ(p.fits(args.data()), -1);
  }
}

TEST(Fits, FactorsOfDimensions) {
  const Program silu = compiled(kSiluAndMul);
  Values v;
  EXPECT_EQ(fit(silu, {v.f32({3, 4}), v.f32({3, 8})}), 0);
  EXPECT_EQ(fit(silu, {v.f32({3, 4}), v.f32({3, 7})}), -1);
  EXPECT_EQ(fit(silu, {v.f32({2, 4}), v.f32({3, 8})}), -1);
  const Program even = compiled("f(x~: T[2*d])");
  EXPECT_EQ(fit(even, {v.f32({8})}), 0);
  EXPECT_EQ(fit(even, {v.f32({7})}), -1);
  const Program ratio = compiled("f(a!: T[2*d], b: T[3*d])");
  EXPECT_EQ(fit(ratio, {v.f32({8}), v.f32({12})}), 0);
  EXPECT_EQ(fit(ratio, {v.f32({9}), v.f32({13})}), -1);
}

TEST(Fits, ConstantsAnyAndIntegers) {
  const Program p = compiled("f(a!: T[128, _], b: T[n, _], n: int)");
  Values v;
  EXPECT_EQ(fit(p, {v.f32({128, 3}), v.f32({5, 9}), integer(5)}), 0);
  EXPECT_EQ(fit(p, {v.f32({127, 3}), v.f32({5, 9}), integer(5)}), -1);
  EXPECT_EQ(fit(p, {v.f32({128, 3}), v.f32({5, 9}), integer(4)}), -1);
  EXPECT_EQ(fit(p, {v.f32({128, 3}), v.f32({0, 9}), integer(INT64_MIN)}), -1);
}

TEST(Fits, Broadcast) {
  const Program p = compiled("add(out!: T[*rows, n], a: T[*rows|1, n|1], b: T[*rows, n|1])");
  Values v;
  for (const auto& a :
       std::vector<std::vector<int64_t>>{{2, 3, 4}, {1, 3, 4}, {3, 4}, {4}, {1}, {1, 1}})
    EXPECT_EQ(fit(p, {v.f32({2, 3, 4}), v.f32(a), v.f32({2, 3, 1})}), 0);
  for (const auto& a : std::vector<std::vector<int64_t>>{{2, 2, 4}, {2, 4}, {3}, {1, 2, 3, 4}, {}})
    EXPECT_EQ(fit(p, {v.f32({2, 3, 4}), v.f32(a), v.f32({2, 3, 1})}), -1);
}

TEST(Fits, Lists) {
  const Program p = compiled("cat(out!: T[*r, _], xs: T[*r, _][])");
  Values v;
  EXPECT_EQ(fit(p, {v.f32({2, 9}), v.list({v.f32({2, 4}), v.f32({2, 5})})}), 0);
  EXPECT_EQ(fit(p, {v.f32({2, 9}), v.list({})}), 0);
  EXPECT_EQ(fit(p, {v.f32({2, 9}), v.list({v.f32({2, 4}), v.f32({3, 5})})}), -1);
  EXPECT_EQ(fit(p, {v.f32({2, 9}), v.list({v.f32({2, 4}), v.tensor(DType::f16, {2, 5})})}), -1);
  const yard_value_t out = v.f32({2, 9});
  EXPECT_EQ(fit(p, {out, v.list({v.f32({2, 4}), out})}), -1);
  const Program split = compiled("split(outs!: T[n][], x: T[n])");
  const yard_value_t twice = v.f32({4});
  EXPECT_EQ(fit(split, {v.list({v.f32({4}), v.f32({4})}), v.f32({4})}), 0);
  EXPECT_EQ(fit(split, {v.list({twice, twice}), v.f32({4})}), -1) << "outputs share";
}

TEST(Fits, Rotary) {
  const Program p = compiled(kRotary);
  Values v;
  const yard_value_t q = v.f32({4, 8, 64}), k = v.f32({4, 2, 64}), pos = v.tensor(DType::i64, {4});
  const yard_value_t c = v.f32({16, 32}), s = v.f32({16, 32}), c4 = v.f32({4, 32}),
                     s4 = v.f32({4, 32});
  const auto call = [&](yard_value_t key, yard_value_t positions, yard_value_t cos,
                        yard_value_t sin, int64_t dim = 0, int64_t style = 0) {
    return fit(p, {q, key, positions, cos, sin, integer(dim), number(1e4), integer(style)});
  };
  EXPECT_EQ(call(k, pos, c, s), 0);
  EXPECT_EQ(call(none(), pos, none(), none()), 0);
  EXPECT_EQ(call(none(), none(), c4, s4), 0);
  EXPECT_EQ(call(none(), none(), c, s), -1) << "cache == tokens unless positions";
  EXPECT_EQ(call(none(), pos, c, none()), -1) << "cos iff sin";
  EXPECT_EQ(call(none(), none(), none(), none()), -1) << "positions or cos";
  EXPECT_EQ(call(v.f32({3, 2, 64}), pos, c, s), -1) << "tokens";
  EXPECT_EQ(call(v.f32({4, 2, 32}), pos, c, s), -1) << "head_dim";
  EXPECT_EQ(call(k, v.tensor(DType::i8, {4}), c, s), -1) << "P in {i32, i64}";
  EXPECT_EQ(call(k, pos, v.f32({16, 33}), v.f32({16, 33})), -1) << "2*half <= head_dim";
  EXPECT_EQ(call(k, pos, c, s, 32), 0);
  EXPECT_EQ(call(k, pos, c, s, 31), -1);
  EXPECT_EQ(call(k, pos, c, s, -2), -1);
  EXPECT_EQ(call(k, pos, c, s, 66), -1);
  EXPECT_EQ(call(k, pos, c, s, 0, 1), 0);
  EXPECT_EQ(call(k, pos, c, s, 0, 2), -1) << "no such enumerator";
  EXPECT_EQ(call(q, pos, c, s), -1) << "query and key share";
}

TEST(Field, ReadsWhatNamesMean) {
  const Program p = compiled(kRotary);
  Values v;
  const std::vector<yard_value_t> args = {
      v.f32({3, 4, 8, 64}), none(),      none(),    v.f32({12, 32}),
      v.f32({12, 32}),      integer(16), number(0), integer(1)};
  const auto value = [&](std::string_view name) {
    return read(p.field(name).value(), args.data());
  };
  EXPECT_EQ(value("tokens"), 12);
  EXPECT_EQ(value("heads"), 8);
  EXPECT_EQ(value("head_dim"), 64);
  EXPECT_EQ(value("half"), 32);
  EXPECT_EQ(value("kv_heads"), kAbsent);
  EXPECT_EQ(value("rotary_dim"), 16);
  EXPECT_EQ(value("style"), 1);
  EXPECT_EQ(value("query.rank"), 4);
  EXPECT_EQ(value("query.size"), 3 * 4 * 8 * 64);
  EXPECT_EQ(value("key.rank"), kAbsent);
  EXPECT_FALSE(p.field("base")) << "a float is not a field";
  EXPECT_FALSE(p.field("nothing"));
  const auto names = p.field_names();
  EXPECT_NE(std::find(names.begin(), names.end(), "cache"), names.end());
}

TEST(Field, FactorsAndLists) {
  const Program p = compiled("f(out!: T[*r], x: T[*r, 2*d], ys: T[m][], n: int, flag: bool)");
  Values v;
  const std::vector<yard_value_t> args = {
      v.f32({3}), v.f32({3, 8}), v.list({v.f32({7}), v.f32({7})}), integer(-1), boolean(true)};
  EXPECT_EQ(read(*p.field("d"), args.data()), 4);
  EXPECT_EQ(read(*p.field("m"), args.data()), 7);
  EXPECT_EQ(read(*p.field("ys.count"), args.data()), 2);
  EXPECT_EQ(read(*p.field("n"), args.data()), -1);
  EXPECT_EQ(read(*p.field("flag"), args.data()), 1);
  EXPECT_EQ(read(*p.field("r"), args.data()), 3);
}

TEST(Field, ReadsTheFirstSourceThatIsGiven) {
  const Program p = compiled("f(x: T[], a?: T[n], b?: T[2*n])");
  Values v;
  const Field n = *p.field("n");
  std::vector<yard_value_t> args = {v.f32({}), v.f32({3}), v.f32({6})};
  EXPECT_EQ(read(n, args.data()), 3);
  args[1] = none();
  EXPECT_EQ(read(n, args.data()), 3);
  args[2] = none();
  EXPECT_EQ(read(n, args.data()), kAbsent);
}

}  // namespace
}  // namespace yard::op
