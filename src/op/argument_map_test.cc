// SPDX-License-Identifier: Apache-2.0
// Tests parameters that differ from the op's: how they are resolved, which are refused, and which
// arguments need a transform.
#include "op/argument_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "op/numbers.h"
#include "op/testing.h"

namespace yard::op {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kAttend =
    "attend(out!: T[batch, seq, heads, dim], query: T[batch, seq, heads, dim], "
    "key: T[batch, kv_seq, kv_heads, dim], mask?: f32[heads, seq], ids: i32[*rows], "
    "causal: bool = false, scale: float = 0.0) where T in {f32, f16, bf16}";

ParamText param(std::string name, std::string layout = "", std::string source = "") {
  ParamText p;
  p.name = std::move(name), p.layout = std::move(layout), p.source = std::move(source);
  return p;
}

ParamText constant(std::string name, yard_value_t value, std::string text = "") {
  ParamText p = param(std::move(name));
  p.flags = YARD_PARAM_CONSTANT, p.constant = value, p.text = std::move(text);
  return p;
}

// Returns all parameters of the op. Tests change some of them.
std::vector<ParamText> all() {
  return {param("out"), param("query"),  param("key"),  param("mask"),
          param("ids"), param("causal"), param("scale")};
}

Result<ArgumentMap> resolve(const std::vector<ParamText>& params,
                            std::vector<std::string> fixed = {}) {
  return ArgumentMap::resolve(compiled(kAttend), params, fixed);
}
std::string why(const std::vector<ParamText>& params) {
  const auto map = resolve(params);
  return map.ok() ? "ok" : map.status().to_string();
}
// Returns the error for one parameter that differs from the op's.
std::string why(const ParamText& p, size_t place = 1) {
  auto params = all();
  params[place] = p;
  return why(params);
}

std::vector<int> order_of(const std::string& layout, size_t place = 1) {
  auto params = all();
  params[place].layout = layout;
  const auto map = resolve(params);
  if (!map.ok()) {
    ADD_FAILURE() << map.status().to_string();
    return {};
  }
  std::vector<int> to;
  for (int32_t i = 0; i < 4; ++i) to.push_back(map->params[place].order.axis(4, i));
  return to;
}

TEST(ArgumentMap, OfTheOpsOwnParametersIsInOrder) {
  const auto map = resolve(all()).value();
  EXPECT_TRUE(map.in_order);
  EXPECT_EQ(map.signature, compiled(kAttend).signature());
  for (const KernelParam& p : map.params) EXPECT_TRUE(p.requirements.empty()) << p.name;
  EXPECT_TRUE(map.params[0].written);
  EXPECT_FALSE(map.params[0].read);
}

TEST(ArgumentMap, HasNamesOrderAndConstantsOfTheKernel) {
  auto params = all();
  std::swap(params[0], params[2]);
  params[0] = param("k", "", "key");
  params.push_back(constant("dropout", number(0.5)));
  params.push_back(constant("name", text("acme"), "acme"));
  params.push_back(constant("bias", none()));
  const auto map = resolve(params).value();
  EXPECT_FALSE(map.in_order);
  EXPECT_EQ(map.signature, "tttttbffvt");
  EXPECT_EQ(map.params[0].source, 2);
  EXPECT_EQ(map.params[7].source, -1);
  EXPECT_EQ(map.params[7].constant.u.f, 0.5);
  EXPECT_EQ(std::string(map.params[8].constant.u.string, map.params[8].constant.count), "acme");
}

TEST(ArgumentMap, LayoutsAreNamesLettersOrMajor) {
  using ::testing::ElementsAre;
  EXPECT_THAT(order_of("batch heads seq dim"), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(order_of("BHSD"), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(order_of("BSHD"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(order_of("BHSD", 2), ElementsAre(0, 2, 1, 3));  // kv_seq and kv_heads
  EXPECT_THAT(order_of("NHD"), ElementsAre(0, 1, 2, 3));
  // The batch stays in front.
  EXPECT_THAT(order_of("HND"), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(order_of("dim heads"), ElementsAre(0, 1, 3, 2));
  EXPECT_THAT(order_of("row-major"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(order_of("column-major"), ElementsAre(0, 1, 3, 2));
}

TEST(ArgumentMap, RefusesLayoutsThatAreNone) {
  EXPECT_THAT(why(param("query", "batch heads seq")),
              AllOf(HasSubstr("'query'"), HasSubstr("invalid layout"), HasSubstr("'batch'")));
  EXPECT_THAT(why(param("query", "batch heads seq size")), HasSubstr("'size', which is none"));
  EXPECT_THAT(why(param("query", "BSHH")), HasSubstr("'H' twice"));
  EXPECT_THAT(why(param("query", "batch batch heads seq dim")), HasSubstr("5 names"));
  EXPECT_THAT(why(param("query", " ")), HasSubstr("0 names"));
  EXPECT_THAT(why(param("ids", "column-major"), 4), HasSubstr("two or more dimensions"));
  EXPECT_THAT(why(param("scale", "row-major"), 6), HasSubstr("need a tensor"));
}

TEST(ArgumentMap, RefusesMapsThatCannotBe) {
  EXPECT_THAT(why(param("q")), HasSubstr("the op has no parameter 'q'"));
  EXPECT_THAT(why(param("q", "", "qery")), HasSubstr("did you mean 'query'?"));
  EXPECT_THAT(why(param("q", "", "key")),
              AllOf(HasSubstr("'key'"), HasSubstr("filled from 'key', as 'q' is already")));
  auto params = all();
  params.erase(params.begin() + 3);
  EXPECT_THAT(why(params), AllOf(HasSubstr("'mask'"), HasSubstr("limit (absent, equals)")));
  EXPECT_TRUE(resolve(params, {"mask"}).ok());
  params.erase(params.begin());
  EXPECT_FALSE(resolve(params, {"mask"}).ok()) << "an output that nothing writes";
}

TEST(ArgumentMap, RefusesRequirementsThatNoArgumentMeets) {
  ParamText p = param("query");
  p.align = 48;
  EXPECT_THAT(why(p), HasSubstr("invalid alignment: expected a power of two up to 64, got 48"));
  p = param("query"), p.pad = -1;
  EXPECT_THAT(why(p), HasSubstr("invalid padding"));
  p = param("ids"), p.pad = 8;
  EXPECT_THAT(why(p, 4), HasSubstr("padding needs a dimension of its own"));
  p = param("query"), p.dtypes = YARD_DTYPE_BIT(YARD_I8);
  EXPECT_THAT(why(p), HasSubstr("invalid dtypes"));
  p = param("query"), p.flags = YARD_PARAM_ROWS;
  EXPECT_THAT(why(p), HasSubstr("need a layout"));
  p.layout = "BSHD", p.flags |= YARD_PARAM_STRIDED;
  EXPECT_THAT(why(p), HasSubstr("got both"));
}

// ---- Dtypes ----

TEST(Dtypes, AreConvertedToTheNarrowestThatHasAllValues) {
  const auto mask = [](std::initializer_list<DType> types) {
    uint64_t to = 0;
    for (const DType t : types) to |= YARD_DTYPE_BIT(static_cast<int>(t));
    return to;
  };
  const uint64_t wide = mask({DType::f32, DType::f64, DType::i64});
  EXPECT_EQ(narrowest_for(DType::f16, wide), DType::f32);
  EXPECT_EQ(narrowest_for(DType::bf16, wide), DType::f32);
  EXPECT_EQ(narrowest_for(DType::f64, wide), DType::f64);
  EXPECT_EQ(narrowest_for(DType::i32, wide), DType::i64);
  EXPECT_EQ(narrowest_for(DType::u32, wide), DType::i64);
  EXPECT_EQ(narrowest_for(DType::u64, wide), DType::invalid);
  EXPECT_EQ(narrowest_for(DType::f16, mask({DType::bf16})), DType::invalid);
  EXPECT_EQ(narrowest_for(DType::bf16, mask({DType::f16})), DType::invalid);
  EXPECT_EQ(narrowest_for(DType::f32, mask({DType::bf16, DType::f16})), DType::invalid);
  EXPECT_EQ(narrowest_for(DType::boolean, mask({DType::u8})), DType::invalid);
  EXPECT_EQ(narrowest_for(DType::q4_0, wide), DType::invalid);
  EXPECT_EQ(narrowest_for(DType::q4_0, mask({DType::q4_0})), DType::q4_0);
}

// ---- Which arguments need a transform ----

class Transforms : public ::testing::Test {
 protected:
  // `query` is [2, 3, 4, 5] with these strides.
  uint32_t needed(const ParamText& p, std::vector<int64_t> strides, DType t = DType::f32,
                  int64_t dim = 5, size_t offset = 0) {
    auto params = all();
    params[1] = p;
    const ArgumentMap map = resolve(params).value();
    static std::vector<char> memory(1 << 16);
    const auto at = (reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64 + offset;
    const yard_value_t v =
        values_.at(reinterpret_cast<void*>(at), t, {2, 3, 4, dim}, std::move(strides));
    return map.params[1].transforms(*v.u.tensor);
  }
  Values values_;
};

TEST_F(Transforms, OfLayoutsDependOnStrides) {
  const std::vector<int64_t> compact = {60, 20, 5, 1}, gaps = {120, 40, 10, 1},
                             swapped = {60, 5, 15, 1}, wide_swap = {120, 10, 30, 1};
  EXPECT_EQ(needed(param("query"), gaps), 0u);
  EXPECT_EQ(needed(param("query", "BSHD"), compact), 0u);
  EXPECT_EQ(needed(param("query", "BSHD"), {}), 0u);
  EXPECT_EQ(needed(param("query", "BSHD"), gaps), kContiguous);
  EXPECT_EQ(needed(param("query", "BSHD"), swapped), kContiguous);
  EXPECT_EQ(needed(param("query", "BHSD"), swapped), 0u) << "only another view of it";
  EXPECT_EQ(needed(param("query", "BHSD"), compact), kPermute);
  EXPECT_EQ(needed(param("query", "BHSD"), {}), kPermute);
  EXPECT_EQ(needed(param("query", "BHSD"), wide_swap), kPermute);
  ParamText rows = param("query", "BHSD");
  rows.flags = YARD_PARAM_ROWS;
  EXPECT_EQ(needed(rows, wide_swap), 0u);
  EXPECT_EQ(needed(rows, {60, 5, 15, 2}), kPermute);
  EXPECT_EQ(needed(rows, {0, 5, 15, 1}), kPermute) << "all batches the same";
  rows.layout = "BSHD";
  EXPECT_EQ(needed(rows, gaps), 0u);
  EXPECT_EQ(needed(rows, wide_swap), kContiguous);
  rows.flags = YARD_PARAM_STRIDED, rows.layout = "BHSD";
  EXPECT_EQ(needed(rows, {0, 0, 0, 7}), 0u);
}

TEST_F(Transforms, OfDtypeAlignmentAndPadding) {
  ParamText p = param("query");
  p.dtypes = YARD_DTYPE_BIT(YARD_F32), p.align = 16, p.pad = 4;
  EXPECT_EQ(needed(p, {}, DType::f32, 8), 0u);
  EXPECT_EQ(needed(p, {}, DType::bf16, 8), kCast);
  EXPECT_EQ(needed(p, {}, DType::f32, 8, 8), kAlign);
  EXPECT_EQ(needed(p, {}, DType::f32, 6), kPad);
  EXPECT_EQ(needed(p, {}, DType::f16, 6, 2), kCast | kAlign | kPad);
  p.layout = "dim heads";  // the four heads are then the last dimension
  p.dtypes = 0, p.align = 0;
  EXPECT_EQ(needed(p, {60, 20, 1, 4}), 0u);
  EXPECT_EQ(transforms_text(kPermute | kCast | kPad), "permute, cast, pad");
}

TEST_F(Transforms, AreNotNeededForEmptyTensors) {
  EXPECT_EQ(needed(param("query", "BHSD"), {7, 7, 7, 7}, DType::f32, 0), 0u);
}

}  // namespace
}  // namespace yard::op
