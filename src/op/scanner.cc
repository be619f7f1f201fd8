// SPDX-License-Identifier: Apache-2.0
#include "op/scanner.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace yard::op {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_word_start(char c) { return is_lower(c) || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word(char c) { return is_word_start(c) || is_digit(c); }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

size_t Scanner::at() {
  while (pos_ < text_.size() && is_blank(text_[pos_])) ++pos_;
  return pos_;
}

char Scanner::peek() { return at() < text_.size() ? text_[pos_] : '\0'; }

bool Scanner::accept(std::string_view punctuation) {
  if (text_.substr(at(), punctuation.size()) != punctuation) return false;
  pos_ += punctuation.size();
  return true;
}

bool Scanner::expect(char c, std::string_view context) {
  return accept(c) || expected("'" + std::string(1, c) + "' " + std::string(context));
}

bool Scanner::expected(std::string_view what, std::string_view hint) {
  return fail("expected {}, got {}{}", what, found(), hint);
}

std::string_view Scanner::peek_word() {
  const size_t start = at();
  size_t end = start;
  if (end < text_.size() && is_word_start(text_[end]))
    while (end < text_.size() && is_word(text_[end])) ++end;
  return text_.substr(start, end - start);
}

std::string_view Scanner::word() {
  const std::string_view w = peek_word();
  pos_ += w.size();
  return w;
}

bool Scanner::name(std::string_view kind, std::string& to) {
  const std::string_view w = peek_word();
  const auto is_upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  if (w.empty() || !is_lower(w[0]) || std::ranges::any_of(w, is_upper))
    return expected(kind, w.empty() ? "" : "; names are lower-case letters, digits and '_'");
  pos_ += w.size();
  to = w;
  return true;
}

bool Scanner::op_name(std::string& to) {
  if (!name("the name of an op", to)) return false;
  while (raw() == '.') {
    const size_t start = ++pos_;
    while (is_lower(raw()) || is_digit(raw()) || raw() == '_') ++pos_;
    if (pos_ == start) return expected("letters, digits or '_' after '.' in the name of an op");
    to += "." + std::string(text_.substr(start, pos_ - start));
  }
  return true;
}

bool Scanner::at_number() {
  const char c = peek();
  return is_digit(c) || (c == '-' && pos_ + 1 < text_.size() && is_digit(text_[pos_ + 1]));
}

bool Scanner::number(Number& to) {
  if (!at_number()) return expected("a number");
  const char* const first = text_.data() + pos_;
  const char* const end = text_.data() + text_.size();
  Number n;
  auto [last, error] = std::from_chars(first, end, n.f);
  n.is_float = std::any_of(first, last, [](char c) { return !is_digit(c) && c != '-'; });
  // "8x" is neither a number nor a word.
  const bool good = last[-1] != '.' && (last == end || !is_word(*last));
  if (good && !n.is_float) error = std::from_chars(first, last, n.i).ec;
  if (!good || error != std::errc())
    return fail("the number {} is {}", found(), good ? "out of range" : "malformed");
  pos_ += static_cast<size_t>(last - first);
  to = n;
  return true;
}

bool Scanner::integer(std::string_view kind, int64_t& to) {
  const size_t start = at();
  if (!at_number()) return expected(kind);
  Number n;
  if (!number(n)) return false;
  to = n.i;
  return !n.is_float ||
         fail_at(start, "expected {}, got a number with a fraction or exponent", kind);
}

bool Scanner::quoted(std::string& to) {
  size_t pos = at();
  auto text = base::unquote(text_, pos);
  if (!text)
    return pos >= text_.size()
               ? fail_at(pos, "the string has no closing '\"'")
               : fail_at(pos, "not allowed in a string; escapes are \\\" \\\\ \\n \\t \\r \\xhh");
  pos_ = pos;
  to = *std::move(text);
  return true;
}

bool Scanner::dtype(DType& to) {
  const std::string_view w = peek_word();
  const auto t = parse_dtype(w);
  if (!t) return expected("a dtype", base::did_you_mean(w, dtype_names()));
  pos_ += w.size();
  to = *t;
  return true;
}

std::string Scanner::found() {
  if (at_end()) return "the end";
  size_t end = pos_ + 1;
  if (is_word(text_[pos_]))
    while (end < text_.size() && end < pos_ + 40 && is_word(text_[end])) ++end;
  std::string token(text_.substr(pos_, end - pos_));
  const auto c = static_cast<unsigned char>(token[0]);
  if (c < 0x20 || c >= 0x7f) return base::quote(token);
  return "'" + token + "'";
}

bool Scanner::keep_error(size_t offset, const std::string& message) {
  if (!status_.ok()) return false;
  status_ = Status(Code::kParse, fmt::format("{}, {}: {}\n{}", what_, base::place_of(text_, offset),
                                             message, base::caret_at(text_, offset)));
  return false;
}

std::vector<std::string> dtype_names() {
  std::vector<std::string> all;
  for (int i = 1; i < 64; ++i)
    if (bits(static_cast<DType>(i)) != 0) all.emplace_back(to_string(static_cast<DType>(i)));
  return all;
}

}  // namespace yard::op
