// SPDX-License-Identifier: Apache-2.0
#include "verify/size_solver.h"

#include <algorithm>
#include <numeric>

#include "base/lists.h"

namespace yard::verification {
namespace {

constexpr int64_t kEdges[] = {1, 1, 2, 3};
constexpr int64_t kOdds[] = {5, 9, 15, 21, 35, 63, 99, 100, 129};
constexpr int64_t kPrimes[] = {7, 11, 13, 17, 31, 61, 127, 251};
constexpr int64_t kPowers[] = {4, 8, 16, 32, 64, 128, 256};
constexpr int64_t kNearPowers[] = {7, 9, 15, 17, 31, 33, 63, 65, 127, 129, 255, 257};
constexpr int64_t kTypicals[] = {64, 96, 128, 256, 320, 512, 768, 1024};
constexpr int64_t kLarges[] = {1000, 1023, 1024, 2049, 4096, 4097, 8192, 11008, 16384};
constexpr int64_t kRows[] = {1, 2, 3, 4, 5, 7, 8, 16, 33};
constexpr int64_t kFew[] = {1, 2, 3, 5};
// Heads, hidden and inner dimensions and vocabularies of well-known models.
constexpr int64_t kModelSizes[] = {64,    80,    96,    112,   128,    192,    256,   512,   576,
                                   640,   768,   896,   1024,  1152,   1280,   1536,  1600,  2048,
                                   2304,  2560,  3072,  3584,  4096,   4608,   5120,  6144,  7168,
                                   8192,  8960,  9728,  11008, 12288,  13824,  14336, 16384, 18944,
                                   28672, 30522, 32000, 50257, 128256, 151936, 262144};
constexpr int64_t kTokens[] = {1, 2, 7, 8, 16, 32, 64, 128, 256, 512, 1000, 1024, 2048, 4096};
constexpr int64_t kUsualElements = 1 << 15;
constexpr double kMostProduct = 1 << 28;  // of all sizes of a call: reference kernels are slow
// Product of all sizes of a call that is made for one of its sizes.
constexpr double kMostWork = 1 << 20;
constexpr int64_t kOneEach = 8192;  // if a size is larger, all others are 1 if possible
constexpr int64_t kMostStep = 1ll << 31;

// Indexed by SizeSolver::Profile.
constexpr std::span<const int64_t> kSizes[] = {kEdges,  kEdges,      kOdds,     kPrimes,
                                               kPowers, kNearPowers, kTypicals, kFew};

int64_t pick(std::span<const int64_t> from, Random& random) {
  return from[random.below(from.size())];
}

// The multiples of `step` from `low` to `high` that pass all tests of ranges and multiples.
struct Passing {
  int64_t low, high, step = 1;

  Passing(const std::vector<op::IntegerTest>& tests, int64_t least) : low(least), high(INT64_MAX) {
    for (const op::IntegerTest& t : tests) {
      if (t.kind == op::IntegerTest::Kind::kRange)
        low = std::max(low, t.a), high = std::min(high, t.b);
      if (t.kind == op::IntegerTest::Kind::kMultiple && t.a < kMostStep && step < kMostStep)
        step = std::lcm(step, t.a);
    }
    if (step == 1) return;
    if (low % step != 0) low += low > 0 ? step - low % step : -(low % step);
    if (high % step != 0) high -= high > 0 ? high % step : step + high % step;
  }
  bool none() const { return low > high; }
  int64_t nearest(int64_t v) const {
    if (v <= low) return low;
    if (v >= high) return high;
    const int64_t over = v % step;
    return over < 0 ? v - over - step : v - over;
  }
};

// (a c b) equals (b mirrored(c) a).
op::Compare mirrored(op::Compare c) {
  using enum op::Compare;
  constexpr op::Compare kMirrored[] = {kEq, kNe, kGt, kGe, kLt, kLe};
  return kMirrored[static_cast<size_t>(c)];
}

// Returns a value v for which `factor * v c bound` holds, often one at the edge.
std::optional<int64_t> solve(int64_t factor, op::Compare c, int64_t bound, int64_t now,
                             Random& random) {
  if (c == op::Compare::kNe) return now + 1;
  if (c == op::Compare::kLt) return solve(factor, op::Compare::kLe, bound - 1, now, random);
  if (c == op::Compare::kGt) return solve(factor, op::Compare::kGe, bound + 1, now, random);
  if (c == op::Compare::kGe)
    return (std::max<int64_t>(bound, 0) + factor - 1) / factor +
           static_cast<int64_t>(random.below(2));
  // Sizes are not negative.
  if (bound < 0 || (c == op::Compare::kEq && bound % factor != 0)) return std::nullopt;
  const int64_t most = bound / factor;
  if (c == op::Compare::kEq || random.below(2) == 0) return most;
  return static_cast<int64_t>(random.below(static_cast<uint64_t>(most) + 1));
}

}  // namespace

// The sizes of a tensor, or of a call.
struct SizeSolver::Sizes {
  double product = 1;
  int64_t* largest = nullptr;  // the largest size that is not pinned

