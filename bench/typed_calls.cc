// SPDX-License-Identifier: Apache-2.0
// Makes typed calls of the built-in ops.
#include <yard/yard.h>

#include <stdexcept>

#include "kernel_cases.h"

namespace yard::bench {
namespace {

constexpr Op<void(Out, In, In, float)> rms_norm{"rms_norm"};
constexpr Op<void(Out, InOut, In, In, float)> add_rms_norm{"add_rms_norm"};
constexpr Op<void(Out, In, OptIn, OptIn, float)> layer_norm{"layer_norm"};
constexpr Op<void(Out, In)> silu_and_mul{"silu_and_mul"};
constexpr Op<void(Out, In, int64_t)> gelu_and_mul{"gelu_and_mul"};
constexpr Op<void(Out, In)> softmax{"softmax"};
constexpr Op<void(InOut, OptInOut, OptIn, OptIn, OptIn, int64_t, float, int64_t)> rotary_embedding{
    "rotary_embedding"};
constexpr Op<void(Out, In, In)> add{"add"};
constexpr Op<void(Out, In, In)> mul{"mul"};
constexpr Op<void(Out, In, In)> embedding{"embedding"};
constexpr Op<void(Out, Out, In)> quantize_int8{"quantize_int8"};
constexpr Op<void(Out, In, OptIn)> dequantize{"dequantize"};
constexpr Op<void(Out, Out, In, bool)> topk_softmax{"topk_softmax"};
constexpr Op<void(Out, In)> argmax{"argmax"};
constexpr Op<void(Out, In, In, OptIn, OptIn)> linear{"linear"};
constexpr Op<void(Out, In, In, In, OptIn, float)> attention_causal{"attention.causal"};
constexpr Op<void(Out, In, In, In, In, OptIn, float)> attention_decode{"attention.decode"};

TensorView tensor(const CallTensors& data, std::string_view name) {
  for (const Arg& a : data.args())
    if (a.name == name && a.value.c().tag == YARD_TAG_TENSOR)
      return TensorView(*a.value.c().u.tensor);
  throw std::invalid_argument("the call has no tensor " + std::string(name));
}

using Body = std::function<Status()>;

Body product_or_attention(const std::string& op, const CallTensors& data) {
  const auto t = [&](const char* name) { return tensor(data, name); };
  if (op == "linear")
    return [out = t("out"), x = t("x"), w = t("weight")] {
      return linear(out, x, w, nullptr, nullptr);
    };
  if (op == "attention.causal")
    return [out = t("out"), q = t("query"), k = t("key"), v = t("value")] {
      return attention_causal(out, q, k, v, nullptr, 0.0f);
    };
  if (op == "attention.decode")
    return [out = t("out"), q = t("query"), k = t("key"), v = t("value"), n = t("lengths")] {
      return attention_decode(out, q, k, v, n, nullptr, 0.0f);
    };
  throw std::invalid_argument("no typed call of " + op);
}

Body table_or_choice(const std::string& op, const CallTensors& data) {
  const auto t = [&](const char* name) { return tensor(data, name); };
  if (op == "add") return [out = t("out"), a = t("a"), b = t("b")] { return add(out, a, b); };
  if (op == "mul") return [out = t("out"), a = t("a"), b = t("b")] { return mul(out, a, b); };
  if (op == "embedding")
    return [out = t("out"), i = t("ids"), w = t("table")] { return embedding(out, i, w); };
  if (op == "quantize_int8")
    return [out = t("out"), s = t("scale"), x = t("x")] { return quantize_int8(out, s, x); };
  if (op == "dequantize")
    return [out = t("out"), x = t("x"), s = t("scale")] { return dequantize(out, x, s); };
  if (op == "topk_softmax")
    return [w = t("weights"), i = t("ids"), x = t("x")] { return topk_softmax(w, i, x, false); };
  if (op == "argmax") return [out = t("out"), x = t("x")] { return argmax(out, x); };
  return product_or_attention(op, data);
}

}  // namespace

Body packed_linear_call(const CallTensors& data) {
  struct Loaded {
    Instance instance = Instance::make(Runtime::shared(), "linear").value();
    Options options;
  };
  const auto loaded = std::make_shared<Loaded>();
  const TensorView out = tensor(data, "out"), x = tensor(data, "x"), w = tensor(data, "weight");
  loaded->instance.load({{"weight", w}}).or_throw();
  loaded->options.instance = &loaded->instance;
  return [loaded, out, x, w] { return linear.with(loaded->options)(out, x, w, nullptr, nullptr); };
}

Body typed_call(const std::string& op, const CallTensors& data) {
  const auto t = [&](const char* name) { return tensor(data, name); };
  if (op == "rms_norm")
    return [out = t("out"), x = t("x"), w = t("weight")] { return rms_norm(out, x, w, 1e-6f); };
  if (op == "add_rms_norm")
    return [out = t("out"), r = t("residual"), x = t("x"), w = t("weight")] {
      return add_rms_norm(out, r, x, w, 1e-6f);
    };
  if (op == "layer_norm")
    return [out = t("out"), x = t("x"), w = t("weight"), b = t("bias")] {
      return layer_norm(out, x, w, b, 1e-5f);
    };
  if (op == "silu_and_mul") return [out = t("out"), x = t("x")] { return silu_and_mul(out, x); };
  if (op == "gelu_and_mul") return [out = t("out"), x = t("x")] { return gelu_and_mul(out, x, 0); };
  if (op == "softmax") return [out = t("out"), x = t("x")] { return softmax(out, x); };
  if (op == "rotary_embedding")
    return [q = t("query"), k = t("key"), p = t("positions"), c = t("cos"), s = t("sin")] {
      return rotary_embedding(q, k, p, c, s, 0, 10000.0f, 0);
    };
  return table_or_choice(op, data);
}

}  // namespace yard::bench
