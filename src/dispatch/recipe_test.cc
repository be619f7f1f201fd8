// SPDX-License-Identifier: Apache-2.0
// Tests that the key of a call contains exactly the facts that some candidate reads.
#include "dispatch/recipe.h"

#include <gtest/gtest.h>
#include <yard/call_spec.h>
#include <yard/tensor.h>
#include <yard/plugin.hpp>

#include <deque>
#include <set>

#include "op/testing.h"
#include "registry/testing.h"
#include "select/select.h"

namespace yard::dispatch {
namespace {

using registry::testing::backend_of;
using registry::testing::kernel_of;
using registry::testing::op_of;
using registry::testing::Shelf;

constexpr const char* kSchema =
    "op(out!: T[*rows, d], x: T[*rows, d], bias?: T[d], scale?: f32[d], xs: T[d][], "
    "mode: enum{a, b} = a, groups: int = 1, eps: float = 1e-6, name: string = \"s\") "
    "where out may_alias x";

// Describes a call of the op above.
struct Made {
  std::vector<int64_t> rows = {8};
  int64_t d = 64;
  DType dtype = DType::f32;
  Device device = {};
  bool bias = false, scale = false;
  bool bias_apart = false;  // the bias has every second element of its memory
  size_t list = 1;
  int64_t mode = 0, groups = 1;
  double eps = 1e-6;
  std::string name = "s";
  uint32_t flags = 0;
  int64_t x_gap = 0;       // elements between the rows of x
  uintptr_t x_offset = 0;  // bytes after an aligned address
};

class Recipes : public ::testing::Test {
 protected:
  Recipes() {
    shelf_.put(backend_of("plain"));
    shelf_.put(op_of(kSchema));
  }

  void add(std::vector<yard_limit_t> limits, yard_kernel_t d = kernel_of("op", "k", "plain")) {
    const std::string id = "k" + std::to_string(count_++);
    d.id = id.c_str(), d.limits = limits.data(),
    d.limit_count = static_cast<uint32_t>(limits.size());
    shelf_.put(d);
    candidates_.emplace(select::CandidateParts{shelf_.op_record("op"), {}, {}});
    recipe_ = Recipe::compile(*candidates_);
  }

  static yard_limit_t limit(uint32_t kind, const char* field, int64_t a = 0, int64_t b = 0) {
    return {kind, 0, field, a, b, 0};
  }

  static yard_value_t facted(const TensorView& v) {
    yard_value_t cell{};
    cell.tag = YARD_TAG_TENSOR, cell.u.tensor = &op::with_facts(v);
    return cell;
  }
  // Returns whether the call has a key, and sets the key.
  bool fold(const Made& m, Key& key) {
    std::deque<TensorView> views;
    const auto tensor = [&](uintptr_t at, DType t, std::vector<int64_t> shape, int64_t gap) {
      std::vector<int64_t> strides(shape.size());
      int64_t step = 1;
      for (size_t i = shape.size(); i-- > 0;) {
        strides[i] = step;
        step = step * shape[i] + (i + 1 == shape.size() ? gap : 0);
      }
      views.emplace_back(reinterpret_cast<void*>(at), t, std::span<const int64_t>(shape),
                         std::span<const int64_t>(strides), m.device);
      return facted(views.back());
    };
    std::vector<int64_t> shape = m.rows;
    shape.push_back(m.d);
    std::vector<const yard_tensor_t*> list;
    yard_value_t args[9]{};
    args[0] = tensor(1ull << 36, m.dtype, shape, 0);
    args[1] = tensor((2ull << 36) + m.x_offset, m.dtype, shape, m.x_gap);
    if (m.bias) {
      views.emplace_back(reinterpret_cast<void*>(3ull << 36), m.dtype,
                         std::initializer_list<int64_t>{m.d},
                         std::initializer_list<int64_t>{m.bias_apart ? 2 : 1}, m.device);
      args[2] = facted(views.back());
    }
    if (m.scale) args[3] = tensor(4ull << 36, DType::f32, {m.d}, 0);
    for (size_t i = 0; i < m.list; ++i)
      list.push_back(tensor((5ull + i) << 36, m.dtype, {m.d}, 0).u.tensor);
    args[4].tag = YARD_TAG_LIST, args[4].count = static_cast<uint32_t>(list.size());
    args[4].u.list = list.data();
    args[5] = Value(m.mode).c(), args[6] = Value(m.groups).c(), args[7] = Value(m.eps).c();
    args[8] = Value(m.name).c();
    EXPECT_GE(candidates_->program().fits(args), 0);
    return recipe_.fold(args, m.flags, key);
  }
  std::vector<uint64_t> key(const Made& m) {
    Key k;
    EXPECT_TRUE(fold(m, k));
    return {k.w, k.w + k.words};
  }
  // Returns how many classes these calls fall into.
  size_t classes(const std::vector<Made>& calls) {
    std::set<std::vector<uint64_t>> keys;
    for (const Made& m : calls) keys.insert(key(m));
    return keys.size();
  }
  template <class T>
  size_t classes_over(T Made::*member, std::vector<T> values, const Made& base = {}) {
    std::vector<Made> calls;
    for (const T& v : values) calls.push_back(base), calls.back().*member = v;
    return classes(calls);
  }

