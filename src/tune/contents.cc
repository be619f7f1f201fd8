// SPDX-License-Identifier: Apache-2.0
// Filling tensors. Only additions and multiplications of numbers that fit, so that every machine gets the
// same ones.
#include "tune/contents.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "tune/buffer.h"

namespace yard {
namespace {

constexpr std::pair<Contents, const char*> kNames[] = {
    {Contents::kNormal, "normal"},     {Contents::kNan, "nan"},   {Contents::kInfinity, "infinity"},
    {Contents::kDenormal, "denormal"}, {Contents::kZero, "zero"}, {Contents::kLarge, "large"},
};

}  // namespace

const char* to_string(Contents c) noexcept {
  for (const auto& [contents, name] : kNames)
    if (contents == c) return name;
  return "?";
}

std::optional<Contents> parse_contents(std::string_view text) noexcept {
  for (const auto& [contents, name] : kNames)
    if (text == name) return contents;
  return std::nullopt;
}

std::span<const Contents> all_contents() noexcept {
  static constexpr Contents all[] = {Contents::kNormal,   Contents::kNan,  Contents::kInfinity,
                                     Contents::kDenormal, Contents::kZero, Contents::kLarge};
  static_assert(std::size(all) == std::size(kNames));
  return all;
}

}  // namespace yard

namespace yard::tune {
namespace {

// The sum of twelve is near enough to the bell.
double normal(Random& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.unit();
  return sum;
}

double largest(DType t) {
  switch (t) {
    case DType::f8e4m3: return 448;
    case DType::f8e5m2: return 57344;
    case DType::f16: return 65504;
    default: return 1e30;
  }
}

double smallest_normal(DType t) {
  switch (t) {
    case DType::f8e4m3: return 0x1p-6;
    case DType::f8e5m2:
    case DType::f16: return 0x1p-14;
    case DType::f64: return 0x1p-1022;
    default: return 0x1p-126;  // f32, bf16
  }
}

// Elements come row by row.
class Floats {
 public:
  Floats(DType t, Random& random, Contents contents, int64_t width)
      : random_(random),
        contents_(contents),
        width_(static_cast<uint64_t>(std::max<int64_t>(width, 1))),
        large_(std::min(8192.0, largest(t) / 8)),
        tiny_(smallest_normal(t)) {}

  double next() {
    const uint64_t column = count_++ % width_;
    if (column == 0) begin_row();
    const double usual = normal(random_);
    switch (contents_) {
      case Contents::kNan: return special(column) ? std::nan("") : usual;
      case Contents::kInfinity:
        return special(column) ? std::copysign(std::numeric_limits<double>::infinity(), usual)
                               : usual;
      case Contents::kDenormal: return random_.below(8) == 0 ? usual : usual * tiny_ / 8;
      case Contents::kZero: return std::copysign(0.0, usual);
      case Contents::kLarge: return usual * large_;
      case Contents::kNormal: break;
    }
    return usual;
  }

 private:
  void begin_row() {
    special_row_ = random_.below(2) == 0;
    special_column_ = random_.below(width_);
  }
  bool special(uint64_t column) {
    return special_row_ && (column == special_column_ || random_.below(32) == 0);
  }

  Random& random_;
  const Contents contents_;
  const uint64_t width_;
  const double large_, tiny_;
  uint64_t count_ = 0, special_column_ = 0;
  bool special_row_ = false;
};

}  // namespace

void fill(const TensorView& view, Random random, Contents contents, Integers integers) {
  const DType t = view.dtype();
  if (is_float(t)) {
    Floats floats(t, random, contents, view.rank() > 0 ? view.shape().back() : 1);
    return for_each_element(view, [&](char* at) { store(t, at, floats.next()); });
  }
  if (!is_signed(t)) integers.least = std::max<int64_t>(integers.least, 0);
  // What every dtype of that many bits can hold.
  const int64_t top = t == DType::boolean ? 2 : bits(t) < 8 ? 8 : bits(t) == 8 ? 128 : 32768;
  integers.most = std::min(integers.most, top);
  integers.least = std::max(integers.least, -top);
  const auto range = static_cast<uint64_t>(std::max<int64_t>(integers.most - integers.least, 0));
  for_each_element(view, [&](char* at) {
    store(t, at, static_cast<double>(integers.least + static_cast<int64_t>(random.below(range))));
  });
}

}  // namespace yard::tune
