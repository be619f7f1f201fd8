// SPDX-License-Identifier: Apache-2.0
// Packed calls and calls by name use memos. They must still find every mistake in a call of a
// remembered form, and pass kernels the caller's arguments.
#include <gtest/gtest.h>

#include <functional>

#include "call_memo_testing.h"
#include "dispatch/call.h"

namespace yard::testing {
namespace {

// The arguments that the last kernel received.
thread_local std::vector<yard_value_t> t_given;
int32_t keep_arguments(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  t_given.assign(args, args + count);
  return note(call);
}

class PackedCalls : public ::testing::Test {
 protected:
  PackedCalls() {
    yard_kernel_t k = kernel_of("scale", "a", 1, 1);
    k.run = keep_arguments;
    bare_.add(k).or_throw();
    static const yard_limit_t compact = plugin::compact("x");
    yard_kernel_t better = kernel_of("scale", "b", 2, 10);
    better.run = keep_arguments, better.limits = &compact, better.limit_count = 1;
    bare_.add(better).or_throw();
    Status why;
    site_ = bare_.runtime.core().sites.attach("scale", dispatch::kPackedLetters, &why);
    why.or_throw();
    reset();
  }
  void reset() {
    for (int i = 0; i < 3; ++i) {
      tensors_[i] = views_[i].c();
      args_[i] = {YARD_TAG_TENSOR, 0, {.tensor = &tensors_[i]}};
    }
    args_[3] = Value(0.5).c();
    args_[4] = Value(2).c();
  }
  Outcome packed(uint32_t count = 5) {
    return result_of([&] { return Status::adopt(dispatch::call(site_, {args_.data(), count})); });
  }
  Outcome named(const std::vector<Arg>& args) {
    return result_of([&] { return bare_.runtime.call("scale", args); });
  }

