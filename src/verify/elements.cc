// SPDX-License-Identifier: Apache-2.0
#include "verify/elements.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>

#include "base/lists.h"

namespace yard {
namespace {

constexpr Contents kAllContents[] = {Contents::kNormal,   Contents::kNan,  Contents::kInfinity,
                                     Contents::kDenormal, Contents::kZero, Contents::kLarge};
constexpr const char* kNames[] = {"normal", "nan", "infinity", "denormal", "zero", "large"};

}  // namespace

const char* to_string(Contents c) noexcept { return kNames[static_cast<size_t>(c)]; }

std::optional<Contents> parse_contents(std::string_view text) noexcept {
  for (const Contents c : kAllContents)
    if (text == to_string(c)) return c;
  return std::nullopt;
}

std::span<const Contents> all_contents() noexcept { return kAllContents; }

}  // namespace yard

namespace yard::verification {
namespace {

constexpr FloatType kFloatTypes[] = {
    {DType::f64, 0x7ff0000000000000, 0x1p-1022, 0x1.fffffffffffffp1023, kInfinity, 1e-12, 1e-12},
    {DType::f32, 0x7f800000, 0x1p-126, 0x1.fffffep127, 0x1p128, 1e-5, 1e-5},
    {DType::f16, 0x7c00, 0x1p-14, 65504, 0x1p16, 2e-3, 1e-3},
    {DType::bf16, 0x7f80, 0x1p-126, 0x1.fep127, 0x1p128, 1.6e-2, 8e-3},
    {DType::f8e4m3, 0x7f, 0x1p-6, 448, kInfinity, 0.25, 0.0625},
    {DType::f8e5m2, 0x7c, 0x1p-14, 57344, 0x1p16, 0.25, 0.0625},
};

bool is_signed(DType t) noexcept {
  return t == DType::i8 || t == DType::i16 || t == DType::i32 || t == DType::i64 || t == DType::i4;
}

template <class Bits>
std::optional<NotFinite> find_not_finite(const TensorView& v, uint64_t not_finite) {
  const auto mask = static_cast<Bits>(not_finite);
  constexpr auto kSize = static_cast<int64_t>(sizeof(Bits));
  const int64_t step = (v.rank() > 0 ? v.strides().back() : 1) * kSize;
  std::optional<NotFinite> to;
  for_each_row(v, [&](const std::vector<int64_t>& index, int64_t offset, int64_t width) {
    if (to) return;
    const char* const row = static_cast<const char*>(v.data()) + offset * kSize;
    const auto is_bad = [&](int64_t i) {
      Bits bits;
      std::memcpy(&bits, row + i * step, sizeof bits);
      return (bits & mask) == mask;
    };
    unsigned bad = 0;  // for the whole row, so that the loop is vectorised
    for (int64_t i = 0; i < width; ++i) bad |= is_bad(i) ? 1u : 0u;
    if (bad == 0) return;
    int64_t first = 0;
    while (!is_bad(first)) ++first;
    to = NotFinite{index, load(v.dtype(), row + first * step)};
    if (!index.empty()) to->index.back() = first;
  });
  return to;
}

constexpr size_t kLine = YARD_MAX_ALIGN;
constexpr int kAroundRead = 0xff, kAroundWritten = 0xdb;

// Returns how many elements lie below the first one, and from it up. Strides are not checked.
struct Reach {
  double below = 0, above = 0;
};
Reach reach(const TensorView& t) {
  if (base::contains(t.shape(), 0)) return {};
  Reach r{0, 1};
  for (size_t i = 0; i < t.shape().size(); ++i) {
    const double span = static_cast<double>(t.shape()[i] - 1) * static_cast<double>(t.strides()[i]);
    (span < 0 ? r.below : r.above) += std::fabs(span);
  }
  return r;
}

// Returns an approximately normal number. Uses only additions, so every machine gets equal values.
double normal(Random& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.unit();
  return sum;
}

// Generates float values in index order. Rows are `width` elements long.
class Floats {
 public:
  Floats(const FloatType& type, Random& random, Contents contents, int64_t width)
      : random_(random),
        contents_(contents),
        width_(static_cast<uint64_t>(std::max<int64_t>(width, 1))),
        large_(std::min(8192.0, type.largest / 8)),
        tiny_(type.smallest_normal) {}

