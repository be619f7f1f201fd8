// SPDX-License-Identifier: Apache-2.0
// From what candidates read to the words of a key.
#include <algorithm>

#include "dispatch/recipe.h"

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

}  // namespace

class RecipeCompiler {
 public:
  explicit RecipeCompiler(const select::CandidateSet& candidates)
      : candidates_(candidates),
        params_(candidates.program().schema().params),
        masks_(params_.size(), 0) {}

  Recipe compile() {
    read_device();
    for (const select::KernelCandidate& c : candidates_.all()) {
      // A kernel that is out whatever the call is reads nothing of the call.
      if (c.fixed.reason != YARD_REASON_NONE) continue;
      for (const select::Limit& l : c.limits) read_limit(l);
      read_verifier(c);
      for (const op::Field& f : c.cost_fields) read_bucket(f);
      for (const health::BreakerStatus* h : c.key_breakers) read_breaker(*h);
    }
    read_rules();
    read_mode();
    place();
    return std::move(recipe_);
  }

 private:
  using Group = Recipe::Group;
  using Test = Recipe::Test;
  // A group while it is collected.
  struct Bundle {
    Group group;
    std::vector<Test> tests;
  };

  bool is_tensor(size_t i) const { return params_[i].kind == op::Kind::kTensor; }
  bool always_there(size_t i) const { return is_tensor(i) && !params_[i].optional; }

  // ---- What is read ----

