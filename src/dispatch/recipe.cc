// SPDX-License-Identifier: Apache-2.0
// The rarer parts of a key.
#include "dispatch/recipe.h"

#include <algorithm>
#include <cstring>

namespace yard::dispatch {
namespace {

constexpr uint32_t kAllFacts = 0x7fffffff;

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

// Whether a predicate changes at most once while sizes grow.
bool is_monotone(const op::Predicate& p) {
  switch (p.field.kind) {
    case op::Field::Kind::kDim:
    case op::Field::Kind::kProduct:
    case op::Field::Kind::kScalar:
    case op::Field::Kind::kSize:
    case op::Field::Kind::kCount: return p.test.is_threshold();
    default: return true;  // not about sizes
  }
}

}  // namespace

bool Recipe::fold_rest(const yard_value_t* args, Key& key) const noexcept {
  if (oversize_) return false;
  Appender to(key);
  const Test* test = tests_.data();
  for (uint32_t i = 0; i < first_groups_; ++i) test += groups_[i].count;
  uint64_t bits = 0;
  uint32_t used = 0;
  for (size_t i = first_groups_; i < groups_.size(); ++i) {
    if (used + groups_[i].count > 64) to.put(bits), bits = 0, used = 0;
    bits = fold_group(groups_[i], test, bits, args);
    used += groups_[i].count;
  }
  if (used > 0) to.put(bits);
  for (const Facts& f : facts_)
    to.put(args[f.arg].tag == YARD_TAG_TENSOR ? args[f.arg].u.tensor->facts & f.mask : 0);
  bits = used = 0;
  for (const op::Field& f : buckets_) {
    bits = (bits << 7) | op::half_octave(op::read_apart(f, args));
    if (++used == 9) to.put(bits), bits = 0, used = 0;
  }
  if (used > 0) to.put(bits);
  for (const op::Field& f : exact_) to.put(static_cast<uint64_t>(op::read(f, args)));
  if (rules_ != nullptr) {
    // Labels are the same for all calls of an entry, flags and device are in the first word.
    uint64_t words[Key::kMaxWords];
    rules_->fold({args, 0, {}, nullptr}, words);
    for (uint32_t i = 0; i < rules_->key_words(); ++i) to.put(words[i]);
  }
  for (const uint8_t arg : whole_) to.put_value(args[arg]);
  for (uint32_t i = 1; i < key.words; ++i) key.hash = mix(key.hash, key.w[i]);
  return !to.full();
}

// Everything that reads the first size, or a product with it, is monotone: a key that is the same at both ends is the same
// between them.
bool Recipe::range_of_rows(const yard_value_t* args, uint32_t count, uint32_t flags, uint32_t which,
                           Rows& to) const {
  if (oversize_ || !exact_.empty() || !whole_.empty() || rules_ != nullptr) return false;
  const Test* test = tests_.data();
  for (const Group& g : groups_) {
    const yard_tensor_t* const t = args[g.arg].u.tensor;
    const bool reads =
        (which >> g.arg & 1) != 0 && (g.source == Group::Source::kProduct ||
                                      (g.source == Group::Source::kDim && t->ndim == g.axis));
    for (uint32_t i = 0; i < g.count; ++i, ++test)
      if (reads && test->m != uint64_t{1} << 63) return false;
    if (g.source == Group::Source::kPredicate && !is_monotone(predicates_[g.predicate]))
      return false;
  }
  yard_value_t values[YARD_MAX_ARGS];
  yard_tensor_t tensors[YARD_MAX_ARGS];
  int64_t shapes[YARD_MAX_ARGS][YARD_MAX_RANK];
  int64_t now = 0, most = int64_t{1} << 30;
  for (uint32_t i = 0; i < count; ++i) {
    values[i] = args[i];
    if ((which >> i & 1) == 0) continue;
    const yard_tensor_t& t = *args[i].u.tensor;
    tensors[i] = t;
    int64_t row = (t.dtype.bits + 7) / 8;
    for (int32_t d = 0; d < t.ndim; ++d) {
      shapes[i][d] = t.shape[d];
      if (d > 0) row *= t.shape[d];
    }
    now = t.shape[0];
    if (row <= 0) return false;
    most = std::min(most, (int64_t{1} << 45) / row);
    tensors[i].shape = shapes[i], values[i].u.tensor = &tensors[i];
  }
  if (now < 1 || now > most) return false;
  Key key;
  const auto fold_with = [&](int64_t n, Key& k) {
    for (uint32_t i = 0; i < count; ++i) shapes[i][0] = n;
    return fold(values, flags, k);
  };
  if (!fold_with(now, key)) return false;
  const auto is_same = [&](int64_t n) {
    Key k;
    return fold_with(n, k) && k.words == key.words && std::equal(k.w, k.w + k.words, key.w);
  };
  // The last size from n on towards `end`, in either direction, that is the same.
  const auto last_same = [&](int64_t n, int64_t end) {
    if (is_same(end)) return end;
    while (std::abs(end - n) > 1) {
      const int64_t middle = n + (end - n) / 2;
      (is_same(middle) ? n : end) = middle;
    }
    return n;
  };
  to = {static_cast<uint64_t>(last_same(now, 1)), static_cast<uint64_t>(last_same(now, most))};
  return true;
}

}  // namespace yard::dispatch
