// SPDX-License-Identifier: Apache-2.0
// Makes a GGUF file of a Llama model with a few thousand random weights for tests. Its tokens are
// the 256 bytes, a few merges and two control tokens. The token that ends an answer is never the
// most probable.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gguf_writer.h"

namespace llm {

// Converts a value in the normal range of f16, and rounds towards zero.
inline uint16_t to_f16(float v) {
  uint32_t bits = 0;
  std::memcpy(&bits, &v, sizeof bits);
  const int exponent = static_cast<int>(bits >> 23 & 0xFF) - 127 + 15;
  if (exponent <= 0) return 0;
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | static_cast<uint32_t>(exponent) << 10 |
                               (bits >> 13 & 0x3FF));
}

// Returns how byte-level BPE spells a byte.
inline std::string spelling(uint8_t byte) {
  const auto is_visible = [](uint32_t b) { return (b > 32 && b < 127) || (b > 160 && b != 173); };
  uint32_t code = byte;
  if (!is_visible(byte)) {
    code = 256;
    for (uint32_t b = 0; b < byte; ++b) code += is_visible(b) ? 0 : 1;
  }
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}
inline std::string spelling(std::string_view bytes) {
  std::string all;
  for (const char c : bytes) all += spelling(static_cast<uint8_t>(c));
  return all;
}

struct Vocabulary {
  std::string pre = "smollm", model = "gpt2";
  std::vector<std::pair<std::string, std::string>> merges = {
      {"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {" ", "hello"},
      {"1", "2"}, {" ", "1"}, {" ", " "},   {"\n", "\n"},  {"'", "s"}};
  std::vector<std::string> control = {"<|im_start|>", "<|im_end|>"}, user_defined = {"<tool>"};

  // Ids are in the order bytes, merges, control tokens, user-defined tokens.
  int32_t merge_id(int32_t i) const { return 256 + i; }
  int32_t control_id(int32_t i) const { return merge_id(static_cast<int32_t>(merges.size())) + i; }
  int32_t user_id() const { return control_id(static_cast<int32_t>(control.size())); }
  int32_t size() const { return user_id() + static_cast<int32_t>(user_defined.size()); }

  void write(GgufWriter& w) const {
    std::vector<std::string> tokens, pairs;
    std::vector<int32_t> types;
    for (int b = 0; b < 256; ++b) tokens.push_back(spelling(static_cast<uint8_t>(b)));
    for (const auto& [a, b] : merges) {
      tokens.push_back(spelling(a + b));
      pairs.push_back(spelling(a) + " " + spelling(b));
    }
    types.resize(tokens.size(), 1);
    for (const std::string& t : control) tokens.push_back(t), types.push_back(3);
    for (const std::string& t : user_defined) tokens.push_back(t), types.push_back(4);
    w.value("tokenizer.ggml.model", model);
    w.value("tokenizer.ggml.pre", pre);
    w.values("tokenizer.ggml.tokens", tokens);
    w.values("tokenizer.ggml.token_type", types);
    w.values("tokenizer.ggml.merges", pairs);
    w.value("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(control_id(1)));
    w.value("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(control_id(0)));
  }
};

struct TinyModel {
  int layers = 2, width = 64, hidden = 96, heads = 4, kv_heads = 2, head_dim = 16, rotated = 16;
  uint32_t type = 0;        // the type of the matrices in GGUF: 0, 1 (f16), 30 (bf16) or 8 (q8_0)
  bool tied = true;         // no separate output weight
  bool apart = false;       // another tensor lies between gate and up
  bool rope_freqs = false;  // factors of 1
  std::string architecture = "llama";
  std::string left_out;  // the tensor to omit
  Vocabulary vocabulary;
  std::function<void(GgufWriter&)> more;

  std::string bytes() const {
    GgufWriter w;
    w.value("general.architecture", architecture);
    const auto size = [&](const char* key, int n) {
      w.value(std::string("llama.") + key, static_cast<uint32_t>(n));
    };
    size("block_count", layers), size("embedding_length", width), size("context_length", 128);
    size("feed_forward_length", hidden), size("attention.head_count", heads);
    size("attention.head_count_kv", kv_heads), size("rope.dimension_count", rotated);
    if (head_dim * heads != width) {
      size("attention.key_length", head_dim), size("attention.value_length", head_dim);
    }
    w.value("llama.rope.freq_base", 100.0f);
    w.value("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    vocabulary.write(w);
    if (more) more(w);
    matrix(w, "token_embd.weight", vocabulary.size(), width, 1);
    vector(w, "output_norm.weight", width);
    if (!tied) matrix(w, "output.weight", vocabulary.size(), width, 1);
    if (rope_freqs) ones(w, "rope_freqs.weight", rotated / 2);
    for (int i = 0; i < layers; ++i) {
      const std::string name = "blk." + std::to_string(i) + ".";
      const uint32_t seed = 100 + 10 * static_cast<uint32_t>(i);
      vector(w, name + "attn_norm.weight", width), vector(w, name + "ffn_norm.weight", width);
      matrix(w, name + "attn_q.weight", heads * head_dim, width, seed + 1);
      matrix(w, name + "attn_k.weight", kv_heads * head_dim, width, seed + 2);
      matrix(w, name + "attn_v.weight", kv_heads * head_dim, width, seed + 3);
      matrix(w, name + "attn_output.weight", width, heads * head_dim, seed + 4);
      matrix(w, name + "ffn_gate.weight", hidden, width, seed + 5);
      if (apart) ones(w, name + "between", 8);
      matrix(w, name + "ffn_up.weight", hidden, width, seed + 6);
      matrix(w, name + "ffn_down.weight", width, hidden, seed + 7);
    }
    return w.bytes();
  }

 private:
  void matrix(GgufWriter& w, const std::string& name, int rows, int columns, uint32_t seed) const {
    if (name == left_out) return;
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1.5f / std::sqrt(static_cast<float>(columns)));
    std::string data;
    for (int r = 0; r < rows; ++r) {
      std::vector<float> row(static_cast<size_t>(columns));
      for (float& v : row) v = normal(random);
      if (rows == vocabulary.size() && r == vocabulary.control_id(1)) row.assign(row.size(), 0);
      put_row(data, row);
    }
    w.tensor(name, {static_cast<uint64_t>(columns), static_cast<uint64_t>(rows)}, type, data);
  }
  void put_row(std::string& data, const std::vector<float>& row) const {
    for (size_t i = 0; i < row.size(); ++i) {
      if (type == 0) GgufWriter::put(data, row[i]);
      if (type == 1) GgufWriter::put(data, to_f16(row[i]));
      uint32_t bits = 0;
      std::memcpy(&bits, &row[i], 4);
      if (type == 30) GgufWriter::put(data, static_cast<uint16_t>(bits >> 16));
      if (type != 8) continue;
      if (i % 32 == 0) GgufWriter::put(data, to_f16(1 / 128.0f));
      GgufWriter::put(data, static_cast<int8_t>(std::fmax(-127, std::fmin(127, row[i] * 128))));
    }
  }
  void vector(GgufWriter& w, const std::string& name, int n) const {
    std::vector<float> all(static_cast<size_t>(n));
    for (size_t i = 0; i < all.size(); ++i) all[i] = 1 + 0.01f * static_cast<float>(i % 7);
    if (name != left_out) w.floats(name, {all.size()}, all);
  }
  static void ones(GgufWriter& w, const std::string& name, int n) {
    w.floats(name, {static_cast<uint64_t>(n)}, std::vector<float>(static_cast<size_t>(n), 1));
  }
};

}  // namespace llm
