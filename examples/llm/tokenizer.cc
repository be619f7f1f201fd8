// SPDX-License-Identifier: Apache-2.0
#include "tokenizer.h"

#include <array>
#include <functional>
#include <iterator>
#include <queue>
#include <span>
#include <tuple>
#include <utility>

namespace llm {
namespace {

#include "unicode_ranges.inc"

enum Kind : uint8_t { kOther, kLetter, kNumber, kSpace, kEnd };
Kind kind_of(uint32_t code) {
  static const std::vector<Kind> kKinds = [] {
    std::vector<Kind> all(0x110000, kOther);
    const auto mark = [&](Kind kind, std::span<const uint32_t> runs) {
      auto at = all.begin();
      for (size_t i = 0; i < runs.size(); i += 2) at = std::fill_n(at + runs[i], runs[i + 1], kind);
    };
    mark(kLetter, kLetters), mark(kNumber, kNumbers), mark(kSpace, kSpaces);
    return all;
  }();
  return code < kKinds.size() ? kKinds[code] : kOther;
}

struct Character {
  uint32_t code, bytes;
};
// Returns the first character of a non-empty text. An invalid byte is a character of no kind.
Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const uint32_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {0xFFFD, 1};
  uint32_t code = lead & (0xFFu >> (bytes + 1));
  for (uint32_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {0xFFFD, 1};
    code = code << 6 | (byte(i) & 0x3F);
  }
  return {code, bytes};
}

// The characters of a text, and an end mark.
struct Characters {
  std::vector<uint32_t> code;
  std::vector<size_t> start;
  std::vector<Kind> kind;

  explicit Characters(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const Character c = first_character(text.substr(at));
      code.push_back(c.code), start.push_back(at), kind.push_back(kind_of(c.code));
      at += c.bytes;
    }
    code.push_back(0), start.push_back(text.size()), kind.push_back(kEnd);
  }
  // Returns the end of the run of characters of kind k that begins at i.
  size_t run(size_t i, Kind k) const {
    while (kind[i] == k) ++i;
    return i;
  }
  bool is_newline(size_t i) const { return code[i] == '\n' || code[i] == '\r'; }
  // Returns the length of 's, 't, 're, 've, 'm, 'll or 'd at i, or 0.
  size_t contraction(size_t i, bool any_case) const {
    if (code[i] != '\'') return 0;
    const auto at = [&](size_t n) {
      return any_case && kind[n] == kLetter ? code[n] | 0x20 : code[n];
    };
    const uint32_t a = at(i + 1), b = a != 0 ? at(i + 2) : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
  }
};

// The next two functions return the end of the word at i. Each implements the regular expression
// above it, in which \s+(?!\S) leaves the last of several spaces to the next word.

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// If cuts_numbers is true, each number is cut out first.
size_t gpt2_word(const Characters& c, size_t i, bool cuts_numbers) {
  if (const size_t n = c.contraction(i, false)) return i + n;
  const auto is_cut = [&](size_t n) { return cuts_numbers && c.kind[n] == kNumber; };
  if (is_cut(i)) return i + 1;
  const size_t from = i + (c.code[i] == ' ' ? 1 : 0);
  if (c.kind[from] != kSpace && c.kind[from] != kEnd && !is_cut(from))
    return c.run(from, c.kind[from]);
  const size_t end = c.run(i, kSpace);
  return end == i + 1 || c.kind[end] == kEnd || is_cut(end) ? end : end - 1;
}

//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
//    ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
size_t llama3_word(const Characters& c, size_t i, size_t digits) {
  if (const size_t n = c.contraction(i, true)) return i + n;
  if (c.kind[i] == kLetter) return c.run(i, kLetter);
  if (c.kind[i] == kNumber) return std::min(c.run(i, kNumber), i + digits);
  if (!c.is_newline(i) && c.kind[i + 1] == kLetter) return c.run(i + 1, kLetter);
  const size_t from = i + (c.code[i] == ' ' ? 1 : 0);
  if (c.kind[from] == kOther) {
    size_t end = c.run(from, kOther);
    while (c.is_newline(end)) ++end;
    return end;
  }
  const size_t spaces = c.run(i, kSpace);
  for (size_t end = spaces; end > i; --end)
    if (c.is_newline(end - 1)) return end;
  return spaces == i + 1 || c.kind[spaces] == kEnd ? spaces : spaces - 1;
}

