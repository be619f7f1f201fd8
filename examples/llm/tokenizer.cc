// SPDX-License-Identifier: Apache-2.0
#include "tokenizer.h"

#include <algorithm>
#include <iterator>
#include <queue>
#include <tuple>
#include <utility>

namespace llm {
namespace {

enum Kind : uint8_t { kOther, kLetter, kNumber, kSpace, kEnd };
struct Range {
  uint32_t first, last;
  Kind kind;
};
constexpr Range kRanges[] = {
#include "unicode_ranges.inc"
};

Kind kind_of(uint32_t code) {
  const Range* const r = std::partition_point(std::begin(kRanges), std::end(kRanges),
                                              [&](const Range& x) { return x.last < code; });
  return r != std::end(kRanges) && code >= r->first ? r->kind : kOther;
}

struct Character {
  uint32_t code;
  uint32_t bytes;
};
// The first character of a text that is not empty. An invalid byte is a character of its own, of no kind.
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

// The characters of a text, and one that ends it.
struct Characters {
  std::vector<uint32_t> code, start;
  std::vector<Kind> kind;

  explicit Characters(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const Character c = first_character(text.substr(at));
      add(c.code, at, kind_of(c.code));
      at += c.bytes;
    }
    add(0, text.size(), kEnd);
  }
  size_t size() const { return code.size() - 1; }
  // Where the characters of a kind that begin at i end.
  size_t run(size_t i, Kind k) const {
    while (kind[i] == k) ++i;
    return i;
  }
  bool is_newline(size_t i) const { return code[i] == '\n' || code[i] == '\r'; }
  // The length of 's, 't, 're, 've, 'm, 'll or 'd at i; 0: none.
  size_t contraction(size_t i, bool any_case) const {
    if (code[i] != '\'' || i + 1 >= size()) return 0;
    const auto at = [&](size_t n) {
      return any_case && kind[n] == kLetter ? code[n] | 0x20 : code[n];
    };
    const uint32_t a = at(i + 1), b = i + 2 < size() ? at(i + 2) : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
  }
  // White space up to the next word, to which the last character of several belongs.
  size_t spaces(size_t i) const {
    const size_t end = run(i, kSpace);
    return end < size() && end > i + 1 ? end - 1 : end;
  }

 private:
  void add(uint32_t c, size_t at, Kind k) {
    code.push_back(c), start.push_back(static_cast<uint32_t>(at)), kind.push_back(k);
  }
};

// The end of the word at i: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t gpt2_word(const Characters& c, size_t i) {
  if (const size_t n = c.contraction(i, false)) return i + n;
  const size_t from = i + (c.code[i] == ' ' ? 1 : 0);
  const Kind kind = c.kind[from];
  return kind != kSpace && kind != kEnd ? c.run(from, kind) : c.spaces(i);
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
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
  return c.spaces(i);
}

// Byte-level BPE spells bytes as characters: visible ones of Latin-1 as themselves, others from 256 on.
constexpr bool is_visible(uint32_t b) { return (b > 32 && b < 127) || (b > 160 && b != 173); }
const std::array<uint32_t, 256> kSpelling = [] {
  std::array<uint32_t, 256> code{};
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) code[b] = is_visible(b) ? b : next++;
  return code;
}();
void append_spelling(uint32_t code, std::string& to) {  // all are below 0x800
  if (code < 0x80) return to.push_back(static_cast<char>(code));
  to.push_back(static_cast<char>(0xC0 | code >> 6)),
      to.push_back(static_cast<char>(0x80 | (code & 0x3F)));
}

constexpr int64_t kControl = 3, kUserDefined = 4;  // types of tokens
uint64_t pair_of(int32_t a, int32_t b) {
  return static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32 | static_cast<uint32_t>(b);
}

}  // namespace

