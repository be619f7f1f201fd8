// SPDX-License-Identifier: Apache-2.0
// Tokenizer: text to token ids and back, by byte-level BPE with the vocabulary, merges and rules of a GGUF file.
//
//   const llm::Tokenizer tokenizer(file);
//   std::vector<int32_t> ids = tokenizer.encode("Hello");                     // control tokens are not recognised
//   ids = tokenizer.encode({{"<|im_start|>user\n", true}, {prompt, false}});   // in trusted parts they are
//   for (int32_t id : ids) tokenizer.append_text(id, text);
//
// Every byte sequence has an encoding, valid UTF-8 or not; bytes that the vocabulary has no token for are left out. Does
// not change once made; threads may share it. Errors: std::runtime_error.
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
    bool trusted = false;  // whether control tokens in it are recognised
  };
  // The parts are one text: words may go from one to the next.
  std::vector<int32_t> encode(std::initializer_list<Part> parts) const;
  std::vector<int32_t> encode(std::string_view text) const { return encode({{text, false}}); }
  // Appends the bytes of a token, which may end inside a character. Control tokens have none.
  void append_text(int32_t id, std::string& to) const;

  int32_t size() const { return static_cast<int32_t>(types_.size()); }
  // Whether a token ends an answer.
  bool is_end(int32_t id) const { return std::find(ends_.begin(), ends_.end(), id) != ends_.end(); }
  // The token that every text begins with; negative: none.
  int32_t begin() const { return begin_; }

 private:
  // How text is divided before it is merged.
  enum class Words { kGpt2, kGpt2Digits, kLlama3, kQwen2 };
  struct Merge {
    int32_t rank, id;
  };
  void read_vocabulary(const Gguf& file);
  int32_t id_of(std::string_view bytes) const;  // of a token that is not special; negative: none
  void encode_words(std::string_view text, std::vector<int32_t>& to) const;
  void encode_word(std::string_view word, std::vector<int32_t>& to) const;
  // The special token at the start of the text; negative: none.
  int32_t special_at(std::string_view text, bool trusted) const;

  std::vector<std::string> tokens_;  // their bytes
  std::vector<int64_t> types_;
  Words words_ = Words::kGpt2;
  int32_t begin_ = -1;
  std::vector<int32_t> ends_, specials_;               // specials_: the longest first
  std::unordered_map<std::string_view, int32_t> ids_;  // of tokens_
  std::unordered_map<uint64_t, Merge> merges_;         // by the ids of both halves
};

// The length of the text without the beginning of a character that has not ended.
size_t complete_characters(std::string_view text);

}  // namespace llm
