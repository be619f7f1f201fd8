// SPDX-License-Identifier: Apache-2.0
// Tests kernels with their own parameters: views, buffers, padding, and when arguments are copied.
#include "exec/mapped_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/plugin.hpp>

#include <cstring>
#include <functional>
#include <numeric>

#include "exec/executor.h"
#include "exec/states.h"
#include "op/testing.h"
#include "registry/testing.h"

namespace yard::exec {
namespace {

using plugin::Param;
using plugin::Params;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kStep =
    "step(out!: T[a, b, c], x: T[a, b, c], y~?: T[b, c], by: float = 1.0) where out may_alias x";

// A kernel of this op with these parameters, which runs `body`.
struct Mapped {
  explicit Mapped(const Params& params, uint32_t flags = 0) {
    registry::testing::Shelf shelf;
    yard_kernel_t d = registry::testing::kernel_of("step", "default.k", "plain");
    d.params = params.list(), d.param_count = params.count(), d.flags = flags, d.self = this;
    d.run = [](yard_call_t* call, const yard_value_t* args, uint32_t count) -> int32_t {
      return static_cast<Mapped*>(call->self)->body(call, args, count);
    };
    shelf.put(registry::testing::op_of(kStep), registry::testing::backend_of("plain"), d);
    kernel = shelf.kernel("step", "default.k");
    program = shelf.op_record("step")->op->program;
  }
  int32_t run(const yard_value_t* args, ResultRecord* record = nullptr) {
    CallFrame frame(nullptr, 0, this);
    frame.record = record;
    Request request{};
    request.args = args, request.count = 4;
    const int32_t code = run_kernel(base::this_thread(), *kernel, frame, request);
    error = frame.error, wrote_buffers_only = frame.wrote_buffers_only;
    return code;
  }

