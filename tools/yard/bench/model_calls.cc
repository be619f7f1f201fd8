// SPDX-License-Identifier: Apache-2.0
#include "bench/model_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <initializer_list>

#include "gguf.h"

namespace yard::tool {
namespace {

constexpr int64_t kPrompt = 512;
constexpr std::initializer_list<int64_t> kContexts = {64, 512, 2048};

// Keeps each call once, in the order of first occurrence.
struct ModelCalls {
  std::vector<std::string> list;
  template <class... Args>
  void add(fmt::format_string<Args...> form, Args&&... args) {
    std::string call = fmt::format(form, std::forward<Args>(args)...);
    if (std::ranges::find(list, call) == list.end()) list.push_back(std::move(call));
  }
};

struct ModelSizes {
  int64_t layers, width, hidden, heads, kv_heads, dim;
  explicit ModelSizes(const llm::Gguf& file)
      : layers(file.integer("llama.block_count")),
        width(file.integer("llama.embedding_length")),
        hidden(file.integer("llama.feed_forward_length")),
        heads(file.integer("llama.attention.head_count")),
        kv_heads(file.integer("llama.attention.head_count_kv", heads)),
        dim(file.integer("llama.rope.dimension_count", heads > 0 ? width / heads : 0)) {
    for (const int64_t size : {layers, width, hidden, heads, kv_heads, dim})
      if (size < 1 || size > (int64_t{1} << 24))
        file.fail("sizes of a Llama model from 1 to 16777216", std::to_string(size));
  }
};

void add_linear(ModelCalls& to, const llm::GgufTensor& weight, int64_t rows, int64_t parts = 1) {
  to.add("linear(f32[{},{}], {}[{},{}])", rows, weight.shape.at(1), to_string(weight.dtype),
         parts * weight.shape.at(0), weight.shape.at(1));
}

// If the weights of gate and up are adjacent, one call uses both.
void add_gate_and_up(ModelCalls& to, const llm::GgufTensor& gate, const llm::GgufTensor& up,
                     int64_t rows) {
  const bool joined = up.dtype == gate.dtype && up.data == gate.data + gate.bytes;
  add_linear(to, gate, rows, joined ? 2 : 1);
  if (!joined) add_linear(to, up, rows);
}

// Adds one pass with `rows` tokens, except for attention.
void add_pass(ModelCalls& to, const llm::Gguf& file, const ModelSizes& s, int64_t rows) {
  const llm::GgufTensor& table = file.tensor("token_embd.weight");
  to.add("embedding(i32[{}], {}[{},{}])", rows, to_string(table.dtype), table.shape.at(0),
         table.shape.at(1));
  to.add("rms_norm(f32[{},{}], f32[{}])", rows, s.width, s.width);
  for (int64_t layer = 0; layer < s.layers; ++layer) {
    const auto weight = [&](const char* name) -> const llm::GgufTensor& {
      return file.tensor(fmt::format("blk.{}.{}.weight", layer, name));
    };
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_down"})
      add_linear(to, weight(name), rows);
    add_gate_and_up(to, weight("ffn_gate"), weight("ffn_up"), rows);
  }
  to.add(
      "rotary_embedding(f32[{0},{1},{3}], f32[{0},{2},{3}], cos=f32[{0},{4}], sin=f32[{0},{4}], "
      "style=interleaved)",
      rows, s.heads, s.kv_heads, s.dim, s.dim / 2);
  to.add("add_rms_norm(f32[{0},{1}], f32[{0},{1}], f32[{1}])", rows, s.width);
  to.add("silu_and_mul(f32[{},{}])", rows, 2 * s.hidden);
}

std::vector<std::string> calls_of(const llm::Gguf& file) {
  if (file.text("general.architecture") != "llama")
    file.fail("general.architecture llama", std::string(file.text("general.architecture")));
  const ModelSizes s(file);
  const llm::GgufTensor* own = file.find("output.weight");
  const llm::GgufTensor& output = own ? *own : file.tensor("token_embd.weight");
  ModelCalls to;
  add_pass(to, file, s, 1);
  for (const int64_t context : kContexts)
    to.add(
        "attention.decode(f32[1,{0},{2}], f32[1,{3},{1},{2}], f32[1,{3},{1},{2}], "
        "i32[1])",
        s.heads, s.kv_heads, s.dim, context);
  add_linear(to, output, 1);
  to.add("argmax(out=i32[1], x=f32[1,{}])", output.shape.at(0));
  add_pass(to, file, s, kPrompt);
  to.add("attention.causal(f32[1,{0},{1},{3}], f32[1,{0},{2},{3}], f32[1,{0},{2},{3}])", kPrompt,
         s.heads, s.kv_heads, s.dim);
  return std::move(to.list);
}

}  // namespace

Result<std::vector<std::string>> model_calls(const std::string& path) {
  try {
    return calls_of(llm::Gguf::open(path));
  } catch (const std::exception& e) {
    return Status(Code::kInvalidArgument, e.what());
  }
}

}  // namespace yard::tool
