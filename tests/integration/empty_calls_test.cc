// SPDX-License-Identifier: Apache-2.0
// Calls that write no elements succeed at once without a kernel, however the call is made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/bound.h>
#include <yard/c.h>

#include "testing.h"

namespace yard::testing::empty_calls {
namespace {

constexpr int64_t kHuge = int64_t{1} << 40;
constexpr Op<void(Out, OptOut, InOut, In)> write_all{"write_all"};

class EmptyCalls : public ::testing::Test {
 protected:
  EmptyCalls() : bare_("write_all(out!: T[*r, n], more!?: T[m], sum~: T[k], x: T[*r, n])") {
    bare_.add(kernel_of("write_all", "default.a", 1)).or_throw();
  }
  // Makes some calls, which must succeed, and returns + for each that ran the kernel, else -.
  template <class F>
  std::string runs(const F& call) {
    std::string to;
    for (int i = 0; i < 4; ++i) {
      t_ran = 0;
      const Status s = call();
      to += !s.ok() ? s.to_string() : t_ran != 0 ? "+" : "-";
    }
    return to;
  }
  TensorView of(Sizes shape) { return view(memory_, shape); }

  Bare bare_;
  float memory_[64] = {}, other_[64] = {}, third_[64] = {};
  const TensorView none_ = view(memory_, {kHuge, 0}), no_x_ = view(other_, {kHuge, 0});
  const TensorView no_sum_ = view(third_, {0}), sum_ = view(third_, {4});
};

TEST_F(EmptyCalls, RunNoKernelOnAnyWay) {
  const auto on = write_all.on(bare_.runtime);
  EXPECT_EQ(runs([&] { return on(none_, std::nullopt, no_sum_, no_x_); }), "----");
  EXPECT_EQ(runs([&] { return on(none_, no_sum_, no_sum_, no_x_); }), "----");
  Options o;
  ResultRecord r;
  o.result = &r;
  EXPECT_EQ(runs([&] { return on.with(o)(none_, std::nullopt, no_sum_, no_x_); }), "----");
  EXPECT_EQ(r.attempts, 0);
  EXPECT_STREQ(r.kernel, "");
  EXPECT_EQ(runs([&] {
              return bare_.runtime.call("write_all", {none_, {"x", no_x_}, {"sum", no_sum_}});
            }),
            "----");
  const auto bound = bind(on, none_, std::nullopt, no_sum_, no_x_).value();
  EXPECT_EQ(runs([&] { return bound(); }), "----");
  EXPECT_EQ(runs([&] { return bound(none_, std::nullopt, no_sum_, no_x_); }), "----");
  EXPECT_EQ(bound.kernel(), "");
  const auto frozen = freeze(on, none_, std::nullopt, no_sum_, no_x_).value();
  EXPECT_EQ(runs([&] { return frozen(); }), "----");
  EXPECT_EQ(runs([&] { return frozen(none_, std::nullopt, no_sum_, no_x_); }), "----");
  // Tensors without elements need no data.
  const TensorView null(nullptr, DType::f32, {0, 3});
  EXPECT_EQ(runs([&] { return on(null, std::nullopt, no_sum_, null); }), "----");
}

TEST_F(EmptyCalls, RunTheKernelIfAnyWrittenTensorHasElements) {
  const auto on = write_all.on(bare_.runtime);
  EXPECT_EQ(runs([&] { return on(none_, std::nullopt, sum_, no_x_); }), "++++");
  EXPECT_EQ(runs([&] { return on(none_, sum_, no_sum_, no_x_); }), "++++");
  EXPECT_EQ(runs([&] { return on(of({4}), std::nullopt, no_sum_, view(other_, {4})); }), "++++");
  const auto bound = bind(on, none_, std::nullopt, sum_, no_x_).value();
  EXPECT_EQ(runs([&] { return bound(); }), "++++");
  const auto frozen = freeze(on, none_, std::nullopt, sum_, no_x_).value();
  EXPECT_EQ(runs([&] { return frozen(); }), "++++");
}

TEST_F(EmptyCalls, ThatComeBetweenOthersAreToldApart) {
  Bare plain;
  plain.add(kernel_of("copy", "default.a", 1)).or_throw();
  constexpr Op<void(Out, In, int64_t)> copy{"copy"};
  const auto on = copy.on(plain.runtime);
  for (int i = 0; i < 20; ++i)
    for (const int64_t n : {0, 8, 0, 3}) {
      t_ran = 0;
      ASSERT_TRUE(on(view(memory_, {n}), view(other_, {n}), 0).ok());
      EXPECT_EQ(t_ran != 0, n != 0) << i << ' ' << n;
    }
}

TEST_F(EmptyCalls, AreCheckedAndExplainedAsAnyOther) {
  const auto on = write_all.on(bare_.runtime);
  EXPECT_EQ(on(none_, std::nullopt, no_sum_, view(other_, {kHuge - 1, 0})).code(),
            Code::kInvalidArgument);
  const Explanation e =
      bare_.runtime.explain("write_all", {none_, nullptr, no_sum_, no_x_}).value();
  EXPECT_EQ(e.selected, "default.a");
}

TEST_F(EmptyCalls, WithListsOfOutputs) {
  Bare bare("lists(outs!: T[n][], x: T[n])");
  bare.add(kernel_of("lists", "default.a", 1)).or_throw();
  const auto call = [&](const TensorList& outs) {
    return bare.runtime.call("lists", {outs, view(other_, {0})});
  };
  const TensorView first = view(memory_, {0});
  EXPECT_EQ(runs([&] { return call({first, no_sum_}); }), "----");
  EXPECT_EQ(runs([&] { return call({}); }), "++++") << "nothing says that it is empty";
}

// A kernel would take hours for these sizes.
TEST(EmptyCallsOfBuiltInOps, ReturnAtOnce) {
  float memory[4] = {};
  const auto t = [&](Sizes shape) { return TensorView(memory, DType::f32, shape); };
  const auto call = [](std::string_view op, std::initializer_list<Arg> args) {
    const Status s = Runtime::shared().call(op, args);
    EXPECT_TRUE(s.ok()) << op << ": " << s.to_string();
  };
  for (int i = 0; i < 3; ++i) {
    const TensorView x = t({kHuge, 0}), row = t({0});
    call("softmax", {x, x});
    call("rms_norm", {x, x, row});
    call("layer_norm", {x, x, row});
    call("add", {x, x, x});
    call("mul", {x, x, x});
    call("silu_and_mul", {x, x});
    call("gelu_and_mul", {x, x});
    call("add_rms_norm", {x, TensorView(memory + 2, DType::f32, {kHuge, 0}), x, row});
    call("matmul", {x, t({kHuge, 4}), t({4, 0})});
    call("linear", {x, t({kHuge, 3}), t({0, 3})});
    const TensorView q = t({kHuge, 1, 1, 0});
    call("attention.full", {q, q, q, q});
    call("attention.causal", {q, q, q, q});
    call("rotary_embedding", {t({kHuge, 1, 0}), nullptr, nullptr, x, x});
  }
}

}  // namespace
}  // namespace yard::testing::empty_calls
