// SPDX-License-Identifier: Apache-2.0
// The trace of dispatched functions shows which backend ran, and why others did not.
#include <gmock/gmock.h>
#include <yard/trace.h>

#include "functions_testing.h"

namespace yard::testing::traced {
namespace {

using ::testing::HasSubstr;

struct Shape {
  int64_t rows = 1;
};
enum class Mode { kFused, kChunked };

const Function<int(int)> inner{"tr_group", "inner", [](int x) { return x; }};
const Function<int(const Shape&, const TensorView&, Mode, float, const std::string&)> outer{
    "tr_group", "outer",
    [](const Shape&, const TensorView&, Mode, float, const std::string&) { return inner(3); }};

class FunctionTrace : public FunctionTest {
 protected:
  static int call() {
    return outer(Shape{2}, TensorView(data_, DType::f32, {4}), Mode::kChunked, 0.5f, "causal");
  }
  static inline float data_[4] = {};
};

TEST_F(FunctionTrace, RecordsTheChoiceItsArgumentsAndReasonsOfTheOthers) {
  add(
      inner, "tr_first", [](int) { return 1; },
      [](int x) -> Verdict { return x > 9 ? Verdict(Accept()) : Reject("{0} is too small", x); },
      {.priority = 5});
  add(inner, "tr_second", [](int) { return 2; });
  add(inner, plugin::Backend("tr_off").enable(YARD_ENABLE_OFF).d, [](int) { return 3; });
  TraceScope trace;
  EXPECT_EQ(call(), 2);  // functions run during a trace, because only they know their result
  const auto nodes = trace.nodes();
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].op, "tr_group/outer");
  EXPECT_EQ(nodes[0].kernel, "original");
  ASSERT_EQ(nodes[0].args.size(), 5u);
  EXPECT_THAT(nodes[0].args[0].text, HasSubstr("Shape{8:8}"));
  EXPECT_EQ(nodes[0].args[1].text, "f32[4]");
  EXPECT_EQ(nodes[0].args[1].reads, 0);
  EXPECT_EQ(nodes[0].args[1].writes, 1);
  EXPECT_EQ(nodes[0].args[2].text, "1");
  EXPECT_EQ(nodes[0].args[3].text, "0.5");
  EXPECT_EQ(nodes[0].args[4].text, "\"causal\"");
  EXPECT_EQ(nodes[1].call, "tr_group/inner(3)");
  EXPECT_EQ(nodes[1].kernel, "tr_second");
  EXPECT_EQ(nodes[1].note, "tr_first refuses: 3 is too small");
  EXPECT_THAT(trace.to_text(),
              HasSubstr("tr_group/inner(3)  [tr_second]  # tr_first refuses: 3 is too small\n"));
  EXPECT_THAT(trace.to_json(),
              HasSubstr(R"j("op": "tr_group/inner", "call": "tr_group/inner(3)")j"));
}

TEST_F(FunctionTrace, AFallbackIsTwoNodes) {
  add(inner, "tr_bad", [](int) -> int { throw std::runtime_error("smoke"); });
  TraceScope trace;
  EXPECT_EQ(inner(4), 4);
  const auto nodes = trace.nodes();
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].kernel, "tr_bad");
  EXPECT_EQ(nodes[1].kernel, "original");
  EXPECT_EQ(nodes[1].note, "tr_bad has failed");
}

TEST_F(FunctionTrace, EndsWithItsScope) {
  add(inner, "tr_first", [](int) { return 1; });
  {
    TraceScope trace;
    inner(1);
    ScopedPolicy in(Scope().inference());
    inner(2);
    EXPECT_EQ(trace.nodes().size(), 2u);
  }
  TraceScope later;
  EXPECT_TRUE(later.nodes().empty());
}

}  // namespace
}  // namespace yard::testing::traced