Tokenizer::Tokenizer(const Gguf& file) {
  if (const auto model = file.text("tokenizer.ggml.model"); model != "gpt2")
    file.fail("a tokenizer of model gpt2 (byte-level BPE)", "'" + std::string(model) + "'");
  const std::string_view pre = file.text("tokenizer.ggml.pre", "gpt-2");
  if (pre == "smollm")
    words_ = Words::kGpt2Digits;
  else if (pre == "llama-bpe" || pre == "qwen2")
    words_ = pre == "qwen2" ? Words::kQwen2 : Words::kLlama3;
  else if (pre != "gpt-2" && pre != "default")
    file.fail("tokenizer.ggml.pre as gpt-2, default, smollm, llama-bpe or qwen2",
              "'" + std::string(pre) + "'");
  tokens_ = file.texts("tokenizer.ggml.tokens");
  types_ = file.has("tokenizer.ggml.token_type") ? file.integers("tokenizer.ggml.token_type")
                                                 : std::vector<int64_t>(tokens_.size(), 1);
  if (types_.size() != tokens_.size() || tokens_.size() > INT32_MAX)
    file.fail(std::to_string(tokens_.size()) + " types of tokens", std::to_string(types_.size()));
  for (int32_t id = 0; id < size(); ++id) {
    const auto i = static_cast<size_t>(id);
    ids_.emplace(tokens_[i], id);
    if ((types_[i] == kControl || types_[i] == kUserDefined) && !tokens_[i].empty())
      specials_.push_back(id);
  }
  const auto length = [&](int32_t id) { return tokens_[static_cast<size_t>(id)].size(); };
  std::stable_sort(specials_.begin(), specials_.end(),
                   [&](int32_t a, int32_t b) { return length(a) > length(b); });
  for (size_t b = 0; b < 256; ++b) {
    std::string spelling;
    append_spelling(kSpelling[b], spelling);
    const auto found = ids_.find(spelling);
    of_byte_[b] = found != ids_.end() ? found->second : -1;
  }
  read_merges(file);
  const auto token = [&](const char* key) {
    const int64_t id = file.integer(key, -1);
    return id < size() ? static_cast<int32_t>(std::max<int64_t>(id, -1)) : -1;
  };
  ends_ = {token("tokenizer.ggml.eos_token_id"), token("tokenizer.ggml.eot_token_id")};
  for (const char* name : {"<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>"})
    if (const auto found = ids_.find(name); found != ids_.end()) ends_.push_back(found->second);
  if (file.flag("tokenizer.ggml.add_bos_token", words_ == Words::kLlama3))
    begin_ = token("tokenizer.ggml.bos_token_id");
}

void Tokenizer::read_merges(const Gguf& file) {
  const std::vector<std::string_view> merges = file.texts("tokenizer.ggml.merges");
  merges_.reserve(merges.size());
  std::string both;
  for (size_t rank = 0; rank < merges.size() && rank < INT32_MAX; ++rank) {
    const std::string_view m = merges[rank];
    const size_t space = m.find(' ', 1);
    if (space == m.npos)
      file.fail("merges as two tokens with a space between them", "'" + std::string(m) + "'");
    const std::string_view left = m.substr(0, space), right = m.substr(space + 1);
    both.assign(left).append(right);
    const auto a = ids_.find(left), b = ids_.find(right), c = ids_.find(both);
    if (a == ids_.end() || b == ids_.end() || c == ids_.end())
      file.fail("merges of tokens of the vocabulary", "'" + std::string(m) + "'");
    merges_.emplace(pair_of(a->second, b->second), Merge{static_cast<int32_t>(rank), c->second});
  }
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
  std::string words;  // since the last special token
  for (const Part& part : parts) {
    for (size_t at = 0; at < part.text.size();) {
      const int32_t special = special_at(part.text.substr(at), part.trusted);
      if (special < 0) {
        words.push_back(part.text[at++]);
        continue;
      }
      encode_words(words, ids);
      words.clear();
      ids.push_back(special);
      at += tokens_[static_cast<size_t>(special)].size();
    }
  }
  encode_words(words, ids);
  return ids;
}

