// SPDX-License-Identifier: Apache-2.0
#include "dispatch/recipe.h"

#include <cstring>

#include "base/lists.h"

namespace yard::dispatch {

class RecipeCompiler {
 public:
  explicit RecipeCompiler(const select::CandidateSet& candidates)
      : candidates_(candidates),
        params_(candidates.program().schema().params),
        masks_(params_.size(), 0) {}

  Recipe compile() {
    read_device();
    for (const select::KernelCandidate& c : candidates_.all()) {
      // A kernel that is excluded from all calls reads nothing.
      if (c.fixed.reason != YARD_REASON_NONE) continue;
      for (const select::Limit& l : c.limits) read(l.predicate);
      read(c.verify_reads);
      for (const op::Field& f : c.cost_fields) add_field(recipe_.half_octaves_, f);
      for (const uint32_t i : c.transformable) read_transform(c, c.kernel->map->params[i]);
      for (const select::KeyBreaker& b : c.key_breakers) read_kind(b.sizes);
      for (const auto& sizes : c.counting) read_kind(sizes);
    }
    read_rules();
    read(candidates_.mode_reads());
    // Keys say that an output aliases an input, but not which one.
    const auto& mode = candidates_.mode().program;
    if (mode != nullptr && !mode->provider.reads && alias_pairs() > 1) no_keys_ = true;
    place();
    return std::move(recipe_);
  }

 private:
  using Group = Recipe::Group;
  using Test = Recipe::Test;
  using Kind = op::Field::Kind;
  struct Bundle {
    Group group;
    std::vector<Test> tests;
  };

  bool is_tensor(size_t i) const { return params_[i].kind == op::Kind::kTensor; }
  bool always_given(size_t i) const { return is_tensor(i) && !params_[i].optional; }

  // All tensors of a call are on one device, so one tensor that is always given is enough.
  void read_device() {
    for (size_t i = 0; i < params_.size(); ++i)
      if (always_given(i)) {
        masks_[i] |= YARD_FACTS_DEVICE;
        return;
      }
    for (size_t i = 0; i < params_.size(); ++i) read_facts(i, YARD_FACTS_DEVICE);
  }

  void read_facts(size_t i, uint32_t mask) {
    if (params_[i].kind == op::Kind::kTensorList)
      read_whole(i);
    else if (is_tensor(i))
      masks_[i] |= mask;
  }

  // A dtype variable is read from the first tensor that has it and is always given.
  void read_dtype(size_t i) {
    // An empty list passes every dtype limit, so read whether it is empty.
    if (!is_tensor(i))
      add_predicate({op::Field::of(Kind::kCount, i), op::IntegerTest::at_least(1)});
    if (params_[i].dtype != DType::invalid) {
      // Only the presence of a tensor with a fixed dtype carries information.
      if (params_[i].optional) read_presence(i);
      return;
    }
    for (size_t k = 0; k < params_.size(); ++k)
      if (always_given(k) && params_[k].variable == params_[i].variable) {
        masks_[k] |= YARD_FACTS_DTYPE;
        if (params_[i].optional) read_presence(i);
        return;
      }
    read_facts(i, YARD_FACTS_DTYPE);
  }

  void read_presence(size_t i) {
    add_predicate({op::Field::of(Kind::kPresence, i), op::IntegerTest::equals(1)});
  }

  void read(const op::Predicate& p) {
    const size_t arg = p.field.sources[0].arg;
    switch (p.field.kind) {
      case Kind::kPresence: return read_presence(arg);
      case Kind::kDType: return read_dtype(arg);
      case Kind::kAlignment: recipe_.reads_alignment_ = true; [[fallthrough]];
      case Kind::kRank:
      case Kind::kCompact:
      case Kind::kInnerDense:
      case Kind::kPlain:
        if (!is_tensor(arg)) return read_whole(arg);
        break;
      default: break;
    }
    note_scalar(p.field);
    if (!add_quick(p)) add_predicate(p);
  }

