// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <fmt/format.h>

#include <cmath>
#include <set>
#include <utility>

#include "base/text.h"

namespace yard::base {
namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// Length of the number at the beginning of `text`, 0 if there is none.
size_t number_length(std::string_view text) noexcept {
  size_t at = 0;
  const auto digits = [&] {
    const size_t from = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    return at > from;
  };
  if (at < text.size() && text[at] == '-') ++at;
  if (at < text.size() && text[at] == '0')
    ++at;
  else if (!digits())
    return 0;
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (!digits()) return 0;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (!digits()) return 0;
  }
  return at;
}

void append_utf8(std::string& to, uint32_t c) {
  if (c < 0x80) {
    to += static_cast<char>(c);
    return;
  }
  const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  constexpr uint32_t kHeads[] = {0, 0xC0, 0xE0, 0xF0};
  to += static_cast<char>(kHeads[more] | c >> (6 * more));
  for (int i = more; i-- > 0;) to += static_cast<char>(0x80 | ((c >> (6 * i)) & 0x3F));
}

class JsonReader {
 public:
  JsonReader(std::string_view text, const YamlLimits& limits) : text_(text), limits_(limits) {}

  Result<YamlNode> read() {
    if (text_.size() > limits_.bytes)
      return Status(Code::kParse, fmt::format("invalid JSON: expected at most {} bytes, got {}",
                                              limits_.bytes, text_.size()));
    YamlNode root;
    if (value(root, 0)) {
      blanks();
      if (at_ < text_.size()) fail("the end");
    }
    if (!problem_.empty()) return Status(Code::kParse, std::move(problem_));
    return root;
  }

 private:
  // The first problem counts. Always false.
  bool fail(std::string_view expected) {
    if (!problem_.empty()) return false;
    problem_ =
        fmt::format("invalid JSON at {}: expected {}, got {}", place_of(text_, at_), expected,
                    at_ < text_.size() ? excerpt(text_.substr(at_, 12)) : "the end");
    return false;
  }

  void blanks() noexcept {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }
  bool take(char c) noexcept {
    blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) noexcept {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  // Recursive, as deep as the limit.
  bool value(YamlNode& to, size_t depth) {
    blanks();
    if (++nodes_ > limits_.nodes) return fail(fmt::format("at most {} values", limits_.nodes));
    const char first = at_ < text_.size() ? text_[at_] : '\0';
    if ((first == '{' || first == '[') && depth >= limits_.depth)
      return fail(fmt::format("at most {} levels", limits_.depth));
    if (take('{')) return object(to, depth);
    if (take('[')) return list(to, depth);
    if (first == '"') {
      to.kind = YamlNode::Kind::kScalar, to.quoted = true;
      return string(to.text);
    }
    if (take_word("null")) return true;
    to.kind = YamlNode::Kind::kScalar;
    for (const char* word : {"true", "false"})
      if (take_word(word)) return to.text = word, true;
    const size_t length = number_length(text_.substr(at_));
    if (length == 0) return fail("a value");
    to.text = text_.substr(at_, length);
    at_ += length;
    return true;
  }

  bool object(YamlNode& to, size_t depth) {
    to.kind = YamlNode::Kind::kMap;
    if (take('}')) return true;
    std::set<std::string, std::less<>> keys;
    do {
      blanks();
      YamlEntry entry;
      if (at_ >= text_.size() || text_[at_] != '"') return fail("a key in quotes");
      const size_t key_at = at_;
      if (!string(entry.key)) return false;
      if (!keys.insert(entry.key).second) {
        at_ = key_at;
        return fail("a key that is not there yet");
      }
      if (!take(':')) return fail("':'");
      if (!value(entry.value, depth + 1)) return false;
      to.entries.push_back(std::move(entry));
    } while (take(','));
    return take('}') || fail("',' or '}'");
  }

  bool list(YamlNode& to, size_t depth) {
    to.kind = YamlNode::Kind::kList;
    if (take(']')) return true;
    do {
      if (!value(to.items.emplace_back(), depth + 1)) return false;
    } while (take(','));
    return take(']') || fail("',' or ']'");
  }

  bool string(std::string& to) {
    ++at_;
    for (;;) {
      if (at_ >= text_.size()) return fail("'\"'");
      const char c = text_[at_];
      if (c == '"') return ++at_, true;
      if (c == '\\') {
        if (!escape(to)) return false;
        continue;
      }
      const size_t length = utf8_length(text_, at_);
      if (length == 0) return fail("UTF-8");
      if (static_cast<unsigned char>(c) < 0x20) return fail("an escape for a control character");
      to += text_.substr(at_, length);
      at_ += length;
    }
  }

  bool escape(std::string& to) {
    constexpr std::string_view kSigns = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    const char c = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (c != 'u') {
      const size_t i = c == '\0' ? kSigns.npos : kSigns.find(c);
      if (i == kSigns.npos) return fail("an escape of JSON");
      to += kMeanings[i];
      at_ += 2;
      return true;
    }
    uint32_t unit = 0;
    if (!unit_at(at_, unit)) return fail("\\u and four hexadecimal digits");
    size_t length = 6;
    if (unit >= 0xD800 && unit < 0xE000) {  // two units make one character
      uint32_t low = 0;
      if (unit >= 0xDC00 || !unit_at(at_ + length, low) || low < 0xDC00 || low > 0xDFFF)
        return fail("a pair of surrogates");
      unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
      length = 12;
    }
    append_utf8(to, unit);
    at_ += length;
    return true;
  }

  bool unit_at(size_t at, uint32_t& unit) const noexcept {
    if (text_.size() < at + 6 || text_[at] != '\\' || text_[at + 1] != 'u') return false;
    const char* const from = text_.data() + at + 2;
    const auto [end, error] = std::from_chars(from, from + 4, unit, 16);
    return error == std::errc() && end == from + 4;
  }

  const std::string_view text_;
  const YamlLimits& limits_;
  size_t at_ = 0, nodes_ = 0;
  std::string problem_;
};

bool is_bare_json(const YamlNode& node) noexcept {
  return !node.quoted && (node.text == "true" || node.text == "false" ||
                          (!node.text.empty() && number_length(node.text) == node.text.size()));
}

void append(std::string& to, const YamlNode& node) {
  using Kind = YamlNode::Kind;
  switch (node.kind) {
    case Kind::kNull: to += "null"; return;
    case Kind::kScalar: to += is_bare_json(node) ? node.text : json_string(node.text); return;
    case Kind::kList:
      to += '[';
      for (const YamlNode& item : node.items) {
        if (&item != node.items.data()) to += ", ";
        append(to, item);
      }
      to += ']';
      return;
    case Kind::kMap:
      to += '{';
      for (const YamlEntry& e : node.entries) {
        if (&e != node.entries.data()) to += ", ";
        to += json_string(e.key) + ": ";
        append(to, e.value);
      }
      to += '}';
      return;
  }
}

}  // namespace

