// SPDX-License-Identifier: Apache-2.0
#include "op/predicate.h"

#include <algorithm>

namespace yard::op {

void IntegerTest::add_cuts(std::vector<int64_t>& to) const {
  if (kind == Kind::kMask) {
    const auto changes = static_cast<uint64_t>(a) ^ (static_cast<uint64_t>(a) << 1);
    for (int i = 1; i < 64; ++i)
      if ((changes >> i & 1) != 0) to.push_back(i);
    return;
  }
  if (a != INT64_MIN) to.push_back(a);
  if (b != INT64_MAX) to.push_back(b + 1);
}

bool detail::is_dense_as(const AxisOrder& order, const yard_tensor_t& t, bool rows) noexcept {
  int64_t strides[YARD_MAX_RANK];
  int64_t step = 1;
  for (int32_t i = t.ndim - 1; i >= 0; --i) {
    if (t.shape[i] == 0) return true;
    strides[i] = t.strides != nullptr ? t.strides[i] : step;
    step *= t.shape[i];
  }
  int64_t extent = 1;  // of the dimensions inside
  for (int32_t place = t.ndim - 1; place >= 0; --place) {
    const int32_t axis = order.axis(t.ndim, place);
    if (t.shape[axis] == 1) continue;
    const bool exact = !rows || place == t.ndim - 1;
    if (exact ? strides[axis] != extent : strides[axis] < extent) return false;
    extent = (rows ? extent : 0) + strides[axis] * (t.shape[axis] - (rows ? 1 : 0));
  }
  return true;
}

bool holds_for_list(const Predicate& p, const yard_value_t& list, int64_t& found) noexcept {
  for (uint32_t i = 0; i < list.count; ++i) {
    found = detail::read_tensor(p.field.kind, p.field.sources[0], list.u.list[i]);
    if (!p.test.holds(found)) return false;
  }
  return list.count > 0 || p.if_absent;
}

uint32_t half_octave(int64_t v) noexcept {
  if (v == kAbsent) return kNoHalfOctave;
  if (v <= 0) return v == 0 ? 1 : 0;
  const auto u = static_cast<uint64_t>(std::min(v, int64_t{1} << 62));
  const auto lg = static_cast<uint32_t>(std::bit_width(u) - 1);
  const uint32_t upper = lg == 0 ? 0 : static_cast<uint32_t>((u >> (lg - 1)) & 1);
  return 2 + 2 * lg + upper;  // at most 126
}

int64_t half_octave_floor(int64_t v) noexcept {
  const uint32_t n = half_octave(v);
  if (n == kNoHalfOctave) return kAbsent;
  if (n < 2) return static_cast<int64_t>(n) - 1;
  const uint32_t lg = (n - 2) / 2;
  return (int64_t{1} << lg) + (n % 2 != 0 ? int64_t{1} << (lg - 1) : 0);
}

namespace {

// Returns the field of a named dimension or leading group. A broadcast dimension is not a source,
// because its size may be 1.
Field named_field(const Schema& s, const Dim& named) {
  const bool leading = named.kind == Dim::Kind::kLeading;
  // Lower ranks are better: required before optional, inputs before outputs, 1 before other
  // factors.
  const auto rank_of = [](const Param& p, const Dim& d) {
    return (p.is_required() ? 0 : 4) + (p.is_output() ? 2 : 0) + (d.number == 1 ? 0 : 1);
  };
  std::multimap<int, Field::Source> candidates;  // by rank
  for (size_t i = 0; i < s.params.size(); ++i) {
    const Param& p = s.params[i];
    for (size_t k = 0; k < p.dims.size(); ++k) {
      const Dim& d = p.dims[k];
      if (d.name != named.name || d.broadcast) continue;
      candidates.emplace(rank_of(p, d),
                         Field::Source{static_cast<uint8_t>(i),
                                       static_cast<uint8_t>(p.dims.size() - k - (leading ? 1 : 0)),
                                       static_cast<uint16_t>(leading ? 1 : d.number)});
    }
  }
  Field f;
  f.kind = leading ? Field::Kind::kProduct : Field::Kind::kDim;
  for (const auto& [rank, source] : candidates) {
    const auto* const end = f.sources + f.count;
    const bool again = std::ranges::find(f.sources, end, source.arg, &Field::Source::arg) != end;
    if (again || f.count == kMaxSources) continue;
    f.sources[f.count++] = source;
    if (rank < 4) break;  // the source is always given
  }
  return f;
}

}  // namespace

Fields make_fields(const Schema& s) {
  Fields named;
  for (size_t i = 0; i < s.params.size(); ++i) {
    const Param& p = s.params[i];
    switch (p.kind) {
      case Kind::kInt:
      case Kind::kBool:
      case Kind::kEnum: named.emplace(p.name, Field::of(Field::Kind::kScalar, i)); break;
      case Kind::kTensorList:
        named.emplace(p.name + ".count", Field::of(Field::Kind::kCount, i));
        break;
      case Kind::kTensor:
        named.emplace(p.name + ".rank", Field::of(Field::Kind::kRank, i));
        named.emplace(p.name + ".size", Field::of(Field::Kind::kSize, i));
        break;
      default: break;
    }
  }
  for (const Param& p : s.params)
    for (const Dim& d : p.dims)
      if (!d.name.empty()) named.emplace(d.name, named_field(s, d));
  return named;
}

}  // namespace yard::op