  // All tensors of a call are on one device: that of one which is always there tells.
  void read_device() {
    for (size_t i = 0; i < params_.size(); ++i)
      if (always_there(i)) {
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

  // A dtype variable is read off the first tensor that has it and is always there.
  void read_dtype(size_t i) {
    // No tensor, no objection: an empty list is another matter than a full one.
    if (!is_tensor(i)) {
      const auto count = candidates_.program().field(params_[i].name + ".count");
      add_other(YARD_LIMIT_MIN, 0, 1, 0, &*count);
    }
    if (params_[i].dtype != DType::invalid) {
      // A fixed dtype tells nothing, but whether an optional tensor is there may.
      if (params_[i].optional) read_presence(i);
      return;
    }
    for (size_t k = 0; k < params_.size(); ++k)
      if (always_there(k) && params_[k].variable == params_[i].variable) {
        masks_[k] |= YARD_FACTS_DTYPE;
        if (params_[i].optional) read_presence(i);
        return;
      }
    read_facts(i, YARD_FACTS_DTYPE);
  }

  void read_presence(size_t i) { add_other(YARD_LIMIT_ABSENT, i); }

  void read_limit(const select::Limit& l) {
    switch (l.l.kind) {
      case YARD_LIMIT_MIN:
      case YARD_LIMIT_MAX:
      case YARD_LIMIT_MULTIPLE:
      case YARD_LIMIT_EQUALS: return read_integer(l);
      case YARD_LIMIT_ABSENT:
      case YARD_LIMIT_PRESENT: return read_presence(static_cast<size_t>(l.arg));
      default: break;
    }
    for (size_t i = 0; i < params_.size(); ++i)
      if (params_[i].is_tensor() && (l.arg < 0 || static_cast<size_t>(l.arg) == i))
        read_tensor_limit(l.l, i);
  }

  void read_tensor_limit(const yard_limit_t& l, size_t i) {
    if (l.kind == YARD_LIMIT_DTYPE) return read_dtype(i);
    if (l.kind == YARD_LIMIT_ALIGN) recipe_.reads_alignment_ = true;
    if (!is_tensor(i)) return read_whole(i);
    if (l.kind == YARD_LIMIT_RANK || params_[i].optional) return add_other(l.kind, i, l.a, l.b);
    Test t;
    switch (l.kind) {
      case YARD_LIMIT_COMPACT: t.x = t.m = YARD_FACTS_COMPACT; break;
      case YARD_LIMIT_INNER_DENSE: t.x = t.m = YARD_FACTS_INNER_DENSE; break;
      case YARD_LIMIT_PLAIN: t.x = t.m = YARD_FACTS_PLAIN; break;
      default: {
        // ALIGN: taking the wanted logarithm off its field borrows from the free bit above it, unless
        // the field is large enough.
        const auto lg = static_cast<uint64_t>(std::countr_zero(static_cast<uint64_t>(l.a)));
        t.y = 0 - (lg << YARD_FACTS_ALIGN_SHIFT);
        t.m = uint64_t{1} << (YARD_FACTS_ALIGN_SHIFT + 4);
      }
    }
    add({Group::Source::kFacts, static_cast<uint8_t>(i), 0, 0, 0}, t);
  }

  // A predicate over a dimension or a product of a tensor that is always there has a quick form.
  void read_integer(const select::Limit& l) {
    const op::Field& f = l.field;
    Test t;
    const bool dim = f.kind == op::Field::Kind::kDim && f.sources[0].factor == 1;
    const bool quick = (dim || f.kind == op::Field::Kind::kProduct) && f.count == 1 &&
                       always_there(f.sources[0].arg) && quick_test(l.l, t);
    if (quick)
      add({dim ? Group::Source::kDim : Group::Source::kProduct, f.sources[0].arg, f.sources[0].axis,
           0, 0},
          t);
    else
      add_other(l.l.kind, 0, l.l.a, l.l.b, &f);
    note_scalar(f);
  }

  static bool quick_test(const yard_limit_t& l, Test& t) {
    constexpr uint64_t kSign = uint64_t{1} << 63;
    constexpr int64_t kMost = int64_t{1}
                              << 62;  // sizes are below; so v - a and a - v do not overflow
    if (l.a < 0 || l.a > kMost) return false;
    const auto a = static_cast<uint64_t>(l.a);
    switch (l.kind) {
      case YARD_LIMIT_MIN: t = {0, 0 - a, kSign, 0}; return true;
      case YARD_LIMIT_MAX: t = {~uint64_t{0}, a + 1, kSign, 0}; return true;
      case YARD_LIMIT_EQUALS: t = {a, 0, ~uint64_t{0}, 0}; return true;
      default:  // MULTIPLE
        t = {0, 0, a - 1, 0};
        return std::has_single_bit(a);
    }
  }

  void read_verifier(const select::KernelCandidate& c) {
    if (c.kernel->d.verify == nullptr) return;
    if (c.kernel->reads_all)
      for (size_t i = 0; i < params_.size(); ++i) read_whole(i);
    for (const op::Field& f : c.verify_fields) {
      if (f.count == 0) continue;
      add_field(recipe_.exact_, f);
    }
    for (int arg : c.verify_args) read_whole(static_cast<size_t>(arg));
  }

  // Whether a call is of the kind that health holds back: its dtypes, and the bucket of each dimension.
  void read_breaker(const health::BreakerStatus& breaker) {
    for (size_t i = 0; i < params_.size(); ++i)
      if (params_[i].is_tensor()) read_dtype(i);
    const auto buckets = breaker.key.sizes.get();
    const std::vector<op::Field>& dims = candidates_.health_dims();
    for (size_t i = 0; i < buckets.size() && i < dims.size(); ++i) {
      const auto edge = [&](uint32_t bucket) {
        select::Limit l{};
        l.l.kind = YARD_LIMIT_MIN;
        l.l.a = int64_t{1} << bucket;
        l.field = dims[i];
        if (bucket < 62) read_integer(l);
      };
      if (buckets[i] > 0) edge(buckets[i] - 1u);
      edge(buckets[i]);
    }
  }

  void read_rules() {
    const select::OpSettings& d = candidates_.settings();
    if (!d.by_rules()) return;
    recipe_.reads_scalars_ |= d.rules->reads_scalars();
    if (d.rules->key_words() > 0) recipe_.rules_ = d.rules;
  }

  // A mode that the program has added, as verifiers do.
  void read_mode() {
    const auto& mode = candidates_.settings().program;
    if (mode == nullptr) return;
    const auto& reads = mode->provider.reads;
    for (const op::Field& f : candidates_.mode_fields())
      if (f.count > 0) add_field(recipe_.exact_, f);
    for (size_t i = 0; i < params_.size(); ++i)
      if (!reads || (!candidates_.program().field(params_[i].name) &&
                     std::find(reads->begin(), reads->end(), params_[i].name) != reads->end()))
        read_whole(i);
    // Keys say that an output is an input, not which.
    if (!reads && alias_pairs() > 1) never_ = true;
  }

  size_t alias_pairs() const {
    size_t n = 0;
    for (const uint8_t out : candidates_.program().outputs())
      for (uint32_t in = 0; in < params_.size(); ++in)
        n += candidates_.program().may_alias(out, in) ? 1 : 0;
    return n;
  }

  void read_bucket(const op::Field& f) { add_field(recipe_.buckets_, f); }

  void add_field(std::vector<op::Field>& to, const op::Field& f) {
    const auto same = [&](const op::Field& o) { return same_field(o, f); };
    if (std::none_of(to.begin(), to.end(), same)) to.push_back(f);
    note_scalar(f);
  }

  void read_whole(size_t arg) {
    const auto i = static_cast<uint8_t>(arg);
    if (std::find(recipe_.whole_.begin(), recipe_.whole_.end(), i) == recipe_.whole_.end())
      recipe_.whole_.push_back(i);
    (params_[arg].is_tensor() ? recipe_.reads_alignment_ : recipe_.reads_scalars_) = true;
  }

  void note_scalar(const op::Field& f) {
    if (f.count > 0 && f.kind == op::Field::Kind::kScalar) recipe_.reads_scalars_ = true;
  }

  // ---- Where it goes ----

  void add(const Group& g, const Test& t) {
    auto it = std::find_if(bundles_.begin(), bundles_.end(), [&](const Bundle& b) {
      return b.group.source == g.source && b.group.arg == g.arg && b.group.axis == g.axis &&
             b.group.other == g.other && b.tests.size() < Recipe::kFirstTests;
    });
    const auto same = [&](const Test& o) { return o.x == t.x && o.y == t.y && o.m == t.m; };
    for (const Bundle& b : bundles_)
      if (b.group.source == g.source && b.group.arg == g.arg && b.group.axis == g.axis &&
          b.group.other == g.other && std::any_of(b.tests.begin(), b.tests.end(), same))
        return;
    if (it == bundles_.end()) it = bundles_.insert(bundles_.end(), {g, {}});
    it->tests.push_back(t);
  }

  void add_other(uint32_t kind, size_t arg, int64_t a = 0, int64_t b = 0,
                 const op::Field* field = nullptr) {
    Recipe::Other o{};
    o.kind = kind, o.arg = static_cast<uint8_t>(arg), o.a = a, o.b = b;
    if (field != nullptr) o.field = *field;
    for (const Recipe::Other& known : recipe_.others_)
      if (known.kind == o.kind && known.arg == o.arg && known.a == o.a && known.b == o.b &&
          same_field(known.field, o.field))
        return;
    Group g;
    g.other = static_cast<uint32_t>(recipe_.others_.size());
    recipe_.others_.push_back(o);
    add(g, {0, 0, ~uint64_t{0}, 0});
  }

  // Fills the first word with as many groups as fit, cheapest first; fold_rest() makes the others.
  void place() {
    for (size_t i = 0; i < masks_.size(); ++i) {
      if (masks_[i] == 0) continue;
      if (recipe_.lead_ == Recipe::kNoLead && always_there(i))
        recipe_.lead_ = static_cast<uint8_t>(i), recipe_.lead_mask_ = masks_[i];
      else
        recipe_.facts_.push_back({masks_[i], static_cast<uint8_t>(i)});
    }
    std::stable_sort(bundles_.begin(), bundles_.end(), [](const Bundle& a, const Bundle& b) {
      return a.group.source < b.group.source;
    });
    uint32_t room = Recipe::kFirstTests;
    std::vector<Bundle> later;
    for (Bundle& b : bundles_) {
      if (b.tests.size() <= room) {
        room -= static_cast<uint32_t>(b.tests.size());
        put(b);
        ++recipe_.first_groups_;
      } else {
        later.push_back(std::move(b));
      }
    }
    for (const Bundle& b : later) put(b);
    const size_t words = 1 + (recipe_.tests_.size() + 63) / 64 + recipe_.facts_.size() +
                         (recipe_.buckets_.size() + 7) / 8 + recipe_.exact_.size() +
                         (recipe_.rules_ != nullptr ? recipe_.rules_->key_words() : 0);
    recipe_.oversize_ = never_ || words > Key::kMaxWords;
    recipe_.longer_ = recipe_.rules_ != nullptr || !later.empty() || !recipe_.facts_.empty() ||
                      !recipe_.buckets_.empty() || !recipe_.exact_.empty() ||
                      !recipe_.whole_.empty() || recipe_.oversize_;
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
  bool never_ = false;  // calls are selected for again each time
  Recipe recipe_;
};

Recipe Recipe::compile(const select::CandidateSet& candidates) {
  return RecipeCompiler(candidates).compile();
}

}  // namespace yard::dispatch
