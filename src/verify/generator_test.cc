// SPDX-License-Identifier: Apache-2.0
// Tests that generated calls fit their schema, cover it, and depend only on the seed.
#include "verify/generator.h"
#include "op/facts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "op/testing.h"
#include "verify/elements.h"
#include "verify/testing.h"

namespace yard::verification {
namespace {

std::vector<Case> generate(const op::Program& program, size_t n, uint64_t seed = 1) {
  Generator g(program, nullptr, seed, 1 << 14);
  std::vector<Case> to;
  for (size_t i = 0; i < n; ++i)
    if (auto c = g.next()) to.push_back(*std::move(c));
  return to;
}

const yard_tensor_t* tensor(const op::Program& p, const Case& c, const char* name) {
  const yard_value_t& v = c.call.args()[p.index_of(name)];
  return v.tag == YARD_TAG_TENSOR ? v.u.tensor : nullptr;
}

TEST(Generator, EveryCallFitsAndReadsBack) {
  for (const char* schema : op::kBuiltIn) {
    const op::Program p = op::Program::compile(schema).value();
    const auto cases = generate(p, 300);
    EXPECT_EQ(cases.size(), 300u) << schema;
    for (const Case& c : cases) {
      const std::string text = op::to_string(c.call.to_spec(p));
      EXPECT_TRUE(p.explain_mismatch(c.call.args(), c.call.count()).ok()) << text;
      EXPECT_TRUE(op::Call::from_spec(p, op::parse_call_spec(text).value()).ok()) << text;
    }
  }
}

TEST(Generator, TheSeedDeterminesTheCalls) {
  const op::Program p = op::Program::compile(op::kRotary).value();
  const auto texts = [&](uint64_t seed) {
    std::vector<std::string> to;
    for (const Case& c : generate(p, 50, seed))
      to.push_back(op::to_string(c.call.to_spec(p)) + to_string(c.contents) +
                   std::to_string(c.seed));
    return to;
  };
  EXPECT_EQ(texts(1), texts(1));
  EXPECT_NE(texts(1), texts(2));
}

TEST(Generator, CallsForAKernelAreWithinItsLimits) {
  const op::Program p = op::Program::compile(op::kRotary).value();
  const auto arg = [&](const char* name) { return static_cast<size_t>(p.index_of(name)); };
  using Kind = op::Field::Kind;
  using Integer = op::IntegerTest;
  const op::Predicate limits[] = {
      {op::Field::of(Kind::kDType, arg("query")), Integer::one_of_mask(YARD_DTYPE_BIT(YARD_BF16))},
      {*p.field("head_dim"), Integer::multiple_of(16)},
      {*p.field("head_dim"), Integer::range(32, 256)},
      {*p.field("heads"), Integer::at_most(64)},
      {*p.field("style"), Integer::equals(1)},
      {op::Field::of(Kind::kPresence, arg("key")), Integer::equals(1)},
      {op::Field::of(Kind::kCompact, arg("query")), Integer::equals(1)},
      {op::Field::of(Kind::kAlignment, arg("key")), Integer::at_least(32)},
      {op::Field::of(Kind::kRank, arg("query")), Integer::range(3, 4)},
  };
  const CallLimits of_kernel = CallLimits::of(p, limits, YARD_KERNEL_INFERENCE_ONLY);
  Generator g(p, nullptr, 1, 1 << 20, &of_kernel);
  std::set<int64_t> head_dims;
  size_t within = 0;
  for (size_t i = 0; i < 200; ++i) {
    const auto c = g.next();
    ASSERT_TRUE(c.has_value());
    within += std::all_of(std::begin(limits), std::end(limits),
                          [&](const op::Predicate& l) { return op::holds(l, c->call.args()); });
    EXPECT_EQ(c->call.flags() & YARD_CALL_INFERENCE, YARD_CALL_INFERENCE);
    head_dims.insert(op::read(*p.field("head_dim"), c->call.args()));
  }
  EXPECT_GE(within, 190u);
  for (const int64_t d : {32, 48, 240, 256, 64, 80, 96, 112, 128, 192})  // boundaries and models
    EXPECT_TRUE(head_dims.contains(d)) << d;
}

TEST(Generator, SizesAtTheBoundariesOfLimitsAreCalled) {
  const op::Program p = op::Program::compile("copy(out!: T[*rows, d], x: T[*rows, d])").value();
  SizeLimits limits;
  limits.numbers["d"] = {op::IntegerTest::range(48, 1000), op::IntegerTest::multiple_of(8)};
  std::set<int64_t> sizes;
  for (const SizePoint& point : SizeSolver(p.schema(), 1 << 20, limits).points())
    if (point.name == "d") sizes.insert(point.size);
  for (const int64_t d : {48, 56, 64, 984, 992, 1000}) EXPECT_TRUE(sizes.contains(d)) << d;
}

// These must be covered within 300 calls of a row-wise op.
TEST(Generator, CoversEdgeCases) {
  const op::Program p =
      op::Program::compile(
          "norm(out!: T[*rows, hidden], x: T[*rows, hidden], weight: T[hidden], eps: float = 1e-6) "
          "where T in {f32, f16, bf16}, out may_alias x")
          .value();
  std::set<uint32_t> types;
  std::set<int> ranks;
  std::set<int64_t> widths;
  std::set<Contents> contents;
  std::set<double> eps;
  size_t empty = 0, aliased = 0, padded = 0, transposed = 0, broadcast = 0, negative = 0;
  size_t misaligned = 0, compact = 0, plain_alignment = 0;
  for (const Case& c : generate(p, 300)) {
    const yard_tensor_t &x = *tensor(p, c, "x"), &out = *tensor(p, c, "out");
    const int64_t width = x.shape[x.ndim - 1], inner = x.strides[x.ndim - 1];
    types.insert(yard_dtype_index(x.dtype));
    ranks.insert(x.ndim);
    widths.insert(width);
    contents.insert(c.contents);
    eps.insert(c.call.args()[p.index_of("eps")].u.f);
    const bool has_elements = x.facts >> YARD_FACTS_SPAN_SHIFT != 0;
    empty += !has_elements;
    aliased += &x == &out;
    compact += (x.facts & YARD_FACTS_COMPACT) != 0;
    const uint64_t align = 1ull << ((x.facts & YARD_FACTS_ALIGN) >> YARD_FACTS_ALIGN_SHIFT);
    misaligned += align < 16;
    plain_alignment += align == 64;
    if (!has_elements || x.ndim < 2 || width < 2 || x.shape[x.ndim - 2] < 2) continue;
    const int64_t row = x.strides[x.ndim - 2];
    padded += inner == 1 && row > width;
    transposed += row == 1 && inner > 1;
    broadcast += row == 0 || inner == 0;
    negative += row < 0 || inner < 0;
  }
  EXPECT_EQ(types, (std::set<uint32_t>{YARD_F32, YARD_F16, YARD_BF16}));
  EXPECT_EQ(ranks, (std::set<int>{1, 2, 3, 4}));
  EXPECT_EQ(contents.size(), all_contents().size());
  EXPECT_GE(eps.size(), 4u);
  for (const int64_t w : {0, 1, 2, 3, 7, 8, 9, 16, 64, 65, 127, 128, 1024})
    EXPECT_TRUE(widths.count(w)) << w;
  EXPECT_GE(*widths.rbegin(), 4096);
  for (const size_t n : {empty, aliased, padded, transposed, broadcast, negative, misaligned})
    EXPECT_GE(n, 3u);
  EXPECT_GT(compact, 150u);
  EXPECT_GT(plain_alignment, 150u);
}

TEST(Generator, OptionalsEnumsAndClauses) {
  const op::Program p = op::Program::compile(op::kRotary).value();
  std::set<std::string> given;
  std::set<int64_t> styles, dims;
  for (const Case& c : generate(p, 300)) {
    std::string set;
    for (const char* name : {"key", "positions", "cos"})
      set += tensor(p, c, name) != nullptr ? '1' : '0';
    given.insert(set);
    styles.insert(c.call.args()[p.index_of("style")].u.i);
    dims.insert(c.call.args()[p.index_of("rotary_dim")].u.i);
  }
  // All combinations occur except the one without positions and tables.
  EXPECT_EQ(given, (std::set<std::string>{"001", "010", "011", "101", "110", "111"}));
  EXPECT_EQ(styles, (std::set<int64_t>{0, 1}));
  EXPECT_TRUE(dims.count(0) && dims.size() > 4);
}

// These parts of the grammar are used by no built-in op.
TEST(Generator, TheRestOfTheGrammar) {
  const std::pair<const char*, const char*> schemas[] = {
      {"broadcast", "f(out!: T[*rows, d], x: T[*rows, d], y: T[*rows|1, d|1])"},
      {"lists", "f(outs!: T[d][], xs: T[d][], n: int) where n >= 1, d % 3 == 0"},
      {"integers", "f(out!: f32[n, 4], x: i64[_, 3*n], n: int, flip: bool, how: string = \"a\")"},
      {"optional output", "f(out!: f32[n], extra!?: f32[n], x: T[n]) where T in {i8, u8}"},
      {"chains", "f(x~: T[a, b, c], y: T[a]) where a < b, b < c, 2*a != c, c <= 64"},
      {"guards", "f(x~: T[a], m?: T[b]) where a == 2*b if m, a > 7 unless m"},
      {"no dimensions", "f(out!: f32[], x: f32[])"},
      {"scalars", "f(out!: T[n], a: T[n], by: float, k: int = -3)"},
      {"output alone", "f(out!: I[n, _], a: T[n]) where I in {i32, i64}"},
      {"divisors", "f(x~: T[a, b], y: T[b, c], k: int) where a % b == 0, b % c == 0, a % k == 0"},
  };
  for (const auto& [what, schema] : schemas) {
    const op::Program p = op::Program::compile(schema).value();
    EXPECT_EQ(generate(p, 100).size(), 100u) << what;
  }
}

TEST(Generator, DivisorsOfEverySize) {
  const op::Program p = op::Program::compile(op::kDecode).value();
  std::set<int64_t> groups;  // query heads of a key head
  for (const Case& c : generate(p, 300)) {
    const int64_t heads = tensor(p, c, "query")->shape[1], of = tensor(p, c, "key")->shape[2];
    if (of > 0) groups.insert(heads / of);
  }
  EXPECT_TRUE(groups.contains(0) && groups.contains(1) && groups.size() > 5) << groups.size();
}

TEST(Generator, OptionalsFollowDtypes) {
  const op::Program p = op::Program::compile(op::kLinear).value();
  std::set<uint32_t> types;
  for (const Case& c : generate(p, 200)) {
    const uint32_t w = yard_dtype_index(tensor(p, c, "weight")->dtype);
    types.insert(w);
    EXPECT_EQ(tensor(p, c, "scale") != nullptr, w == YARD_I8);
  }
  EXPECT_EQ(types, (std::set<uint32_t>{YARD_F32, YARD_BF16, YARD_I8}));
}

TEST(Generator, OutputsThatInputsDoNotDetermineVary) {
  const op::Program p = op::Program::compile(op::kTopK).value();
  std::set<uint32_t> types;
  std::set<int64_t> widths;
  for (const Case& c : generate(p, 200)) {
    const yard_tensor_t& ids = *tensor(p, c, "ids");
    types.insert(yard_dtype_index(ids.dtype));
    widths.insert(ids.shape[ids.ndim - 1]);
  }
  EXPECT_EQ(types, (std::set<uint32_t>{YARD_I32, YARD_I64}));
  EXPECT_GT(widths.size(), 10u);
}

TEST(Generator, BroadcastsAndLists) {
  const op::Program p =
      op::Program::compile("f(out!: T[*rows, d], x: T[*rows, d], y: T[*rows|1, d|1], zs: T[d][])")
          .value();
  std::set<uint32_t> lengths;
  size_t ones = 0, fewer = 0;
  for (const Case& c : generate(p, 200)) {
    const yard_tensor_t &x = *tensor(p, c, "x"), &y = *tensor(p, c, "y");
    ones += x.shape[x.ndim - 1] > 1 && y.shape[y.ndim - 1] == 1;
    fewer += y.ndim < x.ndim;
    lengths.insert(c.call.args()[p.index_of("zs")].count);
  }
  EXPECT_GT(ones, 10u);
  EXPECT_GT(fewer, 5u);
  EXPECT_EQ(lengths, (std::set<uint32_t>{1, 2, 3}));
}

TEST(Generator, NumbersFulfilTheirClauses) {
  const op::Program p = op::Program::compile(
                            "f(out!: f32[n], x: f32[n], a: float = -8.0, b: float, c: float = 1.0) "
                            "where a >= 0, b > 4, b != 4.5, c < 0.25, c > -0.5")
                            .value();
  Generator g(p, nullptr, 1, 1 << 14);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(g.next().has_value()) << i;
}

TEST(Generator, BlockQuantisedTensorsAreWholeAndFinite) {
  const op::Program p = op::Program::compile(
                            "linear(out!: T[*rows, n], x: T[*rows, k], weight: W[n, k]) "
                            "where T in {f32}, W in {f32, q8_0, q4_0, q4_1, q4_k, q6_k}")
                            .value();
  std::set<DType> seen;
  bool padded = false, empty = false;
  for (const Case& c : generate(p, 200)) {
    const yard_tensor_t& w = *tensor(p, c, "weight");
    const TensorView view(w);
    seen.insert(view.dtype());
    if (block_elements(view.dtype()) == 1) continue;
    EXPECT_TRUE(op::has_whole_units(&w));
    empty |= view.numel() == 0;
    padded |=
        view.numel() > 0 && w.strides != nullptr && w.shape[0] > 1 && w.strides[0] > w.shape[1];
  }
  EXPECT_EQ(seen.size(), 6u);
  EXPECT_TRUE(padded);
  EXPECT_TRUE(empty);
}

TEST(Buffers, HoldBlocksWithScalesOfTheRequestedKind) {
  for (const auto& format : {std::pair{DType::q4_1, 2}, {DType::q6_k, 208}}) {
    const DType dtype = format.first;
    const int scale = format.second;
    const Buffer buffer(TensorView(nullptr, dtype, {16, 512}, {768, 1}), 2, false);
    const int64_t bytes = yard_unit_bytes(buffer.view().c().dtype);
    const auto count = [&](Contents contents, auto is) {
      fill(buffer.view(), Random(7), contents, {});
      int n = 0;
      for_each_row(buffer.view(), [&](const auto&, int64_t offset, int64_t width) {
        for (int64_t at = offset; at < offset + width; at += bytes)
          n += is(load(DType::f16, static_cast<char*>(buffer.view().data()) + at + scale));
        return true;
      });
      return n;
    };
    const int blocks = 16 * 512 / block_elements(dtype);
    EXPECT_EQ(count(Contents::kNormal, [](double v) { return std::isfinite(v) && v != 0; }),
              blocks);
    EXPECT_EQ(count(Contents::kZero, [](double v) { return v == 0; }), blocks);
    EXPECT_GT(count(Contents::kNan, [](double v) { return std::isnan(v); }), 0);
    EXPECT_EQ(packed_bytes(buffer.view()), static_cast<uint64_t>(blocks * bytes));
  }
}

TEST(Generator, TensorsStayWithinTheLimit) {
  const op::Program p = op::Program::compile("f(x~: f32[*rows, a, b, c])").value();
  Generator g(p, nullptr, 1, 1000);
  for (int i = 0; i < 200; ++i) {
    const Case c = g.next().value();
    EXPECT_LE(TensorView(*tensor(p, c, "x")).numel(), 1000);
  }
}

TEST(Generator, NoCallTakesVeryLong) {
  const op::Program p =
      op::Program::compile("f(x~: f32[a, b], y: f32[c, d], z: f32[e, g], k?: f32[h, i])").value();
  Generator g(p, nullptr, 1, 1 << 20);
  for (int i = 0; i < 200; ++i) {
    const Case c = g.next().value();
    double work = 1;
    for (const char* name : {"x", "y", "z", "k"})
      if (const yard_tensor_t* t = tensor(p, c, name))
        work *= static_cast<double>(t->shape[0]) * static_cast<double>(t->shape[1]);
    EXPECT_LE(work, 1 << 28);
  }
}

TEST(Generator, GivesUpOnAnUnsatisfiableSchema) {
  const op::Program p = op::Program::compile("f(x~: f32[a]) where a < 3, a > 5").value();
  EXPECT_FALSE(Generator(p, nullptr, 1, 1000).next().has_value());
}

TEST(ShuffleBag, ReturnsEveryValueBeforeRepeatingAny) {
  Random random(3);
  ShuffleBag<int> bag({1, 2, 3, 4, 5});
  for (int round = 0; round < 10; ++round) {
    std::set<int> seen;
    for (int i = 0; i < 5; ++i) seen.insert(bag.next(random));
    EXPECT_EQ(seen.size(), 5u);
  }
}

}  // namespace
}  // namespace yard::verification
