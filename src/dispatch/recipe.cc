// SPDX-License-Identifier: Apache-2.0
// Compiling recipes, and the rarer parts of a key.
#include "dispatch/recipe.h"

#include <algorithm>
#include <cstring>

namespace yard::dispatch {
namespace {

bool same_field(const op::Field& a, const op::Field& b) {
  if (a.kind != b.kind || a.count != b.count) return false;
  for (uint32_t i = 0; i < a.count; ++i) {
    const auto &x = a.sources[i], &y = b.sources[i];
    if (x.arg != y.arg || x.axis != y.axis || x.factor != y.factor) return false;
  }
  return true;
}

constexpr uint32_t kAllFacts = 0x7fffffff;

}  // namespace

class RecipeCompiler {
 public:
  explicit RecipeCompiler(const select::Contest& contest)
      : contest_(contest), params_(contest.program().schema().params), masks_(params_.size(), 0) {}

  Recipe compile() {
    read_device();
    for (const select::Contender& c : contest_.contenders()) {
      // A kernel that is out whatever the call is reads nothing of the call.
      if (c.fixed.reason != YARD_REASON_NONE) continue;
      for (const select::Limit& l : c.limits) read_limit(l);
      read_verifier(c);
      for (const op::Field& f : c.cost_fields) read_bucket(f);
    }
    place();
    return std::move(recipe_);
  }

 private:
  bool is_tensor(size_t i) const { return params_[i].kind == op::Kind::kTensor; }

  // All tensors of a call are on one device: that of one which is always there tells.
  void read_device() {
    for (size_t i = 0; i < params_.size(); ++i)
      if (is_tensor(i) && !params_[i].optional) {
        masks_[i] |= YARD_FACTS_DEVICE;
        return;
      }
    for (size_t i = 0; i < params_.size(); ++i) read_facts(static_cast<int>(i), YARD_FACTS_DEVICE);
  }

  void read_facts(int arg, uint32_t mask) {
    const auto i = static_cast<size_t>(arg);
    if (params_[i].kind == op::Kind::kTensorList)
      read_whole(arg);
    else if (is_tensor(i))
      masks_[i] |= mask;
  }

  // A dtype variable is read off the first tensor that has it and is always there.
  void read_dtype(size_t i) {
    if (!params_[i].is_tensor() || params_[i].dtype != DType::invalid) return;
    for (size_t k = 0; k < params_.size(); ++k)
      if (is_tensor(k) && !params_[k].optional && params_[k].variable == params_[i].variable) {
        masks_[k] |= YARD_FACTS_DTYPE;
        // An optional one may still be absent, and then its limit says nothing.
        if (params_[i].optional) read_presence(i);
        return;
      }
    read_facts(static_cast<int>(i), YARD_FACTS_DTYPE);
  }

  void read_presence(size_t i) {
    Recipe::Test t{};
    t.kind = YARD_LIMIT_ABSENT, t.arg = static_cast<uint8_t>(i);
    add(t);
  }

  void read_limit(const select::Limit& l) {
    Recipe::Test t{};
    t.kind = l.l.kind, t.a = l.l.a, t.b = l.l.b, t.field = l.field;
    switch (l.l.kind) {
      case YARD_LIMIT_MIN:
      case YARD_LIMIT_MAX:
      case YARD_LIMIT_MULTIPLE:
      case YARD_LIMIT_EQUALS: return add(t);
      case YARD_LIMIT_ABSENT:
      case YARD_LIMIT_PRESENT: return read_presence(static_cast<size_t>(l.arg));
      default: break;
    }
    for (size_t i = 0; i < params_.size(); ++i) {
      if (l.arg >= 0 && static_cast<size_t>(l.arg) != i) continue;
      if (!params_[i].is_tensor()) continue;
      switch (l.l.kind) {
        case YARD_LIMIT_DTYPE: read_dtype(i); break;
        case YARD_LIMIT_COMPACT: read_facts(static_cast<int>(i), YARD_FACTS_COMPACT); break;
        case YARD_LIMIT_INNER_DENSE: read_facts(static_cast<int>(i), YARD_FACTS_INNER_DENSE); break;
        case YARD_LIMIT_PLAIN: read_facts(static_cast<int>(i), YARD_FACTS_PLAIN); break;
        default:  // ALIGN, RANK
          if (!is_tensor(i)) {
            read_whole(static_cast<int>(i));
            break;
          }
          t.arg = static_cast<uint8_t>(i);
          if (l.l.kind == YARD_LIMIT_ALIGN)
            t.a = std::countr_zero(static_cast<uint64_t>(l.l.a));
          add(t);
      }
      // COMPACT and its like are masks of facts: absent tensors read as 0, present ones may too.
      const bool by_mask = l.l.kind == YARD_LIMIT_COMPACT || l.l.kind == YARD_LIMIT_INNER_DENSE ||
                           l.l.kind == YARD_LIMIT_PLAIN;
      if (by_mask && params_[i].optional) read_presence(i);
    }
  }

  void read_verifier(const select::Contender& c) {
    if (c.kernel->d.verify == nullptr) return;
    if (c.kernel->reads_all)
      for (size_t i = 0; i < params_.size(); ++i) read_whole(static_cast<int>(i));
    for (const op::Field& f : c.verify_fields) {
      if (f.count == 0) continue;
      const bool known = std::any_of(recipe_.exact_.begin(), recipe_.exact_.end(),
                                     [&](const op::Field& o) { return same_field(o, f); });
      if (!known) recipe_.exact_.push_back(f);
      note_scalar(f);
    }
    for (int arg : c.verify_args) read_whole(arg);
  }

