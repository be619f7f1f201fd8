// SPDX-License-Identifier: Apache-2.0
// Writes a model in the shape of SmolLM2-135M with random weights from a fixed seed. The demo uses
// it if the real model cannot be fetched.
// Usage: yard_random_model FILE.gguf
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr uint64_t kLayers = 30, kWidth = 576, kHidden = 1536, kHeads = 9, kKvHeads = 3;
constexpr uint64_t kWords = 49152, kAlignment = 32, kBlock = 32;
enum ValueType : uint32_t { kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9 };
enum TensorType : uint32_t { kTensorF32 = 0, kTensorQ4_1 = 3, kTensorQ8_0 = 8 };

struct Tensor {
  std::string name;
  TensorType type;
  uint64_t rows, columns;  // a vector has 0 rows
  uint64_t bytes() const {
    if (type == kTensorF32) return columns * 4;
    return rows * columns / kBlock * (type == kTensorQ4_1 ? 20 : 34);
  }
};

class Head {
 public:
  template <class T>
  Head& put(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Head& text(const std::string& t) {
    put<uint64_t>(t.size());
    text_ += t;
    return *this;
  }
  void number(const std::string& key, uint64_t v) {
    text(key).put<uint32_t>(kU32).put(static_cast<uint32_t>(v)), ++keys;
  }
  void real(const std::string& key, float v) { text(key).put<uint32_t>(kF32).put(v), ++keys; }
  void flag(const std::string& key, bool v) { text(key).put<uint32_t>(kBool).put(v), ++keys; }
  void string(const std::string& key, const std::string& v) {
    text(key).put<uint32_t>(kString).text(v), ++keys;
  }
  Head& array(const std::string& key, ValueType type, uint64_t count) {
    ++keys;
    return text(key).put<uint32_t>(kArray).put<uint32_t>(type).put(count);
  }
  const std::string& bytes() const { return text_; }
  uint64_t keys = 0;

 private:
  std::string text_;
};

std::string utf8(uint32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  return {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))};
}

// Returns special tokens, the 256 bytes, and words that no text contains.
std::vector<std::string> vocabulary() {
  std::vector<std::string> words = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  for (uint32_t b = 0, more = 256; b < 256; ++b) {
    const bool printable = (b > 32 && b < 127) || (b > 160 && b != 173);
    words.push_back(utf8(printable ? b : more++));
  }
  words.push_back("he");
  for (uint64_t i = words.size(); i < kWords; ++i) words.push_back("Ġw" + std::to_string(i));
  return words;
}

