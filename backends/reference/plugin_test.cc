// SPDX-License-Identifier: Apache-2.0
// Tests the descriptor as a host reads it: ops, kernels, flags, typed and packed entries.
#include <set>

#include "testing.h"

namespace yard::reference::testing {
namespace {

TEST(Plugin, OneReferenceKernelForEachOp) {
  const yard_plugin_t* p = descriptor();
  EXPECT_EQ(p, descriptor());
  EXPECT_EQ(p->size, sizeof *p);
  ASSERT_EQ(p->backend_count, 1u);
  EXPECT_STREQ(p->backends[0]->name, "reference");
  EXPECT_EQ(p->backends[0]->vendor, nullptr);

  std::set<std::string> ops, served;
  for (uint32_t i = 0; i < p->op_count; ++i) {
    const std::string schema = p->ops[i]->schema;
    ops.insert(schema.substr(0, schema.find('(')));
    ASSERT_NE(p->ops[i]->summary, nullptr);
    // There is one tolerance per dtype of inexact results. Indices are exact.
    const bool indices = schema.starts_with("argmax") || schema.starts_with("sample");
    const bool quantized = schema.starts_with("quantize_int8");
    const uint32_t of_any = indices ? 0u : quantized ? 2u : 3u;
    // linear has as many again for each dtype of weights that allows activations in int8.
    const uint32_t of_weights = schema.starts_with("linear") ? 6 * of_any : 0;
    ASSERT_EQ(p->ops[i]->tolerance_count, of_any + of_weights) << schema;
    for (uint32_t k = 0; k < of_any + of_weights; ++k) {
      const yard_tolerance_t& t = p->ops[i]->tolerances[k];
      EXPECT_EQ(t.input != 0, t.atol > 0.02) << schema;
    }
  }
  for (uint32_t i = 0; i < p->kernel_count; ++i) {
    const yard_kernel_t& k = *p->kernels[i];
    served.insert(k.op);
    EXPECT_STREQ(k.id, "reference.cpp");
    EXPECT_STREQ(k.backend, "reference");
    EXPECT_EQ(k.kind, YARD_KIND_REFERENCE);
    EXPECT_EQ(k.flags, YARD_KERNEL_DETERMINISTIC | YARD_KERNEL_CAPTURE_SAFE |
                           YARD_KERNEL_FAILS_BEFORE_WRITING);
    EXPECT_EQ(k.cost, nullptr);
  }
  EXPECT_EQ(ops.size(), 23u);
  EXPECT_EQ(ops, served);
}

// Returns a schema's parameters as letters of plugin.h, read from its text.
std::string letters(const std::string& schema) {
  std::string result;
  const size_t end =
      schema.find(") where") == std::string::npos ? schema.rfind(')') : schema.find(") where");
  for (size_t at = schema.find(": "); at < end; at = schema.find(": ", at + 1)) {
    const std::string type = schema.substr(at + 2, 5);
    result += type.starts_with("float")                             ? 'f'
              : type.starts_with("bool")                            ? 'b'
              : type.starts_with("int") || type.starts_with("enum") ? 'i'
                                                                    : 't';
  }
  return result;
}

TEST(Plugin, TypedSignaturesFollowTheSchemas) {
  const yard_plugin_t* p = descriptor();
  for (uint32_t i = 0; i < p->op_count; ++i) {
    const std::string schema = p->ops[i]->schema;
    EXPECT_EQ(letters(schema), kernel_of(schema.substr(0, schema.find('(')))->typed_signature)
        << schema;
  }
}

TEST(Plugin, TypedAndPackedAgree) {
  for (uint32_t dtype : kFloats) {
    TestTensor x(dtype, {3, 8}), w(dtype, {8}), b(dtype, {8});
    TestTensor o1(dtype, {3, 8}), o2(dtype, {3, 8}), h1(dtype, {3, 4}), h2(dtype, {3, 4});
    TestTensor r1(dtype, {3, 8}), r2(dtype, {3, 8}), q1(dtype, {2, 2, 4}), q2(dtype, {2, 2, 4});
    TestTensor positions(YARD_I32, {2}, {5, 6});
    x.fill(1), w.fill(2), b.fill(3), r1.fill(4), r2.fill(4), q1.fill(5), q2.fill(5);
    const auto same = [](const Outcome& a, const Outcome& c, const TestTensor& ta,
                         const TestTensor& tc) {
      EXPECT_EQ(a.code, YARD_OK);
      EXPECT_EQ(c.code, YARD_OK);
      EXPECT_EQ(ta.bytes(), tc.bytes());
    };
    same(run("rms_norm", o1, x, w, 1e-6), run_typed("rms_norm", o2, x, w, 1e-6), o1, o2);
    same(run("add_rms_norm", o1, r1, x, w, 1e-6), run_typed("add_rms_norm", o2, r2, x, w, 1e-6), o1,
         o2);
    EXPECT_EQ(r1.bytes(), r2.bytes());
    same(run("layer_norm", o1, x, w, b, 1e-5), run_typed("layer_norm", o2, x, w, b, 1e-5), o1, o2);
    same(run("layer_norm", o1, x, nullptr, b, 1e-5),
         run_typed("layer_norm", o2, x, nullptr, b, 1e-5), o1, o2);
    same(run("silu_and_mul", h1, x), run_typed("silu_and_mul", h2, x), h1, h2);
    same(run("gelu_and_mul", h1, x, int64_t{1}), run_typed("gelu_and_mul", h2, x, int64_t{1}), h1,
         h2);
    same(run("softmax", o1, x), run_typed("softmax", o2, x), o1, o2);
    same(run("rotary_embedding", q1, nullptr, positions, nullptr, nullptr, int64_t{2}, 1e4,
             int64_t{1}),
         run_typed("rotary_embedding", q2, nullptr, positions, nullptr, nullptr, int64_t{2}, 1e4,
                   int64_t{1}),
         q1, q2);
    same(run("linear", o1, x, TestTensor(dtype, {8, 8}).fill(6), nullptr, b),
         run_typed("linear", o2, x, TestTensor(dtype, {8, 8}).fill(6), nullptr, b), o1, o2);
    TestTensor w1(YARD_F32, {3, 2}), w2(YARD_F32, {3, 2}), i1(YARD_I32, {3, 2}),
        i2(YARD_I32, {3, 2});
    same(run("topk_softmax", w1, i1, x, true), run_typed("topk_softmax", w2, i2, x, true), w1, w2);
    EXPECT_EQ(i1.bytes(), i2.bytes());
  }
}

TEST(Plugin, RejectsUnreadableArguments) {
  TestTensor x(YARD_F64, {2, 2}), out(YARD_F64, {2, 2});
  const Outcome outcome = run("softmax", out, x);
  EXPECT_EQ(outcome.code, YARD_DECLINED);
  EXPECT_NE(outcome.message.find("dtype"), std::string::npos);
  EXPECT_EQ(run("softmax", out).code, YARD_FAULT);  // an argument is missing
}

}  // namespace
}  // namespace yard::reference::testing