  double next() {
    const uint64_t column = count_++ % width_;
    if (column == 0) begin_row();
    const double usual = normal(random_);
    switch (contents_) {
      case Contents::kNan: return special(column) ? std::nan("") : usual;
      case Contents::kInfinity: return special(column) ? std::copysign(kInfinity, usual) : usual;
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

// Values of integers in one tensor: lengths decide how long a kernel runs.
constexpr int64_t kMostIntegers = 32768;

struct BlockFormat {
  std::vector<int> scales;  // offsets in bytes of the scales, which are f16
  double unit;              // makes the elements about 1 if the scales are
};
BlockFormat block_format(DType t) {
  switch (t) {
    case DType::q8_0: return {{0}, 1.0 / 64};
    case DType::q4_0: return {{0}, 1.0 / 4};
    case DType::q4_1: return {{0, 2}, 1.0 / 8};
    case DType::q4_k: return {{0, 2}, 1.0 / 256};
    default: return {{208}, 1.0 / 1024};  // q6_k
  }
}

// Any bytes make a valid block, except for the scales, which determine the size of the elements.
void fill_blocks(const TensorView& view, Random& random, Contents contents) {
  const BlockFormat format = block_format(view.dtype());
  const int64_t block = yard_unit_bytes(view.c().dtype);
  Floats scales(*float_type(DType::f16), random, contents, 4);
  for_each_row(view, [&](const auto&, int64_t offset, int64_t bytes) {
    char* const row = static_cast<char*>(view.data()) + offset;
    for (int64_t i = 0; i < bytes; ++i) row[i] = static_cast<char>(random.below(256));
    for (char* at = row; at < row + bytes; at += block)
      for (const int scale : format.scales)
        store(DType::f16, at + scale, scales.next() * format.unit);
  });
}

}  // namespace

size_t element_size(DType t) noexcept {
  return block_elements(t) > 1 ? 1 : static_cast<size_t>((bits(t) + 7) / 8);
}

std::span<const FloatType> float_types() noexcept { return kFloatTypes; }

const FloatType* float_type(DType t) noexcept {
  for (const FloatType& f : kFloatTypes)
    if (f.dtype == t) return &f;
  return nullptr;
}

std::string format_element(double v) { return std::isnan(v) ? "nan" : fmt::format("{:.9g}", v); }

void copy_elements(const TensorView& from, const TensorView& to) {
  const char* const source = static_cast<const char*>(from.data());
  char* const target = static_cast<char*>(to.data());
  for_each_run(from, [&](const char* at, size_t n) { std::memcpy(target + (at - source), at, n); });
}

uint64_t packed_bytes(const TensorView& v) noexcept {
  return static_cast<uint64_t>(element_view(v).numel()) * element_size(v.dtype());
}

std::string packed_elements(const TensorView& from) {
  std::string to;
  to.reserve(packed_bytes(from));
  for_each_run(from, [&](const char* at, size_t n) { to.append(at, n); });
  return to;
}

void unpack_elements(std::string_view bytes, const TensorView& to) {
  const char* from = bytes.data();
  for_each_run(to, [&](char* at, size_t n) {
    std::memcpy(at, from, n);
    from += n;
  });
}

std::optional<NotFinite> first_not_finite(const TensorView& v) {
  const FloatType* const type = float_type(v.dtype());
  if (type == nullptr) return std::nullopt;
  switch (element_size(v.dtype())) {
    case 1: return find_not_finite<uint8_t>(v, type->not_finite);
    case 2: return find_not_finite<uint16_t>(v, type->not_finite);
    case 4: return find_not_finite<uint32_t>(v, type->not_finite);
    default: return find_not_finite<uint64_t>(v, type->not_finite);
  }
}

double reach_in_bytes(const TensorView& form) {
  const Reach r = reach(element_view(form));
  return (r.below + r.above) * static_cast<double>(element_size(form.dtype()));
}

Buffer::Buffer(const TensorView& form, uint32_t align, bool written) {
  const size_t size = element_size(form.dtype());
  const Reach r = reach(element_view(form));
  const size_t below = static_cast<size_t>(r.below) * size;
  const size_t after = static_cast<size_t>(r.above) * size;
  bytes_ = below + after;
  // Exactly the requested alignment, never a better one.
  const size_t before = (below + kLine - 1) / kLine * kLine;
  const size_t offset = kGuard + before + (align < kLine ? align : 0);
  room_ = (offset + after + kGuard + kLine - 1) / kLine * kLine;
  memory_.reset(static_cast<char*>(std::aligned_alloc(kLine, room_)));
  if (memory_ == nullptr) throw std::bad_alloc();
  std::memset(memory_.get(), written ? kAroundWritten : kAroundRead, room_);
  char* data = memory_.get() + offset;
  begin_ = data - below;
  view_ = TensorView(data, form.dtype(), form.shape(), form.strides(), form.device());
}

void Buffer::restore() const { std::ranges::copy(image_, memory_.get()); }

void Buffer::scramble(uint8_t byte) const {
  for_each_run(view_, [&](char* at, size_t n) { std::memset(at, byte, n); });
}

std::string Buffer::damage(bool elements) const {
  if (std::memcmp(memory_.get(), image_.data(), room_) == 0) return "";
  std::vector<char> now(memory_.get(), memory_.get() + room_);
  if (!elements) {
    for_each_run(view_, [&](const char* at, size_t n) {
      const auto where = static_cast<size_t>(at - memory_.get());
      std::memcpy(&now[where], &image_[where], n);
    });
  }
  if (std::memcmp(now.data(), image_.data(), room_) == 0) return "";
  size_t at = 0;
  while (now[at] == image_[at]) ++at;
  const auto begin = static_cast<size_t>(begin_ - memory_.get());
  if (at < begin) return fmt::format("{} bytes before its first element", begin - at);
  if (at >= begin + bytes_)
    return fmt::format("{} bytes after its last element", at - begin - bytes_);
  return fmt::format("at byte {}{}", at - begin, elements ? "" : ", between its elements");
}

void fill(const TensorView& view, Random random, Contents contents, IntegerRange integers) {
  const DType t = view.dtype();
  if (const FloatType* const type = float_type(t)) {
    Floats floats(*type, random, contents, view.rank() > 0 ? view.shape().back() : 1);
    return for_each_element(view, [&](char* at) { store(t, at, floats.next()); });
  }
  if (block_elements(t) > 1) return fill_blocks(view, random, contents);
  if (!is_signed(t)) integers.least = std::max<int64_t>(integers.least, 0);
  // Returns the range that every integer dtype of that many bits can represent.
  const int64_t top = t == DType::boolean ? 2
                      : bits(t) < 8       ? 8
                                          : int64_t{1} << (std::min(bits(t), 32) - 1);
  integers.most = std::clamp(integers.most, -top, top);
  integers.least = std::clamp(integers.least, -top, top - 1);
  const auto range =
      static_cast<uint64_t>(std::clamp<int64_t>(integers.most - integers.least, 0, kMostIntegers));
  for_each_element(view, [&](char* at) {
    store(t, at, static_cast<double>(integers.least + static_cast<int64_t>(random.below(range))));
  });
}

}  // namespace yard::verification
