// SPDX-License-Identifier: Apache-2.0
// A pattern is compiled to an NFA, which is simulated byte by byte.
#include "policy/regex.h"

#include <fmt/format.h>

namespace yard::policy {

class RegexCompiler {
 public:
  explicit RegexCompiler(std::string_view pattern) : pattern_(pattern) {}

  Result<Regex> compile() {
    if (pattern_.size() > Regex::kMostPattern)
      return Status(Code::kParse, fmt::format("the pattern has {} bytes; expected at most {}",
                                              pattern_.size(), Regex::kMostPattern));
    try {
      if (pattern_.starts_with('^')) ++at_;
      alternatives(0);
      if (at_ < end_) fail("no '(' before this ')'");
      emit({});
      return std::move(to_);
    } catch (const Status& failure) {
      return failure;
    }
  }

 private:
  using State = Regex::State;
  using Class = std::bitset<256>;
  static constexpr int kDeepest = 50;

  [[noreturn]] void fail(std::string_view what) const {
    throw Status(Code::kParse, fmt::format("{} at character {}", what, at_ + 1));
  }
  bool at(char c) const { return at_ < end_ && pattern_[at_] == c; }
  bool eat(char c) {
    const bool is = at(c);
    if (is) ++at_;
    return is;
  }
  uint32_t here() const { return static_cast<uint32_t>(to_.states_.size()); }
  uint32_t emit(State s) {
    if (to_.states_.size() >= Regex::kMostStates) fail("the pattern is too large");
    to_.states_.push_back(s);
    return here() - 1;
  }
  // Emits a branch to the next state. The caller changes one or both of its ends.
  uint32_t branch() { return emit({State::Op::kBranch, here() + 1, here() + 1}); }

  void alternatives(int depth) {
    if (depth > kDeepest) fail("groups are nested too deeply");
    std::vector<uint32_t> ends;
    for (;;) {
      const uint32_t next = branch();  // to this alternative and the next
      while (at_ < end_ && !at('|') && !at(')')) repeated(depth);
      if (!eat('|')) break;
      ends.push_back(branch());
      to_.states_[next].y = here();
    }
    for (const uint32_t e : ends) to_.states_[e].x = to_.states_[e].y = here();
  }

  void repeated(int depth) {
    const uint32_t first = here();
    atom(depth);
    uint32_t least = 1, most = 1;
    if (!repetition(least, most)) return;
    // Copies the atom as often as it may occur.
    const std::vector<State> body(to_.states_.begin() + first, to_.states_.end());
    to_.states_.resize(first);
    const auto again = [&] {
      const uint32_t by = here() - first;
      for (State s : body) {
        s.x += by;
        s.y += by;
        emit(s);
      }
    };
    for (uint32_t i = 0; i < least; ++i) again();
    std::vector<uint32_t> skips;
    const uint32_t optional = most == kForever ? 1 : most - least;
    for (uint32_t i = 0; i < optional; ++i) {
      skips.push_back(branch());
      again();
    }
    if (most == kForever) emit({State::Op::kBranch, skips[0], skips[0]});
    for (const uint32_t s : skips) to_.states_[s].y = here();
    if (at('*') || at('+') || at('?') || at('{')) fail("a repetition of a repetition");
  }

  static constexpr uint32_t kForever = UINT32_MAX;
  bool repetition(uint32_t& least, uint32_t& most) {
    if (eat('*')) {
      least = 0, most = kForever;
    } else if (eat('+')) {
      most = kForever;
    } else if (eat('?')) {
      least = 0;
    } else if (eat('{')) {
      least = most = number();
      if (eat(',')) most = at('}') ? kForever : number();
      if (least > most) fail("a repetition from more to less");
      if (!eat('}')) fail("'}' is missing");
    } else {
      return false;
    }
    return true;
  }

  uint32_t number() {
    uint32_t n = 0;
    const size_t begin = at_;
    for (; at_ < end_ && pattern_[at_] >= '0' && pattern_[at_] <= '9' && n <= Regex::kMostRepeat;
         ++at_)
      n = n * 10 + static_cast<uint32_t>(pattern_[at_] - '0');
    if (at_ == begin) fail("a number is missing");
    if (n > Regex::kMostRepeat) fail("a repetition of more than 100 times");
    return n;
  }