  static constexpr Outcome kServed{Code::kOk, 2, 0}, kRefused{Code::kInvalidArgument, 0, 0};
  static constexpr Outcome kStrided{Code::kOk, 1, 0};
  Bare bare_{"scale(out!: T[n, d], x: T[n, d], w: T[d], by: float = 0.25, k: int = 3)"};
  alignas(64) float data_[3][64] = {};
  const TensorView views_[3] = {TensorView(data_[0], DType::f32, {4, 8}),
                                TensorView(data_[1], DType::f32, {4, 8}),
                                TensorView(data_[2], DType::f32, {8})};
  yard_tensor_t tensors_[3];
  int64_t shape_[2] = {4, 8}, strides_[2] = {8, 1};  // for a tensor whose layout changes
  std::array<yard_value_t, 8> args_{};
  detail::Site* site_;
};

TEST_F(PackedCalls, WrongArgumentsAreRefusedAlthoughTheFormIsRemembered) {
  const int64_t negative[2] = {-4, 8};
  const std::function<void()> wrong[] = {
      [&] { args_[1].u.tensor = nullptr; },
      [&] { args_[2].u.tensor = nullptr; },
      [&] { args_[0].tag = YARD_TAG_NONE; },
      [&] { args_[1].tag = YARD_TAG_LIST, args_[1].count = 0; },
      [&] { args_[2].tag = YARD_TAG_INT; },
      [&] { args_[2].tag = 0x80000001u; },
      [&] { args_[3].tag = YARD_TAG_INT; },
      [&] { args_[3].tag = YARD_TAG_TENSOR, args_[3].u.tensor = &tensors_[1]; },
      [&] { args_[4].tag = YARD_TAG_FLOAT; },
      [&] { args_[4].tag = 99; },
      [&] { tensors_[0].data = nullptr; },
      [&] { tensors_[2].data = nullptr, tensors_[2].byte_offset = 64; },
      [&] { tensors_[1].shape = nullptr; },
      [&] { tensors_[2].shape = nullptr; },
      [&] { tensors_[1].shape = negative; },
      [&] { tensors_[0].ndim = 0; },
      [&] { tensors_[1].ndim = 1; },
      [&] { tensors_[1].ndim = -1; },
      [&] { tensors_[2].ndim = 9; },
      [&] { tensors_[2].ndim = INT32_MIN; },
      [&] { tensors_[0].dtype.lanes = 2; },
      [&] { tensors_[1].dtype.bits = 16; },
      [&] { tensors_[1].device.type = 2; },
      [&] { tensors_[1].device.index = 300; },
      [&] { tensors_[1].data = data_[0]; },
  };
  for (size_t i = 0; i < std::size(wrong); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    for (int n = 0; n < 3; ++n) ASSERT_EQ(packed(), kServed);
    wrong[i]();
    for (int n = 0; n < 3; ++n) ASSERT_EQ(packed(), kRefused);
    reset();
    ASSERT_EQ(packed(), kServed);
  }
  for (const uint32_t count : {0u, 1u, 2u, 3u, 4u, 6u, 8u, 25u, 0x80000005u}) {
    ASSERT_EQ(packed(), kServed);
    ASSERT_EQ(packed(count), kRefused) << count;
  }
}

TEST_F(PackedCalls, StridesMayComeAndGo) {
  for (int i = 0; i < 20; ++i) {
    tensors_[1].strides = i % 2 == 0 ? nullptr : views_[1].c().strides;
    tensors_[2].strides = i % 3 == 0 ? nullptr : views_[2].c().strides;
    ASSERT_EQ(packed(), kServed) << i;
  }
}

TEST_F(PackedCalls, WhatIsWrittenInPlaceIsSeen) {
  int64_t(&shape)[2] = shape_, (&strides)[2] = strides_;
  tensors_[1].shape = shape, tensors_[1].strides = strides;
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(packed(), kServed);
    shape[0] = 3;
    ASSERT_EQ(packed(), kRefused);
    shape[0] = 4, shape[1] = 7;
    ASSERT_EQ(packed(), kRefused);
    shape[1] = 8, strides[0] = 16;
    ASSERT_EQ(packed(), kStrided);
    strides[0] = 8, strides[1] = 2;
    ASSERT_EQ(packed(), kStrided);
    strides[1] = 1;
    tensors_[1].data = data_[0], tensors_[1].byte_offset = 128;  // next to the output
    ASSERT_EQ(packed(), kServed);
    tensors_[1].byte_offset = 124;  // overlaps the output
    ASSERT_EQ(packed(), kRefused);
    tensors_[1].data = data_[1], tensors_[1].byte_offset = 0;
  }
}

TEST_F(PackedCalls, ByNameConversionsHappenAlthoughTheFormIsRemembered) {
  const TensorView &out = views_[0], &x = views_[1], &w = views_[2];
  for (int i = 0; i < 5; ++i) {
    for (int n = 0; n < 3; ++n) {
      ASSERT_EQ(named({out, x, w, {"by", 1.5}}), kServed);
      ASSERT_EQ(t_given[3].u.f, 1.5);
      ASSERT_EQ(t_given[4].u.i, 3);
    }
    ASSERT_EQ(named({out, x, w, {"by", 7}}), kServed);
    ASSERT_EQ(t_given[3].tag, static_cast<uint32_t>(YARD_TAG_FLOAT));
    ASSERT_EQ(t_given[3].u.f, 7.0);
    ASSERT_EQ(named({out, x, w, {"by", "7"}}), kRefused);
    ASSERT_EQ(named({out, x, w, {"by", out}}), kRefused);
    ASSERT_EQ(named({out, x, 3, {"by", 1.5}}), kRefused);
    ASSERT_EQ(named({out, x, w, {"k", 7}}), kServed);
    ASSERT_EQ(t_given[3].u.f, 0.25);
    ASSERT_EQ(t_given[4].u.i, 7);
    ASSERT_EQ(named({{"x", x}, {"w", w}, {"out", out}, {"k", i}}), kServed);
    ASSERT_EQ(t_given[0].u.tensor, &out.c());
    ASSERT_EQ(t_given[2].u.tensor, &w.c());
    ASSERT_EQ(named({out, out, w}), kRefused);
  }
}

TEST_F(PackedCalls, ByNameTensorsOfAnyOriginCanBeMixed) {
  const yard_value_t raw = args_[1];
  for (int i = 0; i < 30; ++i) {
    tensors_[1].strides = i % 5 == 0 ? nullptr : views_[1].c().strides;
    const Value x = i % 3 == 0 ? Value(raw) : Value(views_[1]);
    ASSERT_EQ(x.c().count, 0u);
    ASSERT_EQ(named({views_[0], x, views_[2], 1.5}), kServed);
    ASSERT_EQ(t_given[1].u.tensor, i % 3 == 0 ? &tensors_[1] : &views_[1].c());
    for (const yard_value_t& v : t_given) ASSERT_EQ(v.count, 0u);
    tensors_[1].ndim = 1;
    ASSERT_EQ(named({views_[0], Value(raw), views_[2], 1.5}), kRefused);
    tensors_[1].ndim = 2;
    yard_value_t null = raw;
    null.u.tensor = nullptr;
    ASSERT_EQ(named({views_[0], Value(null), views_[2], 1.5}), kRefused);
  }
}

// Alternates between forms that differ in one thing. There are more of them than a hash has slots.
TEST_F(PackedCalls, ManyFormsInTurn) {
  struct Form {
    TensorView out, x;
    Outcome expected;
  };
  std::vector<Form> forms;
  for (int64_t n = 1; n <= 7; ++n)
    for (const int64_t step : {8, 9})
      for (const bool strided_out : {false, true})
        forms.push_back({TensorView(data_[0], DType::f32, {n, 8}, {strided_out ? 9 : 8, 1}),
                         TensorView(data_[1], DType::f32, {n, 8}, {step, 1}),
                         step == 9 && n > 1 ? kStrided : kServed});
  for (int round = 0; round < 20; ++round)
    for (const Form& f : forms) {
      args_[0].u.tensor = &f.out.c(), args_[1].u.tensor = &f.x.c();
      for (int again = 0; again <= round % 3; ++again) {
        ASSERT_EQ(packed(), f.expected);
        ASSERT_EQ(named({f.out, f.x, views_[2], {"by", 1.5}}), f.expected);
      }
    }
}

}  // namespace
}  // namespace yard::testing
