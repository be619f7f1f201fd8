// SPDX-License-Identifier: Apache-2.0
#include "bench/measured_calls.h"

#include <yard/runtime.h>

#include <algorithm>
#include <string_view>

namespace yard::tool {
namespace {

struct Size {
  const char* name;
  std::vector<int64_t> usual;
};

// `{name}` in a call is a size, `{2*name}` twice that, `{T}` the dtype and `{W}` that of the weights.
struct Form {
  const char* op;
  std::string call;
  std::vector<Size> sizes;
  std::vector<const char*> weights = {};  // "T": the same dtype
};

const std::string kAttention =
    "{T}[{batch},{seq},{heads},{dim}], {T}[{batch},{kv_seq},{kv_heads},{dim}], "
    "{T}[{batch},{kv_seq},{kv_heads},{dim}]";
std::vector<Size> attention_sizes() {
  return {{"batch", {1}}, {"seq", {512}},    {"kv_seq", {512}},
          {"heads", {8}}, {"kv_heads", {8}}, {"dim", {128}}};
}

const std::vector<int64_t> kRows = {1, 64, 4096}, kFewRows = {1, 8, 64, 512};

const std::vector<Form>& forms() {
  static const auto* const all = new std::vector<Form>{
      {"rms_norm", "{T}[{rows},{hidden}], {T}[{hidden}]", {{"rows", kRows}, {"hidden", {4096}}}},
      {"add_rms_norm",
       "{T}[{rows},{hidden}], {T}[{rows},{hidden}], {T}[{hidden}]",
       {{"rows", kRows}, {"hidden", {4096}}}},
      {"layer_norm",
       "{T}[{rows},{hidden}], {T}[{hidden}], {T}[{hidden}]",
       {{"rows", kRows}, {"hidden", {4096}}}},
      {"silu_and_mul", "{T}[{rows},{2*d}]", {{"rows", kRows}, {"d", {4096}}}},
      {"gelu_and_mul", "{T}[{rows},{2*d}]", {{"rows", kRows}, {"d", {4096}}}},
      {"softmax", "{T}[{rows},{d}]", {{"rows", kRows}, {"d", {4096}}}},
      {"rotary_embedding",
       "{T}[{tokens},{heads},{head_dim}], {T}[{tokens},{kv_heads},{head_dim}], i64[{tokens}], "
       "{T}[{tokens},{head_dim/2}], {T}[{tokens},{head_dim/2}]",
       {{"tokens", kRows}, {"heads", {32}}, {"kv_heads", {8}}, {"head_dim", {128}}}},
      {"add", "{T}[{rows},{d}], {T}[{rows},{d}]", {{"rows", kRows}, {"d", {4096}}}},
      {"mul", "{T}[{rows},{d}], {T}[{rows},{d}]", {{"rows", kRows}, {"d", {4096}}}},
      {"matmul", "{T}[{m},{k}], {T}[{k},{n}]", {{"m", {64, 512}}, {"n", {512}}, {"k", {512}}}},
      {"linear",
       "{T}[{rows},{k}], {W}[{n},{k}]",
       {{"rows", kFewRows}, {"n", {4096}}, {"k", {4096}}},
       {"T", "q8_0", "q4_1"}},
      {"embedding",
       "i32[{rows}], {W}[{vocab},{d}]",
       {{"rows", {1, 512}}, {"vocab", {32000}}, {"d", {2048}}},
       {"T", "q8_0"}},
      {"quantize_int8", "{T}[{rows},{d}]", {{"rows", kRows}, {"d", {4096}}}},
      {"dequantize", "{W}[{rows},{d}]", {{"rows", {64, 4096}}, {"d", {4096}}}, {"q8_0", "q4_1"}},
      {"attention.full", kAttention, attention_sizes()},
      {"attention.causal", kAttention, attention_sizes()},
      {"attention.sliding_window", kAttention + ", window=256", attention_sizes()},
      {"attention.cross", kAttention, attention_sizes()},
      {"attention.decode",
       "{T}[{batch},{heads},{dim}], {T}[{batch},{capacity},{kv_heads},{dim}], "
       "{T}[{batch},{capacity},{kv_heads},{dim}], i32[{batch}]",
       {{"batch", {1, 8}},
        {"capacity", {512, 4096}},
        {"heads", {32}},
        {"kv_heads", {8}},
        {"dim", {128}}}},
      {"attention.paged_decode",
       "{T}[{batch},{heads},{dim}], {T}[{blocks},{block},{kv_heads},{dim}], "
       "{T}[{blocks},{block},{kv_heads},{dim}], i32[{batch},{blocks}], i32[{batch}]",
       {{"batch", {1, 8}},
        {"blocks", {32, 256}},
        {"block", {16}},
        {"heads", {32}},
        {"kv_heads", {8}},
        {"dim", {128}}}},
      {"topk_softmax",
       "weights=f32[{rows},{k}], ids=i32[{rows},{k}], x={T}[{rows},{experts}]",
       {{"rows", kRows}, {"k", {8}}, {"experts", {128}}}},
      {"argmax", "out=i32[{rows}], x={T}[{rows},{d}]", {{"rows", {1, 64}}, {"d", {50257}}}},
      {"sample",
       "out=i32[{rows}], x={T}[{rows},{d}], top_k=40, top_p=0.9",
       {{"rows", {1, 64}}, {"d", {50257}}}},
  };
  return *all;
}

const Form* find_form(const std::string& op) {
  for (const Form& f : forms())
    if (op == f.op) return &f;
  return nullptr;
}

using Chosen = std::map<std::string, int64_t, std::less<>>;

// The text with everything in braces replaced.
std::string filled(std::string_view text, const std::string& dtype, const std::string& weights,
                   const Chosen& sizes) {
  std::string to;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '{') {
      to += text[at++];
      continue;
    }
    const size_t end = text.find('}', at);
    std::string_view name = text.substr(at + 1, end - at - 1);
    at = end + 1;
    if (name == "T" || name == "W") {
      to += name == "T" ? dtype : weights;
      continue;
    }
    const bool twice = name.starts_with("2*"), half = name.ends_with("/2");
    if (twice) name.remove_prefix(2);
    if (half) name.remove_suffix(2);
    const int64_t size = sizes.find(name)->second;
    to += std::to_string(twice ? 2 * size : half ? size / 2 : size);
  }
  return to;
}

}  // namespace

