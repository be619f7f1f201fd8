// SPDX-License-Identifier: Apache-2.0
// Tokenizes any bytes as text: with a vocabulary that has all bytes, decoding the tokens returns
// the text. Also reads any lines as a vocabulary, which is refused or encodes the rest of the input
// into tokens that it has.
#include "tokenizer.h"

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "llm/gguf_writer.h"

namespace {

using llm::GgufWriter;
using llm::Tokenizer;

void require(bool condition) {
  if (!condition) std::abort();
}

std::string vocabulary(const std::string& rules, const std::vector<std::string>& tokens,
                       const std::vector<int32_t>& types, const std::vector<std::string>& merges) {
  GgufWriter w;
  w.value("tokenizer.ggml.model", "gpt2");
  w.value("tokenizer.ggml.pre", rules);
  w.values("tokenizer.ggml.tokens", tokens);
  w.values("tokenizer.ggml.token_type", types);
  w.values("tokenizer.ggml.merges", merges);
  w.value("tokenizer.ggml.eos_token_id", uint32_t{0});
  return w.bytes();
}

// Has the character that stands for each byte, some merges and two special tokens.
std::string whole_vocabulary(const std::string& rules) {
  std::vector<std::string> tokens = {"<|end|>", "<|im|>"};
  for (uint32_t b = 0, more = 256; b < 256; ++b) {
    const bool printable = (b > 32 && b < 127) || (b > 160 && b != 173);
    const uint32_t c = printable ? b : more++;
    if (c < 0x80)
      tokens.push_back({static_cast<char>(c)});
    else
      tokens.push_back({static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))});
  }
  const std::vector<std::string> merges = {"a b", "ab c", "Ġ a", "e r", "Ã ©", "Ġ Ġ", "ĠĠ ĠĠ"};
  for (const std::string& m : merges)
    tokens.push_back(m.substr(0, m.find(' ')) + m.substr(m.find(' ') + 1));
  std::vector<int32_t> types(tokens.size(), 1);
  types[0] = types[1] = 3;
  return vocabulary(rules, tokens, types, merges);
}

// A tokenizer and the file that it points into.
struct Loaded {
  explicit Loaded(std::string b)
      : bytes(std::move(b)), file(llm::Gguf::parse(llm::as_bytes(bytes))), tokenizer(file) {}
  std::string bytes;
  llm::Gguf file;
  Tokenizer tokenizer;
};

std::string text_of(const Tokenizer& t, const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) {
    require(id >= 0 && id < t.size());
    t.append_text(id, text);
  }
  return text;
}

void round_trip(const Tokenizer& t, std::string_view text) {
  require(text_of(t, t.encode(text)) == text);
  text_of(t, t.encode({{text, true}}));
  require(llm::complete_characters(text) <= text.size());
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty() && lines.size() < 200) {
    const size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

// Lines with a space are merges, other lines are tokens.
void any_vocabulary(std::string_view lines, std::string_view text) {
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types;
  for (std::string& line : lines_of(lines)) {
    if (line.find(' ') != std::string::npos) {
      merges.push_back(std::move(line));
    } else {
      types.push_back(line.empty() ? 1 : line[0] % 7);
      tokens.push_back(std::move(line));
    }
  }
  try {
    const Loaded own(vocabulary("smollm", tokens, types, merges));
    text_of(own.tokenizer, own.tokenizer.encode({{text, true}}));
  } catch (const std::runtime_error& e) {
    require(e.what()[0] != '\0');
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Loaded* const known[] = {
      new Loaded(whole_vocabulary("gpt-2")), new Loaded(whole_vocabulary("smollm")),
      new Loaded(whole_vocabulary("llama-bpe")), new Loaded(whole_vocabulary("qwen2"))};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const Loaded* one : known) round_trip(one->tokenizer, text);
  const size_t end = text.find('\0');
  if (end != std::string_view::npos) any_vocabulary(text.substr(0, end), text.substr(end + 1));
  return 0;
}
