// SPDX-License-Identifier: Apache-2.0
// Reads tokens of the schema and CallSpec grammars, and reports errors at a column. Internal.
#pragma once

#include <fmt/format.h>
#include <yard/tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace yard::op {

// A cursor over the text. A function that fails records the error and returns false. Only the first
// error is kept, so callers just return.
class Scanner {
 public:
  // `what` names the kind of text in messages ("schema"). The text must outlive the scanner.
  Scanner(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  // Skips blanks, and returns the offset of the next token.
  size_t at();
  bool at_end() { return at() == text_.size(); }
  // Returns the next character after blanks, or '\0' at the end.
  char peek();
  // Returns the next character, which may be a blank.
  char raw() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }
  void advance(size_t n) { pos_ += n; }
  // Returns to an offset that at() returned.
  void seek(size_t offset) { pos_ = offset; }

  bool accept(char c) { return accept(std::string_view(&c, 1)); }
  bool accept(std::string_view punctuation);
  // Fails with "expected ')' CONTEXT" if the next character is not `c`.
  bool expect(char c, std::string_view context);

  // Reads [A-Za-z_][A-Za-z0-9_]*. Returns an empty text, without an error, if there is none.
  std::string_view word();
  std::string_view peek_word();
  bool accept_word(std::string_view expected) { return peek_word() == expected && !word().empty(); }
  // Reads [a-z][a-z0-9_]*. `kind` is for the message, such as "a parameter name".
  bool name(std::string_view kind, std::string& to);
  // Reads an op's name, with dots.
  bool op_name(std::string& to);

  struct Number {
    bool is_float = false;
    int64_t i = 0;
    double f = 0;
    double value() const { return is_float ? f : static_cast<double>(i); }
  };
  bool at_number();
  bool number(Number& to);
  bool integer(std::string_view kind, int64_t& to);
  bool quoted(std::string& to);
  // Reads a dtype name or a common spelling of it.
  bool dtype(DType& to);
  // Calls item() to read each of one or several items with commas between them.
  template <class F>
  bool list(const F& item) {
    do {
      if (!item()) return false;
    } while (accept(','));
    return true;
  }

  // Fails with "expected WHAT, got TOKEN" and the hint.
  bool expected(std::string_view what, std::string_view hint = {});
  template <class... Args>
  bool fail(fmt::format_string<Args...> text, Args&&... args) {
    return fail_at(at(), text, std::forward<Args>(args)...);
  }
  template <class... Args>
  bool fail_at(size_t offset, fmt::format_string<Args...> text, Args&&... args) {
    return keep_error(offset, fmt::format(text, std::forward<Args>(args)...));
  }
  Status take_status() { return std::move(status_); }

 private:
  // Returns the next token for messages, such as "')'", "'foo'" or "the end".
  std::string found();
  bool keep_error(size_t offset, const std::string& message);

  std::string_view text_;
  std::string_view what_;
  size_t pos_ = 0;
  Status status_;
};

// Returns the names of all dtypes, for suggestions.
std::vector<std::string> dtype_names();

}  // namespace yard::op