void Tokenizer::encode_words(std::string_view text, std::vector<int32_t>& to) const {
  const bool each_digit = words_ == Words::kGpt2Digits;
  for (size_t from = 0; from < text.size();) {
    // Digits that stand alone divide the text: what is before one ends there.
    size_t length = 0;
    bool is_digit = false;
    while (each_digit && from + length < text.size()) {
      const Character c = first_character(text.substr(from + length));
      is_digit = kind_of(c.code) == kNumber;
      if (is_digit && length > 0) break;
      length += c.bytes;
      if (is_digit) break;
    }
    const std::string_view part = text.substr(from, each_digit ? length : text.npos);
    const Characters c(part);
    for (size_t i = 0; i < c.size();) {
      const size_t end = words_ == Words::kLlama3  ? llama3_word(c, i, 3)
                         : words_ == Words::kQwen2 ? llama3_word(c, i, 1)
                                                   : gpt2_word(c, i);
      encode_word(part.substr(c.start[i], c.start[end] - c.start[i]), to);
      i = end;
    }
    from += part.size();
  }
}

// Merges neighbours, those of the lowest rank first and of equal ones the leftmost, until none can be merged.
void Tokenizer::encode_word(std::string_view word, std::vector<int32_t>& to) const {
  if (words_ == Words::kLlama3) {  // words of the vocabulary need no merges
    std::string spelling;
    for (const char c : word) append_spelling(kSpelling[static_cast<uint8_t>(c)], spelling);
    if (const auto found = ids_.find(spelling); found != ids_.end())
      return to.push_back(found->second);
  }
  struct Symbol {
    int32_t id;
    size_t before, after;  // neighbours; word.size(): none
  };
  std::vector<Symbol> symbols;
  for (const char c : word)
    if (const int32_t id = of_byte_[static_cast<uint8_t>(c)]; id >= 0)
      symbols.push_back({id, symbols.size() - 1, symbols.size() + 1});
  using Candidate = std::tuple<int32_t, size_t, size_t, uint64_t>;  // rank, both places, both ids
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](size_t a, size_t b) {
    if (a >= symbols.size() || b >= symbols.size()) return;
    const uint64_t pair = pair_of(symbols[a].id, symbols[b].id);
    if (const auto m = merges_.find(pair); m != merges_.end())
      queue.emplace(m->second.rank, a, b, pair);
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) consider(i, i + 1);
  for (; !queue.empty(); queue.pop()) {
    const auto [rank, a, b, pair] = queue.top();
    if (symbols[a].id < 0 || symbols[b].id < 0 || pair_of(symbols[a].id, symbols[b].id) != pair)
      continue;
    symbols[a].id = merges_.at(pair).id;
    symbols[b].id = -1;
    const size_t after = symbols[a].after = symbols[b].after;
    if (after < symbols.size()) symbols[after].before = a;
    consider(symbols[a].before, a);
    consider(a, after);
  }
  for (const Symbol& s : symbols)
    if (s.id >= 0) to.push_back(s.id);
}

void Tokenizer::append_text(int32_t id, std::string& to) const {
  if (id < 0 || id >= size() || types_[static_cast<size_t>(id)] == kControl) return;
  std::string_view token = tokens_[static_cast<size_t>(id)];
  if (types_[static_cast<size_t>(id)] == kUserDefined) {
    to.append(token);
    return;
  }
  static const std::array<int16_t, 512> kByte = [] {
    std::array<int16_t, 512> byte{};
    byte.fill(-1);
    for (int16_t b = 0; b < 256; ++b) byte[kSpelling[static_cast<size_t>(b)]] = b;
    return byte;
  }();
  while (!token.empty()) {
    const Character c = first_character(token);
    const int16_t byte = c.code < kByte.size() ? kByte[c.code] : int16_t{-1};
    byte >= 0 ? to.push_back(static_cast<char>(byte)) : void(to.append(token.substr(0, c.bytes)));
    token.remove_prefix(c.bytes);
  }
}

bool Tokenizer::is_end(int32_t id) const {
  return std::find(ends_.begin(), ends_.end(), id) != ends_.end();
}

size_t complete_characters(std::string_view text) {
  // The last character begins at most four bytes before the end.
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<uint8_t>(text[text.size() - back]);
    if (byte < 0x80) break;
    const size_t bytes = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    if (bytes > 1) return bytes > back ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace llm
