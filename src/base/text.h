// SPDX-License-Identifier: Apache-2.0
// Text: suggestions for misspelled names, quoting, numbers that round-trip, and places in a source.
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

size_t edit_distance(std::string_view a, std::string_view b);
// Returns the candidate nearest to `word`, or an empty text if none is near.
std::string_view closest(std::string_view word, const std::vector<std::string>& candidates);
// Returns "; did you mean 'x'?" or an empty text.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);
std::string one_of(const std::vector<std::string>& words);

// Puts text into double quotes with the escapes \" \\ \n \t \r \xhh.
std::string quote(std::string_view text);
// Reads a result of quote() that begins at text[pos]. Moves `pos` behind it or to an invalid
// character.
std::optional<std::string> unquote(std::string_view text, size_t& pos);
// Quotes at most `most` bytes of input for a message. Escapes bytes that are not UTF-8.
std::string excerpt(std::string_view text, size_t most = 80);
// Returns a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

inline constexpr size_t kLongestPrintable = 2048;
std::string printable(std::string_view text, size_t most = kLongestPrintable);
// Keeps newlines, and indents later lines so that they do not look like other messages.
std::string printable_lines(std::string_view text, size_t most);

std::string exception_text(const std::exception& e);
// Describes the current exception. Rethrows the unwinding of a thread that ends.
std::string current_exception_text();

// Returns the shortest text that reads back as this double: "1.0", "1e-6", "nan".
std::string format_double(double value);
std::string seconds_text(std::chrono::nanoseconds d);
// Reads all of `text` as a number that fits T. The optional base is for integers.
template <class T>
std::optional<T> number(std::string_view text, auto... base) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base...);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// Returns "column 7", or "line 2, column 7" if the text has several lines.
std::string place_of(std::string_view text, size_t offset);
// Returns the line that holds `offset`, and below it a line with a caret, both indented.
std::string caret_at(std::string_view text, size_t offset);

// Returns whether text is a word of letters, digits, '_', '.' and '-'.
bool is_bare_word(std::string_view text) noexcept;
std::string_view trim(std::string_view text) noexcept;
// Returns the trimmed parts between separators.
std::vector<std::string_view> split(std::string_view text, char separator);
// These three functions know ASCII letters only.
std::string lower(std::string_view text);
std::string upper(std::string_view text);
bool same_word(std::string_view a, std::string_view b) noexcept;

// Returns a copy that is never freed. Equal texts share one copy.
const char* interned(std::string_view text);
// Returns the length of the UTF-8 sequence that begins at text[at], or 0.
size_t utf8_length(std::string_view text, size_t at) noexcept;

}  // namespace yard::base
