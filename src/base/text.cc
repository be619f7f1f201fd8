// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <fmt/format.h>
#include <yard/detail/guard.h>
#include <yard/status.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <set>
#include <typeinfo>

#include "base/mutex.h"

namespace yard::base {
namespace {

constexpr size_t kLongest = 128;  // only so much of a word is compared

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

std::string escaped_byte(char c) { return fmt::format("\\x{:02x}", static_cast<unsigned char>(c)); }

// Characters that quote() writes as a backslash and a letter.
constexpr std::string_view kEscaped = "\"\\\n\t\r", kLetters = "\"\\ntr";

void append_quoted(std::string& out, char c) {
  if (const size_t i = kEscaped.find(c); i != kEscaped.npos)
    (out += '\\') += kLetters[i];
  else if (is_control(c))
    out += escaped_byte(c);
  else
    out += c;
}

// The character at text[at], or a byte that is not UTF-8.
std::string_view character_at(std::string_view text, size_t at) {
  return text.substr(at, std::max<size_t>(utf8_length(text, at), 1));
}

// Of a character of UTF-8.
uint32_t code_point(std::string_view character) {
  const size_t n = character.size();
  uint32_t c = static_cast<unsigned char>(character[0]) & (n == 1 ? 0x7fu : 0x7fu >> n);
  for (size_t i = 1; i < n; ++i) c = c << 6 | (static_cast<unsigned char>(character[i]) & 0x3f);
  return c;
}

// Whether a terminal or a log would obey a character of UTF-8 instead of showing it: control
// characters, marks of the direction of text, and those that some viewers show as the end of a line.
bool is_obeyed(std::string_view character) {
  const uint32_t c = code_point(character);
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x061c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

// Appends the character at text[at], escaped where a terminal or a log would not show it.
// Returns its length.
size_t append_printable(std::string& out, std::string_view text, size_t at) {
  const std::string_view c = character_at(text, at);
  const bool valid = utf8_length(text, at) > 0;
  if (valid && c.size() == 1 && is_control(c[0])) {
    append_quoted(out, c[0]);
  } else if (!valid || is_obeyed(c)) {
    for (const char byte : c) out += escaped_byte(byte);
  } else {
    out += c;
  }
  return c.size();
}

// Without `lines`, each line goes on in the one before, and lines that only point at a column go.
std::string escaped(std::string_view text, size_t most, bool lines) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::string out;
  size_t at = 0;
  while (at < text.size() && at + character_at(text, at).size() <= most) {
    if (lines && text[at] == '\n') {
      out += '\n';
      if (text[++at] != ' ') out += "  ";
    } else if (text[at] == '\n') {
      at = std::min(text.find_first_not_of(" \n^", at), text.size());
      if (at < text.size() && !out.empty()) out += out.ends_with(':') ? " " : "; ";
    } else {
      at += append_printable(out, text, at);
    }
  }
  if (at < text.size()) out += fmt::format(" ... {} bytes more", text.size() - at);
  return out;
}

char small(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
char large(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, kLongest);
  b = b.substr(0, kLongest);
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string_view closest(std::string_view word, const std::vector<std::string>& candidates) {
  // A third of the word may be wrong; short words need at least one letter right.
  const size_t limit = std::max<size_t>(1, std::min<size_t>(word.size(), kLongest) / 3);
  size_t best = limit + 1;
  std::string_view found;
  for (const std::string& c : candidates)
    if (const size_t d = edit_distance(word, c); d < best && d < std::max(word.size(), c.size()))
      best = d, found = c;
  return found;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string_view c = closest(word, candidates);
  return c.empty() ? std::string() : "; did you mean '" + std::string(c) + "'?";
}

std::string one_of(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " or " : ", ";
    out += words[i];
  }
  return out;
}

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); i += append_printable(out, text, i))
    if (text[i] == '"' || text[i] == '\\') out += '\\';
  return out += '"';
}

std::string excerpt(std::string_view text, size_t most) {
  std::string out = "\"";
  size_t i = 0;
  while (i < text.size() && i + character_at(text, i).size() <= most) {
    if (text[i] == '"' || text[i] == '\\') out += '\\';
    i += append_printable(out, text, i);
  }
  return out += i < text.size() ? "\"..." : "\"";
}

std::string printable(std::string_view text, size_t most) { return escaped(text, most, false); }
std::string printable_lines(std::string_view text, size_t most) {
  return escaped(text, most, true);
}

std::string exception_text(const std::exception& e) {
  if (dynamic_cast<const std::bad_alloc*>(&e) != nullptr) return "out of memory";
  if (const auto* error = dynamic_cast<const Error*>(&e)) {
    std::string text =
        fmt::format("{}: {}", to_string(error->status().code()), error->status().message());
    for (const std::string& note : error->status().notes()) text += "; " + note;
    return printable(text);
  }
  if (const char* const what = e.what(); what != nullptr && *what != '\0')
    return printable({what, strnlen(what, kLongestPrintable + 1)});
  return fmt::format("an exception without a message, of type {}",
                     printable(typeid(e).name(), 200));
}

