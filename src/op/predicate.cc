// SPDX-License-Identifier: Apache-2.0
#include "op/predicate.h"

#include <algorithm>
#include <bit>

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

}  // namespace yard::op
