// SPDX-License-Identifier: Apache-2.0
// Tests descriptors of kernels that have their own parameters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/plugin.hpp>

#include "registry/testing.h"

namespace yard::registry {
namespace {

using plugin::Param;
using plugin::Params;
using ::testing::AllOf;
using testing::backend_of;
using ::testing::HasSubstr;
using testing::kernel_of;
using testing::op_of;
using testing::Shelf;

class KernelParams : public ::testing::Test {
 protected:
  KernelParams() { shelf_.put(op_of(testing::kNorm), backend_of("plain")); }

  static yard_kernel_t kernel(const Params& params) {
    yard_kernel_t d = kernel_of("norm", "default.k", "plain");
    d.params = params.list(), d.param_count = params.count();
    return d;
  }
  // Returns the error of reading or registering the kernel.
  std::string why(const yard_kernel_t& d) {
    auto read = read_kernel(d, {});
    if (!read.ok()) return read.status().to_string();
    return shelf_.fails({AddKernel{*std::move(read)}}).to_string();
  }
  std::string why(const Params& params) { return why(kernel(params)); }

  Shelf shelf_;
};

TEST_F(KernelParams, AreResolvedWhenTheKernelIsRegistered) {
  const Params params = {Param("n", 3),     Param("input").from("x").layout("row-major"),
                         Param("bias"),     Param("out").dtypes({YARD_F32}),
                         Param("mode"),     Param("groups"),
                         Param("tag", "s"), Param("extra", nullptr)};
  shelf_.put(kernel(params));
  const auto map = shelf_.kernel("norm", "default.k")->map;
  ASSERT_NE(map, nullptr);
  EXPECT_EQ(map->signature, "itttiivt");
  EXPECT_EQ(map->params[1].source, 1);
  EXPECT_EQ(map->params[0].constant.u.i, 3);
  EXPECT_FALSE(map->in_order);
}

TEST_F(KernelParams, ATypedEntryHasTheSignatureOfThese) {
  const Params params = {Param("x"),    Param("out"),    Param("bias"),
                         Param("mode"), Param("groups"), Param("by", 2.0)};
  yard_kernel_t d = kernel(params);
  d.typed = reinterpret_cast<void (*)()>(testing::succeed);
  d.typed_signature = testing::kNormSignature;
  EXPECT_THAT(why(d),
              HasSubstr("expected 'tttiif' for (x, out, bias, mode, groups, by): 'by' is missing"));
  d.typed_signature = "tttiif";
  shelf_.put(d);
}

TEST_F(KernelParams, AreRefusedWithTheirNames) {
  EXPECT_THAT(why(Params{Param("x"), Param("x")}), HasSubstr("two parameters are called 'x'"));
  EXPECT_THAT(why(Params{Param("a b")}), HasSubstr("'a b'"));
  EXPECT_THAT(why(Params{Param("x").from("y")}),
              AllOf(HasSubstr("'x'"), HasSubstr("no parameter 'y'"), HasSubstr("default.k")));
  EXPECT_THAT(why(Params{Param("out"), Param("x").layout("rows hidden")}),
              HasSubstr("invalid layout 'rows hidden'"));
  EXPECT_THAT(why(Params{Param("n", 1).from("x")}), HasSubstr("a constant has no source"));
  EXPECT_THAT(why(Params{Param("out"), Param("x"), Param("bias"), Param("groups")}),
              HasSubstr("'mode'"));
}

TEST_F(KernelParams, MayLeaveOutWhatALimitOrTheVerifierFixes) {
  const Params params = {Param("out"), Param("x")};
  const yard_limit_t limits[] = {plugin::absent("bias"), plugin::equals("mode", 0)};
  yard_kernel_t d = kernel(params);
  d.limits = limits, d.limit_count = 2;
  EXPECT_THAT(why(d), HasSubstr("'groups'"));
  const char* const reads[] = {"groups", nullptr};
  d.verify = [](const yard_query_t*, yard_verdict_t*) -> int32_t { return YARD_OK; };
  d.verify_reads = reads;
  shelf_.put(d);
}

TEST_F(KernelParams, AreReadFromUntrustedDescriptors) {
  yard_param_t p = Param("x").d;
  const yard_param_t* list[] = {&p};
  yard_kernel_t d = kernel_of("norm", "default.k", "plain");
  d.param_count = 1;
  EXPECT_THAT(why(d), HasSubstr("1 parameters stated, none given"));
  d.params = list, d.param_count = YARD_MAX_ARGS + 1;
  EXPECT_THAT(why(d), HasSubstr("at most 24"));
  d.param_count = 1;
  p.flags = 0x80;
  EXPECT_THAT(why(d), HasSubstr("flags 0x80"));
  p.flags = YARD_PARAM_CONSTANT, p.constant.tag = YARD_TAG_TENSOR;
  EXPECT_THAT(why(d), HasSubstr("expected a scalar"));
  p.constant.tag = YARD_TAG_STRING, p.constant.u.string = nullptr;
  EXPECT_THAT(why(d), HasSubstr("invalid constant"));
  list[0] = nullptr;
  EXPECT_THAT(why(d), HasSubstr("parameter 0 is NULL"));
  // A parameter from an older header ends before `constant`, which then reads as zero.
  const testing::Cut<yard_param_t> cut(Param("x").d, offsetof(yard_param_t, constant));
  list[0] = &cut.get();
  EXPECT_EQ(read_kernel(d, {}).value()->params[0].name, "x");
}

TEST_F(KernelParams, ThatMayNeedTransformsAreNotForAsynchronousKernels) {
  const Params params = {Param("out").layout("row-major"), Param("x"), Param("bias"), Param("mode"),
                         Param("groups")};
  yard_kernel_t d = kernel(params);
  d.flags = YARD_KERNEL_ASYNC;
  EXPECT_THAT(why(d), AllOf(HasSubstr("'out'"), HasSubstr("asynchronous")));
}

TEST_F(KernelParams, AreADifferenceBetweenKernels) {
  const Params params = {Param("out"), Param("x"), Param("bias"), Param("mode"), Param("groups")};
  const Params other = {Param("out"), Param("x").layout("row-major"), Param("bias"), Param("mode"),
                        Param("groups")};
  shelf_.put(kernel(params)).put(kernel(params));
  EXPECT_THAT(why(other), HasSubstr("different parameters"));
}

}  // namespace
}  // namespace yard::registry