  void add(int64_t& size, int64_t factor, bool is_pinned) {
    product *= static_cast<double>(size) * static_cast<double>(factor);
    if (!is_pinned && (largest == nullptr || size > *largest)) largest = &size;
  }
  // Halves the largest size if the product is above the limit. Returns whether anything changed.
  bool halve_above(double limit) {
    if (product <= limit || largest == nullptr || *largest <= 1) return false;
    *largest /= 2;
    return true;
  }
};

std::optional<int64_t> Assignment::value(const op::Schema& schema, const std::string& name) const {
  bool known = false;
  for (size_t i = 0; i < schema.params.size(); ++i) {
    const op::Param& p = schema.params[i];
    known |= p.kind == op::Kind::kInt && p.name == name;
    known |= present[i] && std::ranges::find(p.dims, name, &op::Dim::name) != p.dims.end();
  }
  if (!known) return std::nullopt;
  if (const auto n = numbers.find(name); n != numbers.end()) return n->second;
  const auto g = groups.find(name);
  if (g == groups.end()) return std::nullopt;
  return std::accumulate(g->second.begin(), g->second.end(), int64_t{1}, std::multiplies<>());
}

void Assignment::set(const std::string& name, int64_t value) {
  const auto g = groups.find(name);
  if (g == groups.end()) {
    numbers[name] = value;
    return;
  }
  g->second.assign(std::max<size_t>(g->second.size(), 1), 1);
  g->second.back() = value;
}

SizeSolver::SizeSolver(const op::Schema& schema, int64_t max_elements, SizeLimits limits)
    : s_(schema), max_elements_(max_elements), limits_(std::move(limits)) {
  using enum Profile;
  profiles_ = ShuffleBag<Profile>({kEdge, kEdge, kEmpty, kOdd, kPrime, kPower, kPower, kNearPower,
                                   kNearPower, kTypical, kTypical, kLarge});
  const auto note = [](std::vector<std::string>& names, const std::string& name) {
    if (!base::contains(names, name)) names.push_back(name);
  };
  for (const op::Param& p : s_.params) {
    optionals_.emplace_back(p.optional ? std::vector<char>{0, 1, 1} : std::vector<char>{1});
    if (p.kind == op::Kind::kInt) integers_[p.name] = ShuffleBag<int>({0, 0, 0, 1, 2, 3, 4, 5});
    for (const op::Dim& d : p.dims) {
      if (d.kind == op::Dim::Kind::kLeading) note(groups_, d.name);
      if (d.kind == op::Dim::Kind::kNamed) note(dims_, d.name);
    }
  }
  for (const std::string& g : groups_) group_ranks_[g] = ShuffleBag<int>({0, 1, 1, 1, 1, 2, 2, 3});
}

int64_t SizeSolver::size(Random& random) {
  return pick(kSizes[static_cast<size_t>(profile_)], random);
}

void SizeSolver::require_optionals(Assignment& assignment, const VariableTypes& types,
                                   Random& random) const {
  const auto at = [&](const op::Term& t) { return static_cast<size_t>(s_.index_of(t.name)); };
  for (int round = 0; round < 4; ++round) {
    for (const op::Clause& c : s_.clauses) {
      if (c.kind == op::Clause::Kind::kIff)
        assignment.present[at(c.right)] = assignment.present[at(c.left)];
      if (c.kind == op::Clause::Kind::kIffDTypes)
        assignment.present[at(c.left)] = base::contains(c.dtypes, types.at(c.right.name));
      if (c.kind == op::Clause::Kind::kOr && !assignment.present[at(c.left)] &&
          !assignment.present[at(c.right)])
        assignment.present[at(random.below(2) == 0 ? c.left : c.right)] = true;
    }
  }
}

Assignment SizeSolver::choose(Random& random, const VariableTypes& types) {
  Assignment to;
  for (auto& optional : optionals_) to.present.push_back(optional.next(random) != 0);
  for (const auto& [param, given] : limits_.present) to.present[param] = given;
  require_optionals(to, types, random);
  for (const std::string& g : groups_) {
    int rank = group_ranks_[g].next(random);
    if (const auto it = limits_.ranks.find(g); it != limits_.ranks.end())
      rank = std::clamp(rank, it->second.first, it->second.second);
    std::vector<int64_t> dims(static_cast<size_t>(rank));
    for (int64_t& d : dims) d = dims.size() == 1 ? pick(kRows, random) : pick(kFew, random);
    if (g == marked_ && profile_ == Profile::kEmpty && !dims.empty())
      dims[random.below(dims.size())] = 0;
    if (g == marked_ && profile_ == Profile::kLarge && !dims.empty())
      dims[0] = pick(kLarges, random);
    to.groups[g] = std::move(dims);
  }
  for (const op::Param& p : s_.params) {
    if (p.kind != op::Kind::kInt) continue;
    const int64_t usual = p.fallback.index() == 0 ? 1 : std::get<int64_t>(p.fallback);
    const int64_t values[] = {usual, 1,  2 + static_cast<int64_t>(random.below(7)),
                              0,     -1, size(random)};
    to.numbers[p.name] = values[integers_[p.name].next(random)];
  }
  for (const std::string& d : dims_)
    to.numbers[d] = d == marked_ && profile_ == Profile::kEmpty   ? 0
                    : d == marked_ && profile_ == Profile::kLarge ? pick(kLarges, random)
                                                                  : size(random);
  return to;
}

std::optional<Assignment> SizeSolver::next(const SizePoint* point, Random& random,
                                           const VariableTypes& types) {
  profile_ = point != nullptr ? Profile::kLarge : profiles_.next(random);
  std::vector<std::string> names = dims_;
  names.insert(names.end(), groups_.begin(), groups_.end());
  marked_ = point != nullptr || names.empty() ? "" : names[random.below(names.size())];
  Assignment to = choose(random, types);
  std::set<std::string> pinned;
  if (point != nullptr) {
    if (point->size > kOneEach) {
      for (const std::string& d : dims_) to.numbers[d] = 1;
      for (auto& [name, dims] : to.groups) std::ranges::fill(dims, 1);
    }
    to.set(point->name, point->size);
    pinned.insert(point->name);
  }
  repair(to, pinned, random);
  shrink(to, pinned);
  repair(to, pinned, random);
  if (point != nullptr && all_sizes(to, {}).product > kMostWork) return std::nullopt;
  return to;
}

std::vector<SizePoint> SizeSolver::points() const {
  std::vector<SizePoint> to;
  const auto add = [&](const std::string& name, std::span<const int64_t> sizes, int64_t least) {
    const auto it = limits_.numbers.find(name);
    const bool limited = it != limits_.numbers.end();
    const Passing p(limited ? it->second : std::vector<op::IntegerTest>(), least);
    if (p.none()) return;
    std::set<int64_t> values;
    for (const int64_t size : sizes)
      if (p.nearest(size) == size) values.insert(size);
    for (const auto& [edge, step] : {std::pair(p.low, p.step), std::pair(p.high, -p.step)})
      for (int n = 0; limited && n < 3; ++n)
        if (edge >= -max_elements_ && edge <= max_elements_)
          values.insert(p.nearest(edge + n * step));
    for (const int64_t v : values)
      if (v <= max_elements_) to.push_back({name, v});
  };
  for (const std::string& d : dims_) add(d, kModelSizes, 0);
  for (const std::string& g : groups_) add(g, kTokens, 0);
  for (const op::Param& p : s_.params)
    if (p.kind == op::Kind::kInt && limits_.numbers.contains(p.name)) add(p.name, {}, INT64_MIN);
  return to;
}

SizeSolver::Sizes SizeSolver::all_sizes(Assignment& assignment,
                                        const std::set<std::string>& pinned) const {
  Sizes all;
  for (const std::string& d : dims_) all.add(assignment.numbers[d], 1, pinned.contains(d));
  for (auto& [name, dims] : assignment.groups)
    for (int64_t& n : dims) all.add(n, 1, pinned.contains(name));
  return all;
}

// Few calls are large, because reference kernels are slow.
void SizeSolver::shrink(Assignment& assignment, const std::set<std::string>& pinned) const {
  const int64_t limit =
      profile_ == Profile::kLarge ? max_elements_ : std::min(max_elements_, kUsualElements);
  for (int round = 0; round < 64; ++round) {
    bool changed = false;
    for (const op::Param& p : s_.params) {
      Sizes sizes;
      for (const op::Dim& d : p.dims) {
        const bool is_pinned = pinned.contains(d.name);
        if (d.kind == op::Dim::Kind::kNamed)
          sizes.add(assignment.numbers[d.name], d.number, is_pinned);
        if (d.kind == op::Dim::Kind::kLeading)
          for (int64_t& n : assignment.groups[d.name]) sizes.add(n, 1, is_pinned);
        if (d.kind == op::Dim::Kind::kConstant) sizes.product *= static_cast<double>(d.number);
      }
      changed |= sizes.halve_above(static_cast<double>(limit));
    }
    if (!changed && !all_sizes(assignment, pinned).halve_above(kMostProduct)) return;
  }
}

bool SizeSolver::apply_limits(Assignment& assignment, const std::set<std::string>& pinned) const {
  bool changed = false;
  for (const auto& [name, tests] : limits_.numbers) {
    const std::optional<int64_t> now = assignment.value(s_, name);
    if (!now || pinned.contains(name)) continue;
    const op::Param* const same = s_.find(name);
    const Passing p(tests, same != nullptr && same->kind == op::Kind::kInt ? INT64_MIN : 0);
    if (p.none() || p.nearest(*now) == *now) continue;
    assignment.set(name, p.nearest(*now));
    changed = true;
  }
  return changed;
}

// Makes a clause hold by changing one of its names. Returns false if it changes nothing.
bool SizeSolver::satisfy(Assignment& assignment, const op::Clause& c,
                         const std::set<std::string>& pinned, Random& random) const {
  const bool multiple = c.kind == op::Clause::Kind::kMultiple;
  if (!multiple && c.kind != op::Clause::Kind::kCompare) return false;
  const auto term = [&](const op::Term& t) -> std::optional<int64_t> {
    if (t.name.empty()) return t.number;
    const auto v = assignment.value(s_, t.name);
    return v ? std::optional(*v * t.number) : std::nullopt;
  };
  const auto left = term(c.left), right = term(c.right);
  if (!left || !right) return false;
  const int64_t over = multiple ? op::remainder(*left, *right) : 0;
  if (multiple ? over == 0 : op::compares(*left, c.compare, *right)) return false;
  const bool free_left = !c.left.name.empty() && !pinned.contains(c.left.name);
  const bool free_right = !c.right.name.empty() && !pinned.contains(c.right.name);
  if (!free_left && !free_right) return false;
  std::optional<int64_t> value;
  bool change_left = false;
  if (multiple) {
    // Rounds to a multiple of the divisor, or chooses a divisor.
    change_left = !free_right || (free_left && random.below(2) != 0);
    value = *left > *right ? *left - over : *right;
    if (!change_left) {
      value = std::clamp<int64_t>(*right, 1, std::max<int64_t>(*left, 1));
      while (*left % *value != 0) --*value;
    }
  } else {
    change_left = free_left && (!free_right || random.below(2) == 0);
    const op::Term& t = change_left ? c.left : c.right;
    value = solve(t.number, change_left ? c.compare : mirrored(c.compare),
                  change_left ? *right : *left, *assignment.value(s_, t.name), random);
  }
  if (value) assignment.set(change_left ? c.left.name : c.right.name, *value);
  return value.has_value();
}

void SizeSolver::repair(Assignment& assignment, const std::set<std::string>& pinned,
                        Random& random) const {
  for (int round = 0; round < 12; ++round) {
    bool changed = apply_limits(assignment, pinned);
    for (const op::Clause& c : s_.clauses) {
      const bool active = c.guard == op::Clause::Guard::kNone ||
                          assignment.present[static_cast<size_t>(s_.index_of(c.guard_param))] ==
                              (c.guard == op::Clause::Guard::kIf);
      if (active) changed |= satisfy(assignment, c, pinned, random);
    }
    if (!changed) return;
  }
}

}  // namespace yard::verification