const std::vector<std::string>& measured_ops() {
  static const auto* const names = [] {
    const Listing listing = Runtime::shared().list();
    auto* list = new std::vector<std::string>;
    for (const Form& f : forms())
      if (listing.find_op(f.op) != nullptr) list->emplace_back(f.op);
    return list;
  }();
  return *names;
}

std::vector<std::string> measured_dimensions(const std::string& op) {
  std::vector<std::string> to;
  if (const Form* f = find_form(op))
    for (const Size& s : f->sizes) to.emplace_back(s.name);
  return to;
}

std::vector<std::string> measured_calls(const std::string& op,
                                        const std::vector<std::string>& dtypes,
                                        const Shapes& shapes) {
  std::vector<std::string> to;
  const Form* const form = find_form(op);
  if (form == nullptr) return to;
  std::vector<Chosen> combinations(1);
  for (const Size& s : form->sizes) {
    const auto given = shapes.find(s.name);
    std::vector<Chosen> more;
    for (const Chosen& c : combinations)
      for (const int64_t size : given != shapes.end() ? given->second : s.usual) {
        more.push_back(c);
        more.back()[s.name] = size;
      }
    combinations = std::move(more);
  }
  const std::vector<const char*> weights =
      form->weights.empty() ? std::vector<const char*>{"T"} : form->weights;
  for (const std::string& dtype : dtypes)
    for (const char* weight : weights)
      for (const Chosen& c : combinations)
        to.push_back(
            op + "(" +
            filled(form->call, dtype, weight == std::string_view("T") ? dtype : weight, c) + ")");
  return to;
}

std::unique_ptr<CallTensors> measured_tensors(const ParsedCall& call) {
  auto data = std::make_unique<CallTensors>(call, 1);
  for (const Arg& a : data->args()) {
    const bool cos = a.name == "cos";
    if ((!cos && a.name != "sin") || a.value.c().tag != YARD_TAG_TENSOR) continue;
    const TensorView table(*a.value.c().u.tensor);
    auto* const at = static_cast<char*>(table.data());
    if (table.dtype() == DType::f32)
      std::fill_n(reinterpret_cast<float*>(at), table.numel(), cos ? 1.0f : 0.0f);
    else
      std::fill_n(reinterpret_cast<uint16_t*>(at), table.numel(),
                  static_cast<uint16_t>(!cos                          ? 0
                                        : table.dtype() == DType::f16 ? 0x3c00
                                                                      : 0x3f80));
  }
  return data;
}

}  // namespace yard::tool