  // A predicate is quick if it is about facts or sizes of a tensor that is always given.
  bool add_quick(const op::Predicate& p) {
    const op::Field::Source& from = p.field.sources[0];
    if (p.field.count != 1 || !always_given(from.arg)) return false;
    const auto add_facts = [&](const Test& t) {
      add({Group::Source::kFacts, from.arg, 0, 0, 0}, t);
      return true;
    };
    const auto bit = [&](uint64_t mask) { return add_facts({mask, 0, mask, 0}); };
    switch (p.field.kind) {
      case Kind::kCompact: return bit(YARD_FACTS_COMPACT);
      case Kind::kInnerDense: return bit(YARD_FACTS_INNER_DENSE);
      case Kind::kPlain: return bit(YARD_FACTS_PLAIN);
      case Kind::kAlignment: {
        // If the field is less, the subtraction borrows from the free bit above the field.
        const auto lg = static_cast<uint64_t>(std::countr_zero(static_cast<uint64_t>(p.test.a)));
        return add_facts({0, 0 - (lg << YARD_FACTS_ALIGN_SHIFT),
                          uint64_t{1} << (YARD_FACTS_ALIGN_SHIFT + 4), 0});
      }
      case Kind::kDim:
        return from.factor == 1 &&
               add_size({Group::Source::kDim, from.arg, from.axis, 0, 0}, p.test);
      case Kind::kProduct:
        return add_size({Group::Source::kProduct, from.arg, from.axis, 0, 0}, p.test);
      default: return false;
    }
  }

  bool add_size(const Group& g, const op::IntegerTest& test) {
    if (test.kind == op::IntegerTest::Kind::kMask) return false;
    constexpr uint64_t kSign = uint64_t{1} << 63;
    constexpr int64_t kMost = int64_t{1} << 62;  // sizes are less, so v - a does not overflow
    const bool range = test.kind == op::IntegerTest::Kind::kRange;
    if (!range || test.a == test.b) {
      const auto a = static_cast<uint64_t>(test.a);
      const bool quick = test.a >= 0 && test.a <= kMost && (range || std::has_single_bit(a));
      if (quick) add(g, range ? Test{a, 0, ~uint64_t{0}, 0} : Test{0, 0, a - 1, 0});
      return quick;
    }
    std::vector<int64_t> cuts;
    test.add_cuts(cuts);
    for (const int64_t c : cuts)
      if (c < 0 || c > kMost) return false;
    for (const int64_t c : cuts) add(g, {0, 0 - static_cast<uint64_t>(c), kSign, 0});
    return true;
  }

  void read(const select::Reads& reads) {
    for (const op::Field& f : reads.fields)
      if (f.count > 0) add_field(recipe_.exact_, f);
    for (const uint8_t arg : reads.args) read_whole(arg);
  }

  // For kernels with an estimate, the size of an argument determines the time of its transform.
  void read_transform(const select::KernelCandidate& c, const op::KernelParam& p) {
    const auto arg = static_cast<size_t>(p.source);
    for (const auto& r : p.requirements) read(r.predicate);
    read_dtype(arg);
    if (c.kernel->d.cost != nullptr)
      add_field(recipe_.half_octaves_, op::Field::of(Kind::kSize, arg));
  }

  void read_kind(const std::vector<op::Predicate>& sizes) {
    for (size_t i = 0; i < params_.size(); ++i)
      if (params_[i].is_tensor()) read_dtype(i);
    for (const op::Predicate& p : sizes) read(p);
  }

  void read_rules() {
    auto conditions = candidates_.clauses().conditions();
    if (conditions == nullptr) return;
    recipe_.reads_scalars_ |= conditions->reads_scalars();
    if (conditions->key_words() > 0) recipe_.rules_ = std::move(conditions);
  }

  size_t alias_pairs() const {
    size_t n = 0;
    for (const uint8_t out : candidates_.program().outputs())
      for (uint32_t in = 0; in < params_.size(); ++in)
        n += candidates_.program().may_alias(out, in) ? 1 : 0;
    return n;
  }

  void add_field(std::vector<op::Field>& to, const op::Field& f) {
    if (!base::contains(to, f)) to.push_back(f);
    note_scalar(f);
  }

  void read_whole(size_t arg) {
    const auto i = static_cast<uint8_t>(arg);
    if (!base::contains(recipe_.whole_, i)) recipe_.whole_.push_back(i);
    (params_[arg].is_tensor() ? recipe_.reads_alignment_ : recipe_.reads_scalars_) = true;
  }

  void note_scalar(const op::Field& f) {
    if (f.count > 0 && f.kind == Kind::kScalar) recipe_.reads_scalars_ = true;
  }