void put_vocabulary(Head& head) {
  head.string("tokenizer.ggml.model", "gpt2");
  head.string("tokenizer.ggml.pre", "smollm");
  head.array("tokenizer.ggml.tokens", kString, kWords);
  for (const std::string& word : vocabulary()) head.text(word);
  head.array("tokenizer.ggml.token_type", kI32, kWords);
  for (uint64_t i = 0; i < kWords; ++i) head.put<int32_t>(i < 3 ? 3 : 1);
  head.array("tokenizer.ggml.merges", kString, 1).text("h e");
  head.number("tokenizer.ggml.bos_token_id", 1);
  head.number("tokenizer.ggml.eos_token_id", 2);
  head.flag("tokenizer.ggml.add_bos_token", false);
  head.string("tokenizer.chat_template",
              "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
              "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
              "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
}

std::vector<Tensor> tensors() {
  constexpr uint64_t kKv = kWidth / kHeads * kKvHeads;
  std::vector<Tensor> all = {{"token_embd.weight", kTensorQ8_0, kWords, kWidth}};
  for (uint64_t layer = 0; layer < kLayers; ++layer) {
    const std::string b = "blk." + std::to_string(layer) + ".";
    all.push_back({b + "attn_norm.weight", kTensorF32, 0, kWidth});
    all.push_back({b + "attn_q.weight", kTensorQ4_1, kWidth, kWidth});
    all.push_back({b + "attn_k.weight", kTensorQ4_1, kKv, kWidth});
    all.push_back({b + "attn_v.weight", kTensorQ4_1, kKv, kWidth});
    all.push_back({b + "attn_output.weight", kTensorQ4_1, kWidth, kWidth});
    all.push_back({b + "ffn_norm.weight", kTensorF32, 0, kWidth});
    all.push_back({b + "ffn_gate.weight", kTensorQ4_1, kHidden, kWidth});
    all.push_back({b + "ffn_up.weight", kTensorQ4_1, kHidden, kWidth});
    all.push_back({b + "ffn_down.weight", kTensorQ4_1, kWidth, kHidden});
  }
  all.push_back({"output_norm.weight", kTensorF32, 0, kWidth});
  return all;
}

// Returns random elements with a standard deviation of about 1/32.
std::string random_bytes(const Tensor& t, std::mt19937& random) {
  std::string data(t.bytes(), '\0');
  if (t.type == kTensorF32) {  // with both signs, so that a token does not predict itself
    auto* const to = reinterpret_cast<float*>(data.data());
    std::normal_distribution<float> normal;
    for (uint64_t i = 0; i < t.columns; ++i) to[i] = normal(random);
    return data;
  }
  for (size_t i = 0; i + 4 <= data.size(); i += 4) {
    const auto word = static_cast<uint32_t>(random());
    data.replace(i, 4, reinterpret_cast<const char*>(&word), 4);
  }
  const bool q8 = t.type == kTensorQ8_0;
  const size_t block = q8 ? 34 : 20;
  const char scale[] = {0x00, q8 ? '\x0f' : '\x20'};       // f16 for 2^-12 * 1.75 or 2^-7
  const char least[] = {static_cast<char>(0x80), '\xab'};  // f16 for -7.5 * 2^-7
  for (size_t i = 0; i < data.size(); i += block) {
    data.replace(i, 2, scale, 2);
    if (!q8) data.replace(i + 2, 2, least, 2);
  }
  if (t.name == "token_embd.weight")
    data.replace(0, 3 * t.bytes() / t.rows, 3 * t.bytes() / t.rows, '\0');
  return data;
}

uint64_t aligned(uint64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: yard_random_model FILE.gguf\n", stderr), 2;
  Head head;
  head.string("general.architecture", "llama");
  head.number("llama.block_count", kLayers);
  head.number("llama.context_length", 2048);
  head.number("llama.embedding_length", kWidth);
  head.number("llama.feed_forward_length", kHidden);
  head.number("llama.attention.head_count", kHeads);
  head.number("llama.attention.head_count_kv", kKvHeads);
  head.real("llama.rope.freq_base", 100000);
  head.number("llama.rope.dimension_count", kWidth / kHeads);
  head.real("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  head.number("llama.vocab_size", kWords);
  put_vocabulary(head);
  const std::vector<Tensor> all = tensors();
  Head list;
  uint64_t at = 0;
  for (const Tensor& t : all) {
    list.text(t.name).put<uint32_t>(t.rows ? 2 : 1).put(t.columns);
    if (t.rows) list.put(t.rows);
    list.put<uint32_t>(t.type).put(at);
    at = aligned(at + t.bytes());
  }
  Head start;
  start.put('G').put('G').put('U').put('F').put<uint32_t>(3).put<uint64_t>(all.size());
  start.put(head.keys);
  const std::string front = start.bytes() + head.bytes() + list.bytes();
  std::ofstream out(argv[1], std::ios::binary);
  out << front << std::string(aligned(front.size()) - front.size(), '\0');
  std::mt19937 random(1);
  for (const Tensor& t : all) {
    out << random_bytes(t, random) << std::string(aligned(t.bytes()) - t.bytes(), '\0');
  }
  if (!out.flush()) return std::perror(argv[1]), 1;
  return 0;
}