  std::function<int32_t(yard_call_t*, const yard_value_t*, uint32_t)> body =
      [](yard_call_t*, const yard_value_t*, uint32_t) { return YARD_OK; };
  std::shared_ptr<const registry::Kernel> kernel;
  std::shared_ptr<const op::Program> program;
  std::string error;
  bool wrote_buffers_only = false;
};

// The tensors `out` and `x` have the shape [2, 3, 4]. `x` counts from 0, and `y` is absent.
struct Call {
  explicit Call(DType t = DType::f32) : dtype(t) {
    std::iota(x.begin(), x.end(), 0.0f);
    args[0] = values.at(out.data(), t, {2, 3, 4});
    args[1] = values.at(x.data(), t, {2, 3, 4});
    args[3] = op::number(2.0);
  }
  op::Values values;
  DType dtype;
  std::vector<float> out = std::vector<float>(24), x = std::vector<float>(24);
  yard_value_t args[4] = {};
};

std::vector<int64_t> shape_of(const yard_value_t& v) {
  return {v.u.tensor->shape, v.u.tensor->shape + v.u.tensor->ndim};
}

TEST(MappedCall, PassesOnWhatNeedsNothing) {
  const Params params = {Param("by"), Param("x").layout("row-major"), Param("n", 7), Param("y"),
                         Param("out")};
  Mapped m(params);
  Call c;
  m.body = [&](yard_call_t*, const yard_value_t* args, uint32_t count) {
    EXPECT_EQ(count, 5u);
    EXPECT_EQ(args[0].u.f, 2.0);
    EXPECT_EQ(args[1].u.tensor, c.args[1].u.tensor) << "the caller's own tensor";
    EXPECT_EQ(args[2].u.i, 7);
    EXPECT_EQ(args[3].tag, uint32_t{YARD_TAG_NONE});
    EXPECT_EQ(args[4].u.tensor, c.args[0].u.tensor);
    return YARD_OK;
  };
  EXPECT_EQ(m.run(c.args), YARD_OK);
  EXPECT_FALSE(m.wrote_buffers_only);
}

TEST(MappedCall, CopiesIntoTheOrderOfTheKernelAndBack) {
  const Params params = {Param("x").layout("c a b"), Param("out").layout("c a b"), Param("y"),
                         Param("by")};
  Mapped m(params);
  Call c;
  m.body = [&](yard_call_t*, const yard_value_t* args, uint32_t) {
    EXPECT_THAT(shape_of(args[0]), ElementsAre(4, 2, 3));
    EXPECT_NE(args[0].u.tensor->facts & YARD_FACTS_COMPACT, 0u);
    const auto* from = static_cast<const float*>(args[0].u.tensor->data);
    auto* to = static_cast<float*>(args[1].u.tensor->data);
    EXPECT_EQ(from[0], 0);
    EXPECT_EQ(from[1], 4) << "the next b";
    EXPECT_EQ(from[6], 1) << "the next c";
    for (int i = 0; i < 24; ++i) to[i] = from[i] * 2;
    EXPECT_THAT(c.out, Each(0)) << "nothing is written to the caller's tensor yet";
    return YARD_OK;
  };
  ResultRecord record;
  EXPECT_EQ(m.run(c.args, &record), YARD_OK);
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(c.out[i], 2 * c.x[i]);
  EXPECT_GT(record.pre_ns, 0);
  EXPECT_GT(record.post_ns, 0);
  EXPECT_TRUE(m.wrote_buffers_only);
}

TEST(MappedCall, GivesAnotherViewWhereMemoryIsInThatOrderAlready) {
  const Params params = {Param("x").layout("a c b"), Param("out"), Param("y"), Param("by")};
  Mapped m(params);
  Call c;
  c.args[1] = c.values.at(c.x.data(), DType::f32, {2, 3, 4}, {12, 1, 3});
  m.body = [&](yard_call_t*, const yard_value_t* args, uint32_t) {
    EXPECT_EQ(args[0].u.tensor->data, c.x.data());
    EXPECT_THAT(shape_of(args[0]), ElementsAre(2, 4, 3));
    EXPECT_EQ(args[0].u.tensor->strides[2], 1);
    return YARD_OK;
  };
  ResultRecord record;
  EXPECT_EQ(m.run(c.args, &record), YARD_OK);
  EXPECT_EQ(record.pre_ns, 0);
}

TEST(MappedCall, PadsWithZerosAndCrops) {
  const Params params = {Param("x").pad(8), Param("out").pad(8), Param("y"), Param("by")};
  Mapped m(params);
  Call c;
  m.body = [&](yard_call_t*, const yard_value_t* args, uint32_t) {
    EXPECT_THAT(shape_of(args[0]), ElementsAre(2, 3, 8));
    const auto* from = static_cast<const float*>(args[0].u.tensor->data);
    EXPECT_EQ(from[3], 3);
    for (int i = 4; i < 8; ++i) EXPECT_EQ(from[i], 0);
    EXPECT_EQ(from[8], 4);
    std::memcpy(args[1].u.tensor->data, from, 48 * sizeof(float));
    return YARD_OK;
  };
  std::vector<char> dirt(4096, 0x7f);  // earlier contents of the buffers must not show
  EXPECT_EQ(m.run(c.args), YARD_OK);
  EXPECT_EQ(m.run(c.args), YARD_OK);
  EXPECT_EQ(c.out, c.x);
}

TEST(MappedCall, ReadsAndWritesTensorsThatAreBoth) {
  const Params params = {Param("y").layout("column-major"), Param("x"), Param("out"), Param("by")};
  Mapped m(params);
  Call c;
  std::vector<float> y(12, 1.0f);
  y[1] = 5;
  c.args[2] = c.values.at(y.data(), DType::f32, {3, 4});
  m.body = [&](yard_call_t*, const yard_value_t* args, uint32_t) {
    auto* at = static_cast<float*>(args[0].u.tensor->data);
    EXPECT_EQ(at[3], 5) << "row 0, column 1";
    at[1] = 9;  // row 1, column 0
    return YARD_OK;
  };
  EXPECT_EQ(m.run(c.args), YARD_OK);
  EXPECT_EQ(y[4], 9);
  EXPECT_EQ(y[1], 5);
  EXPECT_FALSE(m.wrote_buffers_only) << "out is the caller's";
}

TEST(MappedCall, AFailedKernelHasWrittenNothing) {
  const Params params = {Param("x"), Param("out").layout("a c b"), Param("y"), Param("by")};
  Mapped m(params);
  Call c;
  m.body = [&](yard_call_t*, const yard_value_t* args, uint32_t) {
    std::memset(args[1].u.tensor->data, 0x11, 96);
    return YARD_FAULT;
  };
  EXPECT_EQ(m.run(c.args), YARD_FAULT);
  EXPECT_THAT(c.out, Each(0));
  EXPECT_TRUE(m.wrote_buffers_only);
}

TEST(MappedCall, WorkspaceFollowsTheBuffers) {
  const Params params = {Param("x").layout("c b a"), Param("out"), Param("y"), Param("by")};
  Mapped m(params);
  const_cast<registry::Kernel&>(*m.kernel).d.workspace = [](void*, const yard_value_t* args,
                                                            uint32_t count) -> int64_t {
    EXPECT_EQ(count, 4u);
    return args[0].u.tensor->shape[0] * 100;  // in the kernel's order
  };
  Call c;
  m.body = [&](yard_call_t* call, const yard_value_t* args, uint32_t) {
    EXPECT_EQ(call->workspace_size, 400u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(call->workspace) % 64, 0u);
    std::memset(call->workspace, 0x22, call->workspace_size);
    EXPECT_EQ(static_cast<float*>(args[0].u.tensor->data)[1], 12) << "the next a";
    return YARD_OK;
  };
  EXPECT_EQ(m.run(c.args), YARD_OK);
}

// prepare() gets the arguments that the kernel runs on. The keys of states are fields of the op.
TEST(MappedCall, StatesArePreparedWithTheKernelsArguments) {
  const Params params = {Param("x").layout("c b a"), Param("out"), Param("y"), Param("by")};
  Mapped m(params);
  auto& d = const_cast<registry::Kernel&>(*m.kernel).d;
  d.create = [](yard_call_t* call, const yard_named_value_t*, uint32_t, void** state) -> int32_t {
    *state = call->self;
    return YARD_OK;
  };
  d.destroy = [](void*, void*) {};
  d.prepare = [](yard_call_t*, const yard_value_t* args, uint32_t count) -> int32_t {
    EXPECT_EQ(count, 4u);
    EXPECT_THAT(shape_of(args[0]), ElementsAre(4, 3, 2));
    EXPECT_EQ(static_cast<const float*>(args[0].u.tensor->data)[1], 12) << "the next a";
    return YARD_OK;
  };
  m.body = [&](yard_call_t* call, const yard_value_t*, uint32_t) {
    EXPECT_EQ(call->state, &m);
    return YARD_OK;
  };
  Call c;
  States states;
  CallFrame frame(nullptr, 0, &m);
  Request request{};
  request.args = c.args, request.count = 4;
  request.program = m.program.get(), request.states = &states;
  EXPECT_EQ(run_kernel(base::this_thread(), *m.kernel, frame, request), YARD_OK);
  EXPECT_EQ(states.held().states, 1u);
}

TEST(MappedCall, ATraceSeesTheKernelsArgumentsAndCopiesNothing) {
  const Params params = {Param("x").layout("c b a"), Param("out"), Param("y"), Param("by")};
  Mapped m(params);
  const_cast<registry::Kernel&>(*m.kernel).d.trace = [](yard_call_t*, const yard_value_t* args,
                                                        uint32_t) -> int32_t {
    EXPECT_THAT(shape_of(args[0]), ElementsAre(4, 3, 2));
    EXPECT_EQ(args[0].u.tensor->data, nullptr);
    return YARD_OK;
  };
  m.body = [](yard_call_t*, const yard_value_t*, uint32_t) { return YARD_FAULT; };
  Call c;
  CallFrame frame(nullptr, 0, &m);
  Request request{};
  request.args = c.args, request.count = 4, request.trace = true;
  EXPECT_EQ(run_kernel(base::this_thread(), *m.kernel, frame, request), YARD_OK);
}

TEST(MappedCall, DeclinesWhatTheHostCannotTransform) {
  const Params params = {Param("x").layout("c b a"), Param("out"), Param("y"), Param("by")};
  Mapped m(params);
  Call c;
  c.args[1] = c.values.at(c.x.data(), DType::f32, {2, 3, 4}, {}, Device{2, 0});
  EXPECT_EQ(m.run(c.args), YARD_DECLINED);
  EXPECT_THAT(m.error, HasSubstr("cannot be transformed"));
}

TEST(MappedCall, TooLargeBuffersAreATransientError) {
  const Params params = {Param("x").pad(65536), Param("out"), Param("y"), Param("by")};
  Mapped m(params);
  Call c;
  c.args[1] =
      c.values.at(c.x.data(), DType::f32, {int64_t{1} << 30, int64_t{1} << 20, 4}, {0, 0, 0});
  EXPECT_EQ(m.run(c.args), YARD_TRANSIENT);
  EXPECT_THAT(m.error, HasSubstr("no memory for buffers"));
}

// A kernel that wrote only to buffers has left the inputs intact, so another one may be tried.
TEST(MappedCall, AfterAFailureAnotherKernelMayRunInPlace) {
  const Params params = {Param("x"), Param("out").layout("a c b"), Param("y"), Param("by")};
  const Params plain = {Param("out"), Param("x"), Param("y"), Param("by")};
  for (const bool buffered : {true, false}) {
    Mapped first(buffered ? params : plain), second(plain);
    first.body = [](yard_call_t*, const yard_value_t*, uint32_t) { return YARD_FAULT; };
    const KernelStats stats[2] = {};
    const Attempt attempts[] = {{first.kernel.get(), &stats[0]}, {second.kernel.get(), &stats[1]}};
    const auto plan = Plan::make(0, {}, attempts);
    EXPECT_EQ(plan->direct, !buffered) << "in order, it can be called directly";
    Call c;
    c.args[0] = c.args[1];
    Request request{};
    request.op = "step", request.args = c.args, request.count = 4;
    request.flags = YARD_CALL_ALIASED, request.program = first.program.get();
    Outcome outcome;
    EXPECT_EQ(execute(base::this_thread(), *plan, request, outcome).ok(), buffered);
    EXPECT_EQ(outcome.served, buffered ? &plan->attempts[1] : nullptr);
  }
}

}  // namespace
}  // namespace yard::exec