// Decodes the spelling of bytes in byte-level BPE: visible characters of Latin-1 stand for
// themselves, and characters from 256 on stand for the other bytes in order.
std::string from_spelling(std::string_view token) {
  static const std::array<int16_t, 512> kByte = [] {
    std::array<int16_t, 512> byte{};
    byte.fill(-1);
    size_t next = 256;
    for (int16_t b = 0; b < 256; ++b)
      byte[(b > 32 && b < 127) || (b > 160 && b != 173) ? static_cast<size_t>(b) : next++] = b;
    return byte;
  }();
  std::string bytes;
  while (!token.empty()) {
    const Character c = first_character(token);
    const int16_t byte = c.code < kByte.size() ? kByte[c.code] : int16_t{-1};
    bytes += byte >= 0 ? std::string(1, static_cast<char>(byte)) : std::string(token, 0, c.bytes);
    token.remove_prefix(c.bytes);
  }
  return bytes;
}

constexpr int64_t kControl = 3, kUserDefined = 4;  // types of tokens
uint64_t pair_of(int32_t a, int32_t b) {
  return static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32 | static_cast<uint32_t>(b);
}

}  // namespace

Tokenizer::Tokenizer(const Gguf& file) {
  if (const auto model = file.text("tokenizer.ggml.model"); model != "gpt2")
    file.fail("a tokenizer of model gpt2 (byte-level BPE)", "'", model, "'");
  const std::string_view pre = file.text("tokenizer.ggml.pre", "gpt-2");
  words_ = pre == "smollm"      ? Words::kGpt2Digits
           : pre == "llama-bpe" ? Words::kLlama3
           : pre == "qwen2"     ? Words::kQwen2
                                : Words::kGpt2;
  if (words_ == Words::kGpt2 && pre != "gpt-2" && pre != "default")
    file.fail("tokenizer.ggml.pre as gpt-2, smollm, llama-bpe or qwen2", "'", pre, "'");
  read_vocabulary(file);
  int32_t rank = 0;
  for (const std::string_view merge : file.texts("tokenizer.ggml.merges")) {
    const size_t space = std::min(merge.find(' ', 1), merge.size());
    const std::string left = from_spelling(merge.substr(0, space));
    const std::string right = from_spelling(merge.substr(std::min(space + 1, merge.size())));
    const int32_t a = id_of(left), b = id_of(right), both = id_of(left + right);
    if (a < 0 || b < 0 || both < 0)
      file.fail("merges of two tokens to a third, with a space between", "'", merge, "'");
    merges_.emplace(pair_of(a, b), Merge{rank++, both});
  }
}

void Tokenizer::read_vocabulary(const Gguf& file) {
  const auto tokens = file.texts("tokenizer.ggml.tokens");
  types_ = file.integers("tokenizer.ggml.token_type", Gguf::Integers(tokens.size(), 1));
  if (types_.size() != tokens.size() || tokens.size() > INT32_MAX)
    file.fail(cat(tokens.size(), " types of tokens"), types_.size());
  const auto token = [&](const char* key) {
    const int64_t id = file.integer(cat("tokenizer.ggml.", key), -1);
    return id >= 0 && id < size() ? static_cast<int32_t>(id) : -1;
  };
  tokens_.reserve(tokens.size());
  ends_ = {token("eos_token_id"), token("eot_token_id")};
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool is_special = types_[i] == kControl || types_[i] == kUserDefined;
    const auto id = static_cast<int32_t>(i);
    tokens_.push_back(is_special ? std::string(tokens[i]) : from_spelling(tokens[i]));
    if (!is_special) ids_.emplace(tokens_.back(), id);
    if (is_special && !tokens[i].empty()) specials_.push_back(id);
    for (const char* end : {"<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>"})
      if (is_special && tokens[i] == end) ends_.push_back(id);
  }
  const auto length = [&](int32_t id) { return tokens_[static_cast<size_t>(id)].size(); };
  std::ranges::stable_sort(specials_, std::greater<>(), length);
  const bool has_begin = file.flag("tokenizer.ggml.add_bos_token", words_ == Words::kLlama3);
  begin_ = has_begin ? token("bos_token_id") : -1;
}