std::string current_exception_text() {
  try {
    throw;
  } catch (const std::exception& e) {
    return exception_text(e);
  } catch (...) {
    if (detail::thread_is_unwinding()) throw;
    return "an exception that is not a std::exception";
  }
}

std::optional<std::string> unquote(std::string_view text, size_t& pos) {
  std::string out;
  if (pos >= text.size() || text[pos] != '"') return std::nullopt;
  for (++pos; pos < text.size(); ++pos) {
    const char c = text[pos];
    if (c == '"') return ++pos, out;
    if (is_control(c)) return std::nullopt;
    const std::string_view hex = text.substr(pos).substr(0, 4);  // \xhh
    if (c != '\\') {
      out += c;
    } else if (const size_t letter = hex.size() > 1 ? kLetters.find(hex[1]) : kLetters.npos;
               letter != kLetters.npos) {
      out += kEscaped[letter], ++pos;
    } else {
      const auto value =
          hex.size() == 4 && hex[1] == 'x' ? number<uint8_t>(hex.substr(2), 16) : std::nullopt;
      if (!value) return std::nullopt;
      out += static_cast<char>(*value), pos += 3;
    }
  }
  return std::nullopt;
}

std::string format_double(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  const size_t e = text.find('e');
  if (e == text.npos) return text.find('.') == text.npos ? text + ".0" : text;
  // to_chars writes "1e-06" and "1e+20"; people write 1e-6 and 1e20.
  size_t digits = e + 1;
  if (text[digits] == '+') text.erase(digits, 1);
  if (text[digits] == '-') ++digits;
  while (digits + 1 < text.size() && text[digits] == '0') text.erase(digits, 1);
  return text;
}

std::string seconds_text(std::chrono::nanoseconds d) {
  return fmt::format("{:g}s", std::chrono::duration<double>(d).count());
}

std::string place_of(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const size_t start = before.rfind('\n') + 1;  // npos + 1 is 0
  const std::string column = fmt::format("column {}", before.size() - start + 1);
  if (text.find('\n') == text.npos) return column;
  return fmt::format("line {}, {}", 1 + std::ranges::count(before, '\n'), column);
}

std::string caret_at(std::string_view text, size_t offset) {
  offset = std::min(offset, text.size());
  const size_t start = text.substr(0, offset).rfind('\n') + 1;  // npos + 1 is 0
  const std::string_view line = text.substr(start, text.find('\n', start) - start);
  std::string out = "  ";
  for (char c : line) out += is_control(c) ? ' ' : c;
  return out += "\n  " + std::string(offset - start, ' ') + '^';
}

bool is_bare_word(std::string_view text) noexcept {
  return !text.empty() && text.find_first_not_of(
                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                              "0123456789_.-") == text.npos;
}

std::string_view trim(std::string_view text) noexcept {
  const size_t from = text.find_first_not_of(" \t");
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(" \t") - from + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(trim(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), small);
  return out;
}
std::string upper(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), large);
  return out;
}
bool same_word(std::string_view a, std::string_view b) noexcept {
  return std::ranges::equal(a, b, {}, small, small);
}

const char* interned(std::string_view text) {
  struct Texts {
    Mutex lock{Rank::kLog};
    std::set<std::string, std::less<>> all;
  };
  Texts& t = process_wide<Texts>();
  const std::lock_guard hold(t.lock);
  return t.all.emplace(text).first->c_str();
}

size_t utf8_length(std::string_view s, size_t at) noexcept {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char c = byte(at);
  const size_t n = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
  if (n == 0 || at + n > s.size()) return 0;
  for (size_t k = 1; k < n; ++k)
    if ((byte(at + k) & 0xc0) != 0x80) return 0;
  if (n == 3 && ((c == 0xe0 && byte(at + 1) < 0xa0) || (c == 0xed && byte(at + 1) >= 0xa0)))
    return 0;
  if (n == 4 && ((c == 0xf0 && byte(at + 1) < 0x90) || (c == 0xf4 && byte(at + 1) >= 0x90)))
    return 0;
  return n;
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const std::string_view c = character_at(text, i);
    if (utf8_length(text, i) == 0)
      out += "\\ufffd";
    else if (is_obeyed(c))
      out += fmt::format("\\u{:04x}", code_point(c));
    else if (c == "\"" || c == "\\")
      (out += '\\') += c;
    else
      out += c;
    i += c.size();
  }
  return out + '"';
}

}  // namespace yard::base