  void add(const Group& g, const Test& t) {
    Bundle* room = nullptr;
    for (Bundle& b : bundles_) {
      if (b.group != g) continue;
      if (base::contains(b.tests, t)) return;
      if (room == nullptr && b.tests.size() < Recipe::kFirstTests) room = &b;
    }
    if (room == nullptr) room = &bundles_.emplace_back(Bundle{g, {}});
    room->tests.push_back(t);
  }

  void add_predicate(const op::Predicate& p) {
    std::vector<op::Predicate>& all = recipe_.predicates_;
    if (base::contains(all, p)) return;
    Group g;
    g.predicate = static_cast<uint32_t>(all.size());
    all.push_back(p);
    add(g, {0, 0, ~uint64_t{0}, 0});
  }

  // Fills the first word with groups, cheapest first. fold_rest() computes the other groups.
  void place() {
    for (size_t i = 0; i < masks_.size(); ++i) {
      if (masks_[i] == 0) continue;
      if (recipe_.lead_ == Recipe::kNoLead && always_given(i))
        recipe_.lead_ = static_cast<uint8_t>(i), recipe_.lead_mask_ = masks_[i];
      else
        recipe_.facts_.push_back({masks_[i], static_cast<uint8_t>(i)});
    }
    std::stable_sort(bundles_.begin(), bundles_.end(), [](const Bundle& a, const Bundle& b) {
      return a.group.source < b.group.source;
    });
    size_t room = Recipe::kFirstTests;
    std::vector<Bundle> later;
    for (Bundle& b : bundles_) {
      if (b.tests.size() > room) {
        later.push_back(std::move(b));
        continue;
      }
      room -= b.tests.size();
      put(b);
      ++recipe_.first_groups_;
    }
    for (const Bundle& b : later) put(b);
    const size_t words = 1 + (recipe_.tests_.size() + 63) / 64 + recipe_.facts_.size() +
                         (recipe_.half_octaves_.size() + 7) / 8 + recipe_.exact_.size() +
                         (recipe_.rules_ != nullptr ? recipe_.rules_->key_words() : 0);
    recipe_.oversize_ = no_keys_ || words > Key::kMaxWords;
    recipe_.longer_ = words > 1 + (recipe_.tests_.size() + 63) / 64 || !later.empty() ||
                      recipe_.rules_ != nullptr || !recipe_.whole_.empty() || recipe_.oversize_;
  }

  void put(const Bundle& b) {
    Group g = b.group;
    g.count = static_cast<uint8_t>(b.tests.size());
    recipe_.groups_.push_back(g);
    recipe_.tests_.insert(recipe_.tests_.end(), b.tests.begin(), b.tests.end());
  }

  const select::CandidateSet& candidates_;
  const std::vector<op::Param>& params_;
  std::vector<uint32_t> masks_;
  std::vector<Bundle> bundles_;
  bool no_keys_ = false;
  Recipe recipe_;
};

Recipe Recipe::compile(const select::CandidateSet& candidates) {
  return RecipeCompiler(candidates).compile();
}

namespace {

constexpr uint32_t kAllFacts = 0x7fffffff;

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
      default: return put(static_cast<uint64_t>(v.u.i));  // includes the bits of a float
    }
  }
  bool full() const { return full_; }

 private:
  Key& key_;
  bool full_ = false;
};

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
  for (const op::Field& f : half_octaves_) {
    bits = (bits << 7) | op::half_octave(op::read_apart(f, args));
    if (++used == 9) to.put(bits), bits = 0, used = 0;
  }
  if (used > 0) to.put(bits);
  for (const op::Field& f : exact_) to.put(static_cast<uint64_t>(op::read(f, args)));
  if (rules_ != nullptr) {
    // Labels are equal for all calls of an entry, and flags and device are in the first word.
    uint64_t words[Key::kMaxWords];
    rules_->fold({args, 0, {}, nullptr}, words);
    for (uint32_t i = 0; i < rules_->key_words(); ++i) to.put(words[i]);
  }
  for (const uint8_t arg : whole_) to.put_value(args[arg]);
  for (uint32_t i = 1; i < key.words; ++i) key.hash = mix(key.hash, key.w[i]);
  return !to.full();
}

}  // namespace yard::dispatch