int32_t Tokenizer::id_of(std::string_view bytes) const {
  const auto found = ids_.find(bytes);
  return found != ids_.end() ? found->second : -1;
}

int32_t Tokenizer::special_at(std::string_view text, bool trusted) const {
  for (const int32_t id : specials_) {
    const auto i = static_cast<size_t>(id);
    if (text.starts_with(tokens_[i]) && (trusted || types_[i] == kUserDefined)) return id;
  }
  return -1;
}

std::vector<int32_t> Tokenizer::encode(std::initializer_list<Part> parts) const {
  std::vector<int32_t> ids;
  std::string words;  // the text since the last special token
  for (const Part& part : parts)
    for (size_t at = 0, n = 1; at < part.text.size(); at += n) {
      const int32_t special = special_at(part.text.substr(at), part.trusted);
      n = special < 0 ? 1 : tokens_[static_cast<size_t>(special)].size();
      if (special < 0) {
        words.push_back(part.text[at]);
      } else {
        encode_words(std::exchange(words, {}), ids);
        ids.push_back(special);
      }
    }
  encode_words(words, ids);
  return ids;
}

void Tokenizer::encode_words(std::string_view text, std::vector<int32_t>& to) const {
  const Characters c(text);
  for (size_t i = 0; c.kind[i] != kEnd;) {
    const size_t end = words_ == Words::kLlama3  ? llama3_word(c, i, 3)
                       : words_ == Words::kQwen2 ? llama3_word(c, i, 1)
                                                 : gpt2_word(c, i, words_ == Words::kGpt2Digits);
    encode_word(text.substr(c.start[i], c.start[end] - c.start[i]), to);
    i = end;
  }
}

// Merges neighbours, lowest rank first and leftmost first among equal ranks, until no merge is
// left.
void Tokenizer::encode_word(std::string_view word, std::vector<int32_t>& to) const {
  if (words_ == Words::kLlama3)  // words of the vocabulary need no merges
    if (const int32_t id = id_of(word); id >= 0) return to.push_back(id);
  struct Symbol {
    int32_t id;            // negative if merged into another or not in the vocabulary
    size_t before, after;  // neighbours; out of range if there are none
  };
  std::vector<Symbol> symbols;
  for (size_t i = 0; i < word.size(); ++i)
    symbols.push_back({id_of(word.substr(i, 1)), i - 1, i + 1});
  using Candidate = std::tuple<int32_t, size_t, size_t, uint64_t>;  // rank, both places, both ids
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](size_t a, size_t b) {
    if (a >= word.size() || b >= word.size()) return;
    const uint64_t pair = pair_of(symbols[a].id, symbols[b].id);
    if (const auto m = merges_.find(pair); m != merges_.end())
      queue.emplace(m->second.rank, a, b, pair);
  };
  for (size_t i = 1; i < word.size(); ++i) consider(i - 1, i);
  while (!queue.empty()) {
    const auto [rank, a, b, pair] = queue.top();
    queue.pop();
    if (symbols[b].id < 0 || pair_of(symbols[a].id, symbols[b].id) != pair) continue;
    const size_t after = symbols[b].after;
    symbols[a].id = merges_.at(pair).id, symbols[a].after = after;
    symbols[b].id = -1;
    if (after < word.size()) symbols[after].before = a;
    consider(symbols[a].before, a);
    consider(a, after);
  }
  for (const Symbol& s : symbols)
    if (s.id >= 0) to.push_back(s.id);
}

void Tokenizer::append_text(int32_t id, std::string& to) const {
  if (id < 0 || id >= size() || types_[static_cast<size_t>(id)] == kControl) return;
  to.append(tokens_[static_cast<size_t>(id)]);
}

size_t complete_characters(std::string_view text) {
  size_t back = 1;  // distance to the first byte of the last character
  const auto byte = [&] { return static_cast<uint8_t>(text[text.size() - back]); };
  while (back < std::min<size_t>(text.size(), 3) && (byte() & 0xC0) == 0x80) ++back;
  if (text.empty() || byte() < 0xC0) return text.size();
  const size_t bytes = byte() >= 0xF0 ? 4 : byte() >= 0xE0 ? 3 : 2;
  return bytes > back ? text.size() - back : text.size();
}

}  // namespace llm
