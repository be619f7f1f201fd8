// SPDX-License-Identifier: Apache-2.0
#include "kernel_cases.h"

#include <fmt/format.h>
#include <yard/runtime.h>

#include <algorithm>

#include "bench/measured_calls.h"

namespace yard::bench {
namespace {

// Target speeds relative to a copy. Single cores of the smaller machine are bound by arithmetic.
#if defined(__x86_64__)
constexpr double kNormOfCopy = 0.9, kActivationOfCopy = 0.9;
#else
constexpr double kNormOfCopy = 0.5, kActivationOfCopy = 0.4;
#endif
constexpr double kOverTorch = 1.3, kSoftmaxOverTorch = 1.0;
constexpr int64_t kHidden = 4096, kAttentionHidden = 8 * kHeadDim;

struct RowOp {
  const char* op;
  double over_torch;
  double of_copy;  // for many rows
};
constexpr RowOp kRowOps[] = {
    {"rms_norm", kOverTorch, kNormOfCopy},
    {"add_rms_norm", kOverTorch, kNormOfCopy},
    {"layer_norm", kOverTorch, kNormOfCopy},
    {"silu_and_mul", kOverTorch, kActivationOfCopy},
    {"gelu_and_mul", kOverTorch, kActivationOfCopy},
    {"softmax", kSoftmaxOverTorch, 0},
    {"rotary_embedding", kOverTorch, 0},
    {"add", kOverTorch, 0},
    {"mul", kOverTorch, 0},
    {"embedding", kOverTorch, 0},
    {"quantize_int8", kOverTorch, 0},
    {"dequantize", kOverTorch, 0},
    {"topk_softmax", kOverTorch, 0},
    {"argmax", kOverTorch, 0},
};

}  // namespace

std::vector<KernelCase> kernel_cases() {
  constexpr int64_t kManyRows = 4096;
  std::vector<KernelCase> to;
  for (const RowOp& op : kRowOps)
    for (const char* dtype : {"f32", "bf16"})
      for (const int64_t rows : {int64_t{1}, int64_t{64}, kManyRows})
        to.push_back(
            {op.op, dtype, rows, kHidden, op.over_torch, rows == kManyRows ? op.of_copy : 0, 0});
  for (const bool packed : {false, true})
    for (const char* dtype : {"f32", "bf16"})
      for (const int64_t rows : {1, 8, 64, 512})
        to.push_back({"linear", dtype, rows, kHidden, 0, 0, 0.9, packed});
  for (const std::string dtype : {"f32", "bf16"})
    for (const int64_t tokens : {512, 1024, 2048, 4096})
      to.push_back(
          {"attention.causal", dtype, tokens, kAttentionHidden, dtype == "f32" ? 1.0 : 0.7, 0, 0});
  for (const char* dtype : {"f32", "bf16"})
    for (const int64_t batch : {1, 8})
      to.push_back({"attention.decode", dtype, batch, kHidden, 0, 0, 0});
  return to;
}

std::string call_text(const KernelCase& c) {
  if (c.op == "dequantize")
    return fmt::format("dequantize(out={}[{},{}], x=i8[{},{}], scale=f32[{}])", c.dtype, c.rows,
                       c.hidden, c.rows, c.hidden, c.rows);
  if (c.op == "embedding")
    return fmt::format("embedding(out={0}[{1},{2}], ids=i32[{1}], table={0}[{3},{2}])", c.dtype,
                       c.rows, c.hidden, kVocabulary);
  const int64_t heads = c.hidden / kHeadDim;
  if (c.op == "layer_norm")
    return fmt::format("layer_norm({0}[{1},{2}], {0}[{2}], {0}[{2}])", c.dtype, c.rows, c.hidden);
  if (c.op == "rotary_embedding")
    return fmt::format(
        "rotary_embedding({0}[{1},{2},{4}], {0}[{1},{3},{4}], i64[{1}], {0}[{1},{5}], "
        "{0}[{1},{5}])",
        c.dtype, c.rows, heads, heads / 4, kHeadDim, kHeadDim / 2);
  const bool causal = c.op == "attention.causal";
  const tool::Shapes shapes = {{"rows", {c.rows}},
                               {"tokens", {c.rows}},
                               {"hidden", {c.hidden}},
                               {"d", {c.hidden}},
                               {"n", {c.hidden}},
                               {"heads", {heads}},
                               {"head_dim", {kHeadDim}},
                               {"kv_heads", {causal ? heads : heads / 4}},
                               {"dim", {kHeadDim}},
                               {"seq", {c.rows}},
                               {"kv_seq", {c.rows}},
                               {"batch", {causal ? 1 : c.rows}},
                               {"capacity", {kCacheKeys}},
                               {"vocab", {kVocabulary}},
                               {"k", {c.op == "linear" ? c.hidden : kTopExperts}},
                               {"experts", {kExperts}}};
  const Listing listing = Runtime::shared().list();
  return tool::measured_calls(*listing.find_op(c.op), {c.dtype}, shapes).value().at(0);
}

std::unique_ptr<CallTensors> case_tensors(const std::string& text) {
  std::unique_ptr<CallTensors> data = tool::measured_tensors(Runtime::shared().parse(text).value());
  for (const Arg& a : data->args()) {
    if (a.name != "lengths" || a.value.c().tag != YARD_TAG_TENSOR) continue;
    const TensorView lengths(*a.value.c().u.tensor);
    std::fill_n(static_cast<int32_t*>(lengths.data()), lengths.numel(), int32_t{kCacheKeys});
  }
  return data;
}

}  // namespace yard::bench