Result<YamlNode> parse_json(std::string_view text, const YamlLimits& limits) {
  return JsonReader(text, limits).read();
}

std::string to_json(const YamlNode& node) {
  std::string to;
  append(to, node);
  return to;
}

const char* json_kind(const YamlNode& node) noexcept {
  switch (node.kind) {
    case YamlNode::Kind::kNull: return "null";
    case YamlNode::Kind::kList: return "a list";
    case YamlNode::Kind::kMap: return "an object";
    case YamlNode::Kind::kScalar: break;
  }
  if (node.quoted) return "a string";
  return node.text == "true" || node.text == "false" ? "true or false" : "a number";
}

std::string json_excerpt(const YamlNode* node) {
  if (node == nullptr) return "none";
  if (node->kind == YamlNode::Kind::kScalar && node->quoted) return excerpt(node->text);
  return printable(to_json(*node), 80);
}

const std::string* json_text(const YamlNode& node) noexcept {
  return node.kind == YamlNode::Kind::kScalar && node.quoted ? &node.text : nullptr;
}

std::optional<bool> json_switch(const YamlNode& node) noexcept {
  if (node.kind != YamlNode::Kind::kScalar || node.quoted) return std::nullopt;
  if (node.text == "true") return true;
  if (node.text == "false") return false;
  return std::nullopt;
}

std::optional<int64_t> json_whole_number(const YamlNode& node) noexcept {
  if (node.kind != YamlNode::Kind::kScalar || node.quoted) return std::nullopt;
  return number<int64_t>(node.text);
}

std::string json_list(const std::vector<std::string>& json_values) {
  return fmt::format("[{}]", fmt::join(json_values, ", "));
}

std::string json_strings(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  quoted.reserve(texts.size());
  for (const std::string& text : texts) quoted.push_back(json_string(text));
  return json_list(quoted);
}

JsonObject& JsonObject::add(std::string_view key, std::string_view text) {
  return add_json(key, json_string(text));
}

JsonObject& JsonObject::add(std::string_view key, double number) {
  return add_json(key, std::isfinite(number) ? format_double(number) : "null");
}

JsonObject& JsonObject::add_json(std::string_view key, std::string_view json) {
  if (text_.size() > 1) text_ += ", ";
  text_ += json_string(key);
  text_ += ": ";
  text_ += json;
  return *this;
}

}  // namespace yard::base