  void read_bucket(const op::Field& f) {
    for (const Recipe::Bucket& b : recipe_.buckets_)
      if (same_field(b.field, f)) return;
    recipe_.buckets_.push_back({0, 0, f});
    note_scalar(f);
  }

  void read_whole(int arg) {
    const auto i = static_cast<uint8_t>(arg);
    if (std::find(recipe_.whole_.begin(), recipe_.whole_.end(), i) == recipe_.whole_.end())
      recipe_.whole_.push_back(i);
    if (!params_[i].is_tensor()) recipe_.reads_scalars_ = true;
  }

  void add(const Recipe::Test& t) {
    for (const Recipe::Test& o : recipe_.tests_)
      if (o.kind == t.kind && o.arg == t.arg && o.a == t.a && o.b == t.b && same_field(o.field, t.field))
        return;
    recipe_.tests_.push_back(t);
    note_scalar(t.field);
  }

  void note_scalar(const op::Field& f) {
    if (f.count > 0 && f.kind == op::Field::Kind::kScalar) recipe_.reads_scalars_ = true;
  }

  // Gives every bit its place: flags and tests in the lower half of word 0, facts in halves after it,
  // then buckets and the tests that found no room.
  void place() {
    uint32_t half = 1;
    for (size_t i = 0; i < masks_.size(); ++i)
      if (masks_[i] != 0) {
        recipe_.facts_.push_back({masks_[i], static_cast<uint8_t>(i), static_cast<uint8_t>(half / 2),
                                  static_cast<uint8_t>(half % 2 * 32)});
        ++half;
      }
    uint32_t bit = Recipe::kFlagBits;  // within the lower half of word 0
    uint32_t next = (half + 1) / 2 * 64;
    const auto take = [&](uint32_t bits) {
      if (bit + bits <= 32) return std::exchange(bit, bit + bits);
      if (next % 64 + bits > 64) next = (next + 63) / 64 * 64;
      return std::exchange(next, next + bits);
    };
    for (Recipe::Test& t : recipe_.tests_) {
      const uint32_t at = take(1);
      t.word = static_cast<uint8_t>(at / 64), t.shift = static_cast<uint8_t>(at % 64);
    }
    for (Recipe::Bucket& b : recipe_.buckets_) {
      const uint32_t at = take(7);
      b.word = static_cast<uint8_t>(at / 64), b.shift = static_cast<uint8_t>(at % 64);
    }
    recipe_.fixed_words_ = (next + 63) / 64;
    if (recipe_.fixed_words_ > Key::kMaxWords) {
      // Thousands of limits: no key is made at all.
      recipe_.facts_.clear(), recipe_.tests_.clear(), recipe_.buckets_.clear();
      recipe_.fixed_words_ = 1;
      recipe_.oversize_ = true;
    }
    recipe_.more_ = !recipe_.buckets_.empty() || !recipe_.exact_.empty() || !recipe_.whole_.empty() ||
                    recipe_.oversize_;
  }

  const select::Contest& contest_;
  const std::vector<op::Param>& params_;
  std::vector<uint32_t> masks_;
  Recipe recipe_;
};

Recipe Recipe::compile(const select::Contest& contest) { return RecipeCompiler(contest).compile(); }

namespace {

// Appends words to a key until it is full.
class Appender {
 public:
  explicit Appender(Key& key) : key_(key) {}
  void put(uint64_t word) {
    if (key_.words < Key::kMaxWords)
      key_.w[key_.words++] = word;
    else
      full_ = true;
  }
  void put_tensor(const yard_tensor_t& t) {
    put(t.facts & kAllFacts);
    for (int32_t i = 0; i < t.ndim; ++i) put(static_cast<uint64_t>(t.shape[i]));
    if ((t.facts & YARD_FACTS_COMPACT) == 0 && t.strides != nullptr)
      for (int32_t i = 0; i < t.ndim; ++i) put(static_cast<uint64_t>(t.strides[i]));
  }
  void put_value(const yard_value_t& v) {
    put((static_cast<uint64_t>(v.tag) << 32) | v.count);
    switch (v.tag) {
      case YARD_TAG_TENSOR: return put_tensor(*v.u.tensor);
      case YARD_TAG_LIST:
        for (uint32_t i = 0; i < v.count; ++i) put_tensor(*v.u.list[i]);
        return;
      case YARD_TAG_STRING:
        for (uint32_t at = 0; at < v.count && !full_; at += 8) {
          uint64_t word = 0;
          std::memcpy(&word, v.u.string + at, std::min<uint32_t>(8, v.count - at));
          put(word);
        }
        return;
      case YARD_TAG_NONE: return;
      default: return put(static_cast<uint64_t>(v.u.i));  // a float's bits, too
    }
  }
  bool full() const { return full_; }

 private:
  Key& key_;
  bool full_ = false;
};

}  // namespace

bool Recipe::fold_more(const yard_value_t* args, Key& key) const noexcept {
  if (oversize_) return false;
  for (const Bucket& b : buckets_)
    key.w[b.word] |= static_cast<uint64_t>(select::bucket_of(op::read(b.field, args))) << b.shift;
  Appender to(key);
  for (const op::Field& f : exact_) to.put(static_cast<uint64_t>(op::read(f, args)));
  for (const uint8_t arg : whole_) to.put_value(args[arg]);
  return !to.full();
}

}  // namespace yard::dispatch
