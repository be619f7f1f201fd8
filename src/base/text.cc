// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <fmt/format.h>
#include <yard/detail/guard.h>
#include <yard/status.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <set>
#include <typeinfo>

#include "base/mutex.h"

namespace yard::base {
namespace {

constexpr size_t kLongest = 128;  // compare at most this many bytes of a word

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// Characters that quote() writes as a backslash and a letter.
constexpr std::string_view kEscaped = "\"\\\n\t\r", kLetters = "\"\\ntr";

struct Character {
  std::string_view bytes;
  uint32_t code = 0;
  bool valid = false;  // if false, this is one byte that is not UTF-8
};

Character character_at(std::string_view text, size_t at) {
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // by the number of bytes
  const auto first = static_cast<unsigned char>(text[at]);
  const auto ones = static_cast<size_t>(std::countl_one(first));
  const std::string_view bytes = text.substr(at, std::max<size_t>(ones, 1));
  const Character invalid{text.substr(at, 1)};
  if (ones == 1 || ones > 4 || bytes.size() < ones) return invalid;
  uint32_t code = first & (0x7fu >> ones);
  for (const char c : bytes.substr(1)) {
    if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) return invalid;
    code = code << 6 | (static_cast<unsigned char>(c) & 0x3f);
  }
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kLeast[ones] || code > 0x10ffff || surrogate) return invalid;
  return {bytes, code, true};
}

// Returns true for characters that terminals or logs obey instead of showing: control characters,
// marks of the direction of text, and ends of lines in some viewers.
bool is_obeyed(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x061c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

// Appends the character at text[at]. Escapes it if a terminal or a log would not show it, or if it
// cannot stand between double quotes. Returns its length.
size_t append_printable(std::string& out, std::string_view text, size_t at, bool quoted = false) {
  const Character c = character_at(text, at);
  const size_t letter = kEscaped.find(text[at]);
  if (letter != kEscaped.npos && (quoted || is_control(text[at]))) {
    (out += '\\') += kLetters[letter];
  } else if (!c.valid || is_obeyed(c.code)) {
    for (const char byte : c.bytes)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  } else {
    out += c.bytes;
  }
  return c.bytes.size();
}

// If `lines` is false, returns one line, without lines that only point at a column.
std::string escaped(std::string_view text, size_t most, bool lines) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::string out;
  size_t at = 0;
  while (at < text.size() && at + character_at(text, at).bytes.size() <= most) {
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

char to_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
char to_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

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
  // A third of the word may be wrong. Short words need at least one letter right.
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
  if (words.size() < 2) return words.empty() ? "" : words[0];
  return fmt::format("{} or {}", fmt::join(words.begin(), words.end() - 1, ", "), words.back());
}

std::string quote(std::string_view text) { return excerpt(text, text.size()); }

std::string excerpt(std::string_view text, size_t most) {
  std::string out = "\"";
  size_t i = 0;
  while (i < text.size() && i + character_at(text, i).bytes.size() <= most)
    i += append_printable(out, text, i, true);
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
  std::ranges::transform(out, out.begin(), to_lower);
  return out;
}
std::string upper(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), to_upper);
  return out;
}
bool same_word(std::string_view a, std::string_view b) noexcept {
  return std::ranges::equal(a, b, {}, to_lower, to_lower);
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

size_t utf8_length(std::string_view text, size_t at) noexcept {
  const Character c = character_at(text, at);
  return c.valid ? c.bytes.size() : 0;
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const Character c = character_at(text, i);
    if (!c.valid)
      out += "\\ufffd";
    else if (is_obeyed(c.code))
      out += fmt::format("\\u{:04x}", c.code);
    else
      (out += c.code == '"' || c.code == '\\' ? "\\" : "") += c.bytes;
    i += c.bytes.size();
  }
  return out + '"';
}

}  // namespace yard::base
