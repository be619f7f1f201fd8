// SPDX-License-Identifier: Apache-2.0
#include "tune/exercise.h"

#include <gmock/gmock.h>

#include "fault.h"
#include "tune/testing.h"

namespace yard::tune::testing {
namespace {

using ::testing::HasSubstr;

class Exercise : public ::testing::Test {
 protected:
  Exercised run(fault::Behaviour b, uint32_t flags = 0) {
    b.delegate = &shelf.reference;
    kernel = std::make_unique<fault::FaultKernel>(
        fault::Spec{.op = "copy", .id = "fault.k", .flags = flags}, std::move(b));
    shelf.shelf.put(kernel->descriptor());
    ExerciseOptions options;
    options.watch = [this](std::string_view id, const VerifyCase& c) {
      watched.push_back(std::string(id) + " " + c.call);
    };
    return exercise({shelf.shelf.op_record("copy"), {"fault.k"}, {}}, options);
  }
  static int32_t overstep(yard_call_t*, const yard_value_t* args, uint32_t) {
    const plugin::Tensor out(args[0].u.tensor);
    out.data<char>()[-1] = 77;
    return YARD_OK;
  }
  CopyShelf shelf;
  std::unique_ptr<fault::FaultKernel> kernel;
  std::vector<std::string> watched;
};

TEST_F(Exercise, RunsEachKernelOnAFewCallsAndTellsBeforehand) {
  const Exercised e = run({});
  EXPECT_EQ(e.damage, "");
  EXPECT_EQ(e.kernels, 1u);
  EXPECT_EQ(e.runs, 4u);
  ASSERT_EQ(watched.size(), 8u);  // the reference first: is the call one?
  EXPECT_THAT(watched[0], HasSubstr("reference.copy copy("));
  EXPECT_THAT(watched[1], HasSubstr("fault.k copy("));
}

TEST_F(Exercise, WrongNumbersAreNotItsBusiness) {
  EXPECT_EQ(run({.wrong_numbers = true, .offset = 0.25}).damage, "");
}

TEST_F(Exercise, NeitherAreFailures) {
  EXPECT_EQ(run({.callback = [](auto...) { return int32_t{YARD_FAULT}; }}).damage, "");
}

TEST_F(Exercise, AKernelThatWritesBesideItsTensorsIsFoundAtOnce) {
  const Exercised e = run({.callback = overstep});
  EXPECT_THAT(e.damage, HasSubstr("out"));
  EXPECT_EQ(e.runs, 1u);
  EXPECT_THAT(watched.back(), HasSubstr("fault.k"));
}

TEST_F(Exercise, AnOpWithoutReferenceIsRunToo) {
  registry::testing::Shelf bare;
  yard_kernel_t k = plugin::Kernel::of<copy>("copy", "default.copy").backend("plain").d;
  bare.put(registry::testing::op_of(kCopy), registry::testing::backend_of("plain"), k);
  const Exercised e = exercise({bare.op_record("copy"), {"default.copy"}, {}}, {});
  EXPECT_EQ(e.runs, 4u);
}

}  // namespace
}  // namespace yard::tune::testing
