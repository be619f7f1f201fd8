// SPDX-License-Identifier: Apache-2.0
// Converts text to token ids and back, by byte-level BPE with the vocabulary, merges and rules of a
// GGUF file.
//
//   const llm::Tokenizer tokenizer(file);
//   // Control tokens are recognised in trusted parts only.
//   std::vector<int32_t> ids = tokenizer.encode("Hello");
//   ids = tokenizer.encode({{"<|im_start|>user\n", true}, {prompt, false}});
//   for (int32_t id : ids) tokenizer.append_text(id, text);
//
// Every byte sequence can be encoded, even invalid UTF-8. Bytes without a token in the vocabulary
// are left out. A tokenizer is immutable, so threads may share it. Errors are std::runtime_error.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gguf.h"

namespace llm {

class Tokenizer {
 public:
  explicit Tokenizer(const Gguf& file);
  Tokenizer(const Tokenizer&) = delete;  // ids_ points into tokens_
  Tokenizer& operator=(const Tokenizer&) = delete;

  struct Part {
    std::string_view text;
    bool trusted = false;  // recognises control tokens
  };
  // Encodes the parts as one text, so words may extend from one part to the next.
  std::vector<int32_t> encode(std::initializer_list<Part> parts) const;
  std::vector<int32_t> encode(std::string_view text) const { return encode({{text, false}}); }
  // Appends the bytes of a token, which may end inside a character. Control tokens have no bytes.
  void append_text(int32_t id, std::string& to) const;

  int32_t size() const { return static_cast<int32_t>(types_.size()); }
  bool is_end(int32_t id) const { return std::find(ends_.begin(), ends_.end(), id) != ends_.end(); }
  // Returns the token that begins every text, or a negative number.
  int32_t begin() const { return begin_; }

 private:
  // How text is divided into words before merging.
  enum class Words { kGpt2, kGpt2Digits, kLlama3, kQwen2 };
  struct Merge {
    int32_t rank, id;
  };
  void read_vocabulary(const Gguf& file);
  int32_t id_of(std::string_view bytes) const;  // for ordinary tokens; negative if there is none
  void encode_words(std::string_view text, std::vector<int32_t>& to) const;
  void encode_word(std::string_view word, std::vector<int32_t>& to) const;
  // Returns the special token at the start of the text, or a negative number.
  int32_t special_at(std::string_view text, bool trusted) const;

  std::vector<std::string> tokens_;  // the bytes of each token
  std::vector<int64_t> types_;
  Words words_ = Words::kGpt2;
  int32_t begin_ = -1;
  std::vector<int32_t> ends_, specials_;               // specials_ has the longest first
  std::unordered_map<std::string_view, int32_t> ids_;  // the indices of tokens_
  std::unordered_map<uint64_t, Merge> merges_;         // by the ids of both halves
};

// Returns the length of the text without an incomplete character at its end.
size_t complete_characters(std::string_view text);

}  // namespace llm
