// SPDX-License-Identifier: Apache-2.0
// Collects the events of yaml-cpp into a tree, within limits.
#include "base/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <limits>
#include <map>
#include <sstream>
#include <unordered_map>

#include "base/text.h"

namespace yard::base {
namespace {

struct Stop {};  // thrown to end parsing from inside an event

constexpr size_t kMostErrors = 50;

YamlMark mark_of(const YAML::Mark& m) {
  return {static_cast<uint32_t>(m.line + 1), static_cast<uint32_t>(m.column + 1)};
}

class Builder : public YAML::EventHandler {
 public:
  explicit Builder(YamlDocument& to) : to_(to) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0)
      fail(mark_of(mark), "a second document begins here; expected one document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add({YamlNode::Kind::kNull, false, mark_of(mark), {}, {}, {}}, anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const YamlMark at = mark_of(mark);
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) return fail(at, "this alias names a value that contains it");
    YamlNode copy = it->second;
    if (stack_.size() + count(copy, at) > kMostYamlDepth) too_deep(at);
    copy.at = at;
    attach(std::move(copy));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const YamlMark at = mark_of(mark);
    const bool quoted = tag == "!" || tag == "tag:yaml.org,2002:str";
    if (!quoted) check_tag(tag, at);
    add({YamlNode::Kind::kScalar, quoted, at, value, {}, {}}, anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(YamlNode::Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(YamlNode::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { end(); }

  bool beyond_limits() const noexcept { return beyond_limits_; }

  void error(YamlMark at, std::string message) {
    if (to_.errors.size() + 1 >= kMostErrors) fail(at, std::move(message));
    to_.errors.push_back({at, std::move(message)});
  }

 private:
  struct Open {
    YamlNode node;
    YAML::anchor_t anchor = 0;
    // For a map: whether the last entry waits for its value, and whether its key was there already.
    bool has_key = false, repeated = false;
    std::unordered_map<std::string, YamlMark> keys;
  };

  [[noreturn]] void fail(YamlMark at, std::string message) {
    to_.errors.push_back({at, std::move(message)});
    to_.whole = false;
    throw Stop();
  }
  [[noreturn]] void too_deep(YamlMark at) {
    beyond_limits_ = true;
    fail(at, fmt::format("nested too deeply; expected at most {} levels", kMostYamlDepth));
  }

  // Counts a node that is read or copied at a place, and returns its depth.
  size_t count(const YamlNode& node, YamlMark at) {
    nodes_ += 1 + node.text.size() / 64;
    beyond_limits_ = nodes_ > kMostYamlValues;
    if (beyond_limits_)
      fail(at, fmt::format("too large; expected at most {} values, aliases counted as copies",
                           kMostYamlValues));
    size_t depth = 0;
    for (const YamlNode& item : node.items) depth = std::max(depth, count(item, at));
    for (const YamlEntry& e : node.entries) depth = std::max(depth, count(e.value, at));
    return depth + 1;
  }

  void check_tag(const std::string& tag, YamlMark at) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    error(at, fmt::format("the tag {} is not valid here; expected no tag", excerpt(tag)));
  }

  void begin(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
             YAML::anchor_t anchor) {
    const YamlMark at = mark_of(mark);
    if (stack_.size() >= kMostYamlDepth) too_deep(at);
    check_tag(tag, at);
    Open& open = stack_.emplace_back();
    open.node.kind = kind, open.node.at = at, open.anchor = anchor;
    count(open.node, at);
  }

  void end() {
    Open done = std::move(stack_.back());
    stack_.pop_back();
    remember(done.node, done.anchor);
    attach(std::move(done.node));
  }

  void add(YamlNode node, YAML::anchor_t anchor) {
    count(node, node.at);
    remember(node, anchor);
    attach(std::move(node));
  }

  void remember(const YamlNode& node, YAML::anchor_t anchor) {
    if (anchor == 0) return;
    count(node, node.at);
    anchors_.insert_or_assign(anchor, node);
  }

  void attach(YamlNode node) {
    if (stack_.empty()) return void(to_.root = std::move(node));
    Open& into = stack_.back();
    if (into.node.kind == YamlNode::Kind::kList) {
      into.node.items.push_back(std::move(node));
    } else if (!into.has_key) {
      add_key(into, node);
    } else {
      into.has_key = false;
      YamlEntry& entry = into.node.entries.back();
      // The parser gives a missing value the place where it stopped looking.
      if (node.kind == YamlNode::Kind::kNull) node.at = entry.key_at;
      entry.value = std::move(node);
      if (into.repeated) into.node.entries.pop_back();
    }
  }

  void add_key(Open& into, YamlNode& node) {
    if (node.kind != YamlNode::Kind::kScalar)
      fail(node.at, fmt::format("{} cannot be a key; expected text", to_string(node.kind)));
    into.has_key = true;
    const auto [it, is_new] = into.keys.emplace(node.text, node.at);
    into.repeated = !is_new;
    if (!is_new)
      error(node.at, fmt::format("the key {} is there already, in line {}; expected once",
                                 excerpt(node.text), it->second.line));
    into.node.entries.push_back({std::move(node.text), node.at, {}});
  }

  YamlDocument& to_;
  std::vector<Open> stack_;
  std::map<YAML::anchor_t, YamlNode> anchors_;
  size_t nodes_ = 0;
  int documents_ = 0;
  bool beyond_limits_ = false;
};

// YAML allows printable characters only. The parser gives some other characters a special meaning.
std::optional<YamlError> bad_character(std::string_view text) {
  YamlMark at{1, 1};
  for (size_t i = 0; i < text.size();) {
    const size_t n = utf8_length(text, i);
    const auto c = static_cast<unsigned char>(text[i]);
    if (n == 0) return YamlError{at, "these bytes are not UTF-8; expected text"};
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f)
      return YamlError{
          at, fmt::format("the control character 0x{:02x} cannot stand here; expected text", c)};
    i += n;
    ++at.column;
    if (c == '\n') ++at.line, at.column = 1;
  }
  return std::nullopt;
}

// Finds a bracket or quote that is not closed, or closed by a wrong one, in text where the parser
// failed in line `failed`. Brackets inside plain text open nothing.
std::optional<YamlError> unclosed(std::string_view text, uint32_t failed) {
  struct Open {
    char bracket;
    YamlMark at;
  };
  const auto close_of = [](char c) { return c == '[' ? ']' : c == '{' ? '}' : c; };
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  const auto error = [&](const Open& open, std::string_view found) {
    return YamlError{open.at, fmt::format("'{}' is not closed; expected '{}'{}", open.bracket,
                                          close_of(open.bracket), found)};
  };
  std::vector<Open> open;
  std::optional<Open> quote;
  size_t torn = 0;  // open brackets that were opened before line `failed`
  YamlMark at{1, 0};
  bool begins = true, blank = true;  // a value may begin here; the character before is a blank
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    ++at.column;
    if (c == '\n') {
      ++at.line, at.column = 0;
      if (at.line == failed) torn = open.size();
    }
    if (quote) {
      if (c == quote->bracket) quote.reset(), begins = blank = false;
      if (c == '\\' && quote && quote->bracket == '"' && i + 1 < text.size() && text[i + 1] != '\n')
        ++i, ++at.column;
    } else if (is_blank(c)) {
      blank = true, begins = begins || c == '\n';
    } else if (c == '#' && blank) {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else if (begins && (c == '"' || c == '\'')) {
      quote = {c, at};
    } else if (begins && (c == '[' || c == '{')) {
      open.push_back({c, at}), blank = false;
    } else if ((c == ']' || c == '}') && !open.empty()) {
      if (close_of(open.back().bracket) != c)
        return error(open.back(), fmt::format(" before the '{}' in line {}", c, at.line));
      open.pop_back(), begins = blank = false;
      torn = std::min(torn, open.size());
    } else {
      // Indicators are followed by a blank, except inside brackets.
      const bool last = i + 1 == text.size() || is_blank(text[i + 1]);
      begins = (c == '-' && begins && last) || (c == ':' && (last || !open.empty())) ||
               (c == ',' && !open.empty());
      blank = false;
    }
  }
  if (torn > 0) return error(open[torn - 1], fmt::format(" before line {}", failed));
  if (quote) open.push_back(*quote);
  if (open.empty()) return std::nullopt;
  return error(open.back(), " before the end of the file");
}

}  // namespace

const YamlNode* YamlNode::find(std::string_view key) const noexcept {
  for (const YamlEntry& e : entries)
    if (e.key == key) return &e.value;
  return nullptr;
}

const char* to_string(YamlNode::Kind kind) noexcept {
  constexpr const char* kNames[] = {"nothing", "text", "a list", "a map"};
  return kNames[static_cast<size_t>(kind)];
}

YamlDocument parse_yaml(std::string_view text) {
  YamlDocument to;
  const auto refuse = [&](YamlMark at, std::string message) {
    to.errors.push_back({at, std::move(message)});
    to.whole = false;
    return to;
  };
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  if (text.size() > kMostYamlBytes)
    return refuse({1, 1}, fmt::format("{} bytes are too many; expected at most {}", text.size(),
                                      kMostYamlBytes));
  if (const auto bad = bad_character(text)) return refuse(bad->at, bad->message);
  // The parser would end a quoted scalar at a newline at the end of the text.
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  Builder builder(to);
  try {
    std::istringstream in{std::string(text)};
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Stop&) {
  } catch (const YAML::Exception& e) {
    refuse(mark_of(e.mark), fmt::format("invalid YAML: {}", e.msg));
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    refuse({1, 1}, fmt::format("invalid YAML: {}", exception_text(e)));
  }
  if (!to.whole && !builder.beyond_limits())
    if (auto torn = unclosed(text, to.errors.back().at.line)) to.errors.back() = *std::move(torn);
  return to;
}

std::optional<int64_t> yaml_whole_number(std::string_view text) noexcept {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  return number<int64_t>(text);
}

std::optional<double> yaml_number(std::string_view text) noexcept {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if (text == ".inf" || text == "+.inf") return kInf;
  if (text == "-.inf") return -kInf;
  if (text == ".nan") return std::numeric_limits<double>::quiet_NaN();
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const size_t first = text.find_first_not_of('-');
  if (first == text.npos || std::string_view(".0123456789").find(text[first]) == text.npos)
    return std::nullopt;
  return number<double>(text);
}

std::string yaml_scalar(std::string_view text, bool quoted) {
  // A plain scalar that begins with a letter and has only these characters is read back unchanged.
  const bool letter = is_bare_word(text.substr(0, 1)) &&
                      std::string_view("0123456789.-").find(text[0]) == text.npos;
  bool plain = !quoted && (letter || yaml_number(text) || text.starts_with('/'));
  for (const char c : text)
    plain = plain && (is_bare_word({&c, 1}) || c == '/' || c == '+' || (c == '*' && letter));
  if (same_word(text, "null")) plain = false;
  return plain ? std::string(text) : json_string(text);
}

}  // namespace yard::base
