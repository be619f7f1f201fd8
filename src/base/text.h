// SPDX-License-Identifier: Apache-2.0
// Text helpers: suggestions for misspelt names, quoting, JSON strings, numbers that round-trip, and places in a source
// text. Any thread may call them.
#pragma once

#include <charconv>
#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace yard::base {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b);
// The candidate nearest to `word`; empty if none is near enough. Ties go to the first.
std::string_view closest(std::string_view word, const std::vector<std::string>& candidates);
// "; did you mean 'x'?" or empty, to be appended to a message.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);
// "a, b or c".
std::string one_of(const std::vector<std::string>& words);

// In double quotes; quote, backslash and control characters are escaped (\" \\ \n \t \r \xhh).
std::string quote(std::string_view text);
// Reads a string that quote() wrote, starting at text[pos] == '"', and moves pos past it, or to the invalid character.
std::optional<std::string> unquote(std::string_view text, size_t& pos);
// quote() for input in messages: at most `most` bytes, then "..."; bytes that are not UTF-8 are escaped.
std::string excerpt(std::string_view text, size_t most = 80);
// A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD, so that the output always parses.
std::string json_string(std::string_view text);

// yard::printable() of yard/log.h.
inline constexpr size_t kLongestPrintable = 2048;
std::string printable(std::string_view text, size_t most = kLongestPrintable);
// Does this for several lines: newlines stay, and each later line is indented, so that none looks like a message of its own.
std::string printable_lines(std::string_view text, size_t most);

// The text of an exception, printable and never empty.
std::string exception_text(const std::exception& e);
// Of the exception that is being handled, whatever its type. Rethrows the unwinding of a thread that ends.
std::string current_exception_text();

// The shortest decimal text that reads back as the same number, not as an integer: "1.0", "1e-6", "inf", "nan".
std::string format_double(double value);
// "30s", "0.25s".
std::string seconds_text(std::chrono::nanoseconds d);
// All of `text` as a number; empty if it is not one, or too large for T. Only whole numbers may have another base.
template <class T>
std::optional<T> number(std::string_view text, auto... base) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base...);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// "column 7" (or "line 2, column 7" in text of several lines).
std::string place_of(std::string_view text, size_t offset);
// The line that holds `offset` and below it a caret, each indented by two and ended without newline.
std::string caret_at(std::string_view text, size_t offset);

// Whether text is a word that needs no quotes: letters, digits, '_', '.', '-', not empty.
bool is_bare_word(std::string_view text) noexcept;
// Without the blanks (space, tab) at both ends.
std::string_view trim(std::string_view text) noexcept;
// The parts between separators, trimmed; text without a separator is one part.
std::vector<std::string_view> split(std::string_view text, char separator);
// These change and compare the case of ASCII letters alone.
std::string lower(std::string_view text);
std::string upper(std::string_view text);
bool same_word(std::string_view a, std::string_view b) noexcept;

// A copy of the text that is never freed. Equal texts have the same copy.
const char* interned(std::string_view text);
// Length of the UTF-8 sequence that begins at text[at], 0 if there is none.
size_t utf8_length(std::string_view text, size_t at) noexcept;

}  // namespace yard::base