  Shelf shelf_;
  std::optional<select::CandidateSet> candidates_;
  Recipe recipe_;
  int count_ = 0;
};

TEST_F(Recipes, WhatNoCandidateReadsContributesNothing) {
  add({});
  std::vector<Made> calls;
  for (int64_t n = 1; n <= 8192; ++n) calls.push_back({}), calls.back().rows = {n};
  calls.push_back({.rows = {2, 3, 4}, .d = 5});
  calls.push_back({.dtype = DType::bf16, .bias = true, .scale = true, .list = 3});
  calls.push_back({.mode = 1, .groups = 7, .eps = 2.0, .name = "other", .x_gap = 8, .x_offset = 4});
  EXPECT_EQ(classes(calls), 1u);
  EXPECT_EQ(recipe_.tests(), 0u);
  EXPECT_FALSE(recipe_.reads_scalars());
}

TEST_F(Recipes, FlagsAndTheDeviceAlwaysCount) {
  add({});
  EXPECT_EQ(classes_over<uint32_t>(
                &Made::flags, {0, YARD_CALL_DETERMINISTIC, YARD_CALL_CAPTURING, YARD_CALL_INFERENCE,
                               YARD_CALL_ALIASED, YARD_CALL_LOADED}),
            6u);
  EXPECT_EQ(classes_over<Device>(&Made::device, {{1, 0}, {1, 1}, {2, 0}}), 3u);
}

TEST_F(Recipes, AMinimumIsOneBit) {
  add({limit(YARD_LIMIT_MIN, "rows", 8192)});
  EXPECT_EQ(recipe_.tests(), 1u);
  EXPECT_EQ((classes_over<std::vector<int64_t>>(&Made::rows, {{1}, {8191}, {64, 2}})), 1u);
  EXPECT_EQ((classes_over<std::vector<int64_t>>(&Made::rows, {{8191}, {8192}, {8193}, {128, 64}})),
            2u);
}

TEST_F(Recipes, TheSameLimitTwiceIsStillOneBit) {
  add({limit(YARD_LIMIT_MULTIPLE, "d", 8), limit(YARD_LIMIT_MULTIPLE, "d", 8)});
  add({limit(YARD_LIMIT_MULTIPLE, "d", 8)});
  EXPECT_EQ(recipe_.tests(), 1u);
}

TEST_F(Recipes, EveryIntegerLimitSplitsAtItsEdge) {
  add({limit(YARD_LIMIT_MAX, "d", 100), limit(YARD_LIMIT_MULTIPLE, "d", 8),
       limit(YARD_LIMIT_MULTIPLE, "d", 12), limit(YARD_LIMIT_EQUALS, "d", 24)});
  EXPECT_EQ((classes_over<int64_t>(&Made::d, {1, 5, 99})), 1u);
  EXPECT_EQ((classes_over<int64_t>(&Made::d, {1, 101})), 2u);
  EXPECT_EQ((classes_over<int64_t>(&Made::d, {8, 16, 64})), 1u);
  EXPECT_EQ((classes_over<int64_t>(&Made::d, {1, 8, 12, 24, 48, 104, 120, 9999})), 8u);
}

TEST_F(Recipes, EdgesOfTheRangeAreExact) {
  add({limit(YARD_LIMIT_MIN, "groups", INT64_MIN + 1), limit(YARD_LIMIT_MAX, "groups", -5),
       limit(YARD_LIMIT_MIN, "d", 0), limit(YARD_LIMIT_MAX, "d", INT64_MAX)});
  EXPECT_EQ((classes_over<int64_t>(&Made::groups, {INT64_MIN + 1, -6, -5})), 1u);
  EXPECT_EQ((classes_over<int64_t>(&Made::groups, {-5, -4})), 2u);
  EXPECT_EQ((classes_over<int64_t>(&Made::d, {0, 1, 4096})), 1u);
  EXPECT_TRUE(recipe_.reads_scalars());
}

TEST_F(Recipes, DTypeLimitsReadTheVariableOnce) {
  add({limit(YARD_LIMIT_DTYPE, "x", 1 << YARD_F32)});
  EXPECT_EQ((classes_over<DType>(&Made::dtype, {DType::f32, DType::bf16, DType::f16})), 3u);
  EXPECT_EQ((classes_over<bool>(&Made::bias, {false, true})), 1u);
}

TEST_F(Recipes, ADTypeLimitOnAnOptionalReadsWhetherItIsThere) {
  add({limit(YARD_LIMIT_DTYPE, "bias", 1 << YARD_F32)});
  EXPECT_EQ((classes_over<bool>(&Made::bias, {false, true}, {.dtype = DType::bf16})), 2u);
}

// With bf16 tensors, the kernel takes the call without `scale`, which is f32 by schema, but not the
// call with it.
TEST_F(Recipes, ADTypeLimitOnAnOptionalOfFixedDTypeReadsWhetherItIsThere) {
  add({limit(YARD_LIMIT_DTYPE, nullptr, 1 << YARD_BF16)});
  EXPECT_EQ((classes_over<bool>(&Made::scale, {false, true}, {.dtype = DType::bf16})), 2u);
}

TEST_F(Recipes, ADTypeLimitOnAListReadsWhetherItIsEmpty) {
  add({limit(YARD_LIMIT_DTYPE, "xs", 1 << YARD_BF16)});
  EXPECT_EQ((classes_over<size_t>(&Made::list, {0, 1})), 2u);
}

TEST_F(Recipes, LayoutLimitsReadOneBitOfTheirArgument) {
  add({limit(YARD_LIMIT_COMPACT, "x")});
  EXPECT_EQ((classes_over<int64_t>(&Made::x_gap, {0, 8, 16})), 2u);
  EXPECT_EQ((classes_over<uintptr_t>(&Made::x_offset, {0, 4})), 1u);
}

TEST_F(Recipes, LayoutLimitsOnOptionalsAreKeptByAbsentOnes) {
  add({limit(YARD_LIMIT_COMPACT, "bias")});
  EXPECT_EQ((classes_over<bool>(&Made::bias, {false, true})), 1u);
  EXPECT_EQ((classes_over<bool>(&Made::bias, {false, true}, {.bias_apart = true})), 2u);
  EXPECT_EQ((classes_over<bool>(&Made::scale, {false, true})), 1u);
}

TEST_F(Recipes, AlignmentIsOneBitPerLimit) {
  add({limit(YARD_LIMIT_ALIGN, "x", 16)});
  EXPECT_EQ((classes_over<uintptr_t>(&Made::x_offset, {0, 16, 32, 48})), 1u);
  EXPECT_EQ((classes_over<uintptr_t>(&Made::x_offset, {1, 2, 4, 8})), 1u);
  EXPECT_EQ((classes_over<uintptr_t>(&Made::x_offset, {8, 16})), 2u);
}

TEST_F(Recipes, RankIsOneBitPerLimit) {
  add({limit(YARD_LIMIT_RANK, "x", 2, 3)});
  EXPECT_EQ((classes_over<std::vector<int64_t>>(&Made::rows, {{1}, {1, 2}})), 1u);
  EXPECT_EQ((classes_over<std::vector<int64_t>>(&Made::rows, {{}, {1}, {1, 2}, {1, 2, 3}})), 2u);
}

TEST_F(Recipes, PresenceIsOneBitHoweverOftenItIsAskedFor) {
  add({limit(YARD_LIMIT_PRESENT, "bias"), limit(YARD_LIMIT_ABSENT, "bias")});
  EXPECT_EQ(recipe_.tests(), 1u);
  EXPECT_EQ((classes_over<bool>(&Made::bias, {false, true})), 2u);
  EXPECT_EQ((classes_over<bool>(&Made::scale, {false, true})), 1u);
}

TEST_F(Recipes, ScalarsAreBitsToo) {
  add({limit(YARD_LIMIT_EQUALS, "mode", 1), limit(YARD_LIMIT_MIN, "groups", 4)});
  EXPECT_EQ((classes_over<int64_t>(&Made::mode, {0, 1})), 2u);
  EXPECT_EQ((classes_over<int64_t>(&Made::groups, {-9, 1, 3})), 1u);
  EXPECT_EQ((classes_over<int64_t>(&Made::groups, {3, 4, 400})), 2u);
  EXPECT_TRUE(recipe_.reads_scalars());
}

TEST_F(Recipes, ListsAreReadWhole) {
  add({limit(YARD_LIMIT_COMPACT, "xs")});
  EXPECT_EQ((classes_over<size_t>(&Made::list, {0, 1, 2})), 3u);
}

TEST_F(Recipes, CountsOfListsAreBits) {
  add({limit(YARD_LIMIT_MIN, "xs.count", 2)});
  EXPECT_EQ((classes_over<size_t>(&Made::list, {0, 1})), 1u);
  EXPECT_EQ((classes_over<size_t>(&Made::list, {1, 2, 3})), 2u);
}

TEST_F(Recipes, KernelsThatAreOutWhateverTheCallReadNothing) {
  yard_backend_t off = backend_of("off");
  off.enable = YARD_ENABLE_OFF;
  shelf_.put(off);
  add({limit(YARD_LIMIT_MIN, "d", 8)}, kernel_of("op", "k", "off"));
  EXPECT_EQ(recipe_.tests(), 0u);
  EXPECT_EQ((classes_over<int64_t>(&Made::d, {1, 8})), 1u);
}

// ---- Verifiers and costs ----

int32_t accept(const yard_query_t*, yard_verdict_t*) { return YARD_OK; }
double free_of_charge(void*, const int64_t*, uint32_t) { return 0; }

TEST_F(Recipes, AVerifierThatSaysWhatItReadsAddsThat) {
  yard_kernel_t d = kernel_of("op", "k", "plain");
  const char* const reads[] = {"d", "bias", "eps", nullptr};
  d.verify = accept, d.verify_reads = reads;
  add({}, d);
  EXPECT_EQ((classes_over<int64_t>(&Made::d, {63, 64, 65})), 3u);
  EXPECT_EQ((classes_over<bool>(&Made::bias, {false, true})), 2u);
  EXPECT_EQ((classes_over<double>(&Made::eps, {1.0, 2.0})), 2u);
  EXPECT_EQ((classes_over<std::vector<int64_t>>(&Made::rows, {{1}, {2}, {3, 4}})), 1u);
  EXPECT_EQ((classes_over<int64_t>(&Made::groups, {1, 2})), 1u);
  EXPECT_EQ((classes_over<std::string>(&Made::name, {"s", "t"})), 1u);
}

TEST_F(Recipes, AVerifierThatSaysNothingReadsEverything) {
  yard_kernel_t d = kernel_of("op", "k", "plain");
  d.verify = accept;
  add({}, d);
  EXPECT_EQ((classes_over<std::vector<int64_t>>(&Made::rows, {{1}, {2}, {2, 1}, {}})), 4u);
  EXPECT_EQ((classes_over<DType>(&Made::dtype, {DType::f32, DType::f16})), 2u);
  EXPECT_EQ((classes_over<bool>(&Made::bias, {false, true})), 2u);
  EXPECT_EQ((classes_over<bool>(&Made::scale, {false, true})), 2u);
  EXPECT_EQ((classes_over<size_t>(&Made::list, {0, 1, 2})), 3u);
  EXPECT_EQ((classes_over<int64_t>(&Made::mode, {0, 1})), 2u);
  EXPECT_EQ((classes_over<int64_t>(&Made::groups, {1, 2})), 2u);
  EXPECT_EQ((classes_over<double>(&Made::eps, {1.0, 2.0})), 2u);
  EXPECT_EQ((classes_over<std::string>(&Made::name, {"", "s", "t", "a long name", "a long nam"})),
            5u);
  EXPECT_EQ((classes_over<int64_t>(&Made::x_gap, {0, 8, 16})), 3u);
  EXPECT_EQ((classes_over<uintptr_t>(&Made::x_offset, {0, 4, 8})), 3u);
}

TEST_F(Recipes, CostsReadHalfOctaves) {
  yard_kernel_t d = kernel_of("op", "k", "plain");
  const char* const reads[] = {"rows", nullptr};
  d.cost = free_of_charge, d.cost_reads = reads;
  add({}, d);
  EXPECT_EQ((classes_over<std::vector<int64_t>>(&Made::rows, {{1024}, {1535}, {32, 32}})), 1u);
  EXPECT_EQ((classes_over<std::vector<int64_t>>(&Made::rows, {{1023}, {1024}, {1535}, {1536}})),
            3u);
  EXPECT_EQ(
      (classes_over<std::vector<int64_t>>(&Made::rows, {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}})),
      6u);
  EXPECT_EQ((classes_over<int64_t>(&Made::d, {1, 100})), 1u);
}

// ---- Parameters of a kernel's own ----

TEST_F(Recipes, RequirementsOfParametersAreBits) {
  using plugin::Param;
  const plugin::Params params = {
      Param("out"),    Param("x").layout("row-major").dtypes({YARD_F32}).align(16).pad(8),
      Param("bias"),   Param("scale"),
      Param("xs"),     Param("mode"),
      Param("groups"), Param("eps"),
      Param("name")};
  yard_kernel_t d = kernel_of("op", "k", "plain");
  d.params = params.list(), d.param_count = params.count();
  add({}, d);
  EXPECT_EQ((classes_over<int64_t>(&Made::x_gap, {0, 8, 16})), 2u);
  EXPECT_EQ((classes_over<uintptr_t>(&Made::x_offset, {0, 8, 16, 24})), 2u);
  EXPECT_EQ((classes_over<int64_t>(&Made::d, {8, 16, 9, 23})), 2u);
  EXPECT_EQ((classes_over<DType>(&Made::dtype, {DType::f32, DType::bf16})), 2u);
  EXPECT_EQ((classes_over<bool>(&Made::bias, {false, true})), 1u);
  EXPECT_EQ((classes_over<std::vector<int64_t>>(&Made::rows, {{1}, {2}, {2, 1}})), 1u);
  EXPECT_TRUE(recipe_.reads_alignment());
}

TEST_F(Recipes, OnlyEstimatesReadHowMuchIsCopied) {
  using plugin::Param;
  const plugin::Params params = {Param("out"),    Param("x").layout("row-major"),
                                 Param("bias"),   Param("scale"),
                                 Param("xs"),     Param("mode"),
                                 Param("groups"), Param("eps"),
                                 Param("name")};
  yard_kernel_t d = kernel_of("op", "k", "plain");
  d.params = params.list(), d.param_count = params.count();
  add({}, d);
  EXPECT_EQ((classes_over<std::vector<int64_t>>(&Made::rows, {{2}, {100}}, {.x_gap = 8})), 1u);
  const char* const reads[] = {"groups", nullptr};
  d.cost = free_of_charge, d.cost_reads = reads;
  add({}, d);
  EXPECT_EQ((classes_over<std::vector<int64_t>>(&Made::rows, {{2}, {100}}, {.x_gap = 8})), 2u);
}

// Every bit must count even if there are more bits than one word has.
TEST_F(Recipes, ManyBitsSpreadOverWords) {
  std::vector<yard_limit_t> limits;
  for (int64_t i = 1; i <= 300; ++i) limits.push_back(limit(YARD_LIMIT_MIN, "d", 10 * i));
  add(limits);
  EXPECT_EQ(recipe_.tests(), 300u);
  std::vector<Made> calls;
  for (int64_t i = 0; i <= 300; ++i) calls.push_back({}), calls.back().d = 10 * i + 5;
  EXPECT_EQ(classes(calls), 301u);
}

TEST_F(Recipes, WhatDoesNotFitIntoAKeyHasNone) {
  std::vector<yard_limit_t> limits;
  for (int64_t i = 1; i <= 64 * 60; ++i) limits.push_back(limit(YARD_LIMIT_MIN, "d", i));
  add(limits);
  Key k;
  EXPECT_FALSE(fold({}, k));
}

TEST_F(Recipes, ALongListHasNoKeyAndAShortOneHas) {
  yard_kernel_t d = kernel_of("op", "k", "plain");
  d.verify = accept;
  add({}, d);
  Key k;
  EXPECT_FALSE(fold({.list = 40}, k));
  EXPECT_FALSE(fold({.name = std::string(4000, 'x')}, k));
  EXPECT_TRUE(fold({.list = 4}, k));
}

}  // namespace
}  // namespace yard::dispatch