  void atom(int depth) {
    const char c = pattern_[at_];
    if (eat('(')) {
      if (at('?')) {
        if (!pattern_.substr(at_).starts_with("?:")) fail("only (?: may follow '('");
        at_ += 2;
      }
      alternatives(depth + 1);
      if (!eat(')')) fail("')' is missing");
    } else if (c == '[') {
      bracket();
    } else if (c == '\\') {
      one_of(escaped());
    } else if (c == '.') {
      ++at_;
      one_of(~Class());
    } else if (c == '*' || c == '+' || c == '?' || c == '{') {
      fail("nothing to repeat");
    } else if (c == '$' && at_ + 1 == end_) {
      ++at_;
    } else if (c == '^' || c == '$') {
      fail("'^' and '$' stand only at the ends");
    } else {
      ++at_;
      one_of(range(c, c));
    }
  }

  static Class range(char from, char to) {
    Class set;
    for (int c = static_cast<unsigned char>(from); c <= static_cast<unsigned char>(to); ++c)
      set.set(static_cast<size_t>(c));
    return set;
  }

  // Moves past an escape and returns its class.
  Class escaped() {
    if (++at_ >= end_) fail("a '\\' at the end");
    const char c = pattern_[at_++];
    const Class digits = range('0', '9');
    const Class word = digits | range('a', 'z') | range('A', 'Z') | range('_', '_');
    const Class space = range('\t', '\r') | range(' ', ' ');
    switch (c) {
      case 'd': return digits;
      case 'D': return ~digits;
      case 'w': return word;
      case 'W': return ~word;
      case 's': return space;
      case 'S': return ~space;
      default: break;
    }
    if (word.test(static_cast<unsigned char>(c))) --at_, fail("an unknown escape");
    return range(c, c);
  }

  void bracket() {
    ++at_;
    const bool negated = eat('^');
    Class set;
    for (bool first = true; at_ < end_ && (pattern_[at_] != ']' || first); first = false) {
      if (pattern_[at_] == '\\') {
        set |= escaped();
        continue;
      }
      const char from = pattern_[at_++];
      if (static_cast<unsigned char>(from) >= 0x80) --at_, fail("only ASCII in a class");
      const bool is_range = end_ - at_ >= 2 && pattern_[at_] == '-' && pattern_[at_ + 1] != ']';
      const char to = is_range ? pattern_[at_ + 1] : from;
      if (to < from || (is_range && to == '\\') || static_cast<unsigned char>(to) >= 0x80)
        fail("a range from more to less");
      set |= range(from, to);
      if (is_range) at_ += 2;
    }
    if (!eat(']')) fail("']' is missing");
    one_of(negated ? ~set : set);
  }

  void one_of(const Class& set) { emit({State::Op::kClass, here() + 1, 0, set}); }

  const std::string_view pattern_;
  const size_t end_ = pattern_.size();
  size_t at_ = 0;
  Regex to_;
};

Result<Regex> Regex::compile(std::string_view pattern) { return RegexCompiler(pattern).compile(); }

bool Regex::matches(std::string_view text) const {
  std::vector<uint32_t> now, next, todo;
  std::vector<size_t> seen(states_.size(), SIZE_MAX);
  bool ended = false;
  // Follows transitions that consume nothing, and visits each state once per byte.
  const auto add = [&](uint32_t from, size_t round, std::vector<uint32_t>& to) {
    todo.push_back(from);
    while (!todo.empty()) {
      const uint32_t i = todo.back();
      todo.pop_back();
      if (seen[i] == round) continue;
      seen[i] = round;
      const State& s = states_[i];
      if (s.op == State::Op::kClass) to.push_back(i);
      if (s.op == State::Op::kEnd) ended = true;
      if (s.op == State::Op::kBranch) todo.insert(todo.end(), {s.y, s.x});
    }
  };
  add(0, 0, now);
  for (size_t i = 0; i < text.size(); ++i) {
    if (now.empty()) return false;
    ended = false;
    next.clear();
    for (const uint32_t s : now)
      if (states_[s].bytes.test(static_cast<unsigned char>(text[i])))
        add(states_[s].x, i + 1, next);
    now.swap(next);
  }
  return ended;
}

}  // namespace yard::policy
