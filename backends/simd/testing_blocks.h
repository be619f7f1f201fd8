// SPDX-License-Identifier: Apache-2.0
// Makes tensors of weights with few bits for tests, and decodes them. The decoder follows the
// definition of each format, one element at a time, and shares nothing with the kernels.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "linear.h"
#include "testing_reference.h"

namespace yard::simd::testing {

inline constexpr Format kFormats[] = {Format::kQ8_0, Format::kQ4_0, Format::kQ4_1,
                                      Format::kQ4_K, Format::kQ6_K, Format::kI8};

inline double f16_at(const uint8_t* p) {
  return reference::to_double(reference::F16{static_cast<uint16_t>(p[0] | p[1] << 8)});
}

inline double element(Format format, const uint8_t* b, int i) {
  const auto nibble = [&](const uint8_t* q) { return i < 16 ? q[i] & 15 : q[i - 16] >> 4; };
  switch (format) {
    case Format::kI8: return static_cast<int8_t>(b[0]);
    case Format::kQ8_0: return f16_at(b) * static_cast<int8_t>(b[2 + i]);
    case Format::kQ4_0: return f16_at(b) * (nibble(b + 2) - 8);
    case Format::kQ4_1: return f16_at(b) * nibble(b + 4) + f16_at(b + 2);
    case Format::kQ4_K: {
      const int j = i / 32, group = i / 64, at = i % 32;
      const uint8_t *const s = b + 4, *const q = b + 16 + group * 32;
      const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | ((s[j - 4] >> 6) << 4);
      const int least = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | ((s[j] >> 6) << 4);
      const int value = j % 2 == 0 ? q[at] & 15 : q[at] >> 4;
      return f16_at(b) * scale * value - f16_at(b + 2) * least;
    }
    case Format::kQ6_K: {
      const int half = i / 128, quarter = i % 128 / 32, l = i % 32;
      const uint8_t *const ql = b + 64 * half, *const qh = b + 128 + 32 * half;
      const int low = quarter % 2 == 0 ? ql[l] : ql[l + 32];
      const int value = (quarter < 2 ? low & 15 : low >> 4) | ((qh[l] >> (2 * quarter) & 3) << 4);
      const auto scale = static_cast<int8_t>(b[192 + 8 * half + l / 16 + 2 * quarter]);
      return f16_at(b + 208) * scale * (value - 32);
    }
  }
  return 0;
}

// A tensor [n, k] with random contents at an odd address. `gap` blocks lie between rows. The memory
// ends with the last row.
class BlockTensor {
 public:
  BlockTensor(Format format, int64_t n, int64_t k, uint32_t seed, int64_t gap = 0)
      : format_(format), shape_{n, k}, strides_{k + gap * block_elements(format), 1} {
    const int64_t blocks =
        n == 0 ? 0 : (n - 1) * strides_[0] / block_elements(format) + blocks_of_row();
    bytes_.resize(static_cast<size_t>(blocks * block_bytes(format)) + 1);
    std::mt19937 random(seed);
    for (uint8_t& b : bytes_) b = static_cast<uint8_t>(random());
    for (int64_t b = 0; b < blocks; ++b)
      set_scales(bytes_.data() + 1 + b * block_bytes(format), random);
    t_.data = bytes_.data();
    t_.byte_offset = 1;
    t_.device = {1, 0};
    t_.ndim = 2;
    t_.dtype = dtype();
    t_.shape = shape_, t_.strides = strides_;
  }
  BlockTensor(const BlockTensor&) = delete;
  BlockTensor& operator=(const BlockTensor&) = delete;

  const yard_tensor_t* c() const { return &t_; }
  const uint8_t* row(int64_t r) const {
    return bytes_.data() + 1 + r * strides_[0] / block_elements(format_) * block_bytes(format_);
  }
  double at(int64_t r, int64_t i) const {
    const int64_t each = block_elements(format_);
    return element(format_, row(r) + i / each * block_bytes(format_), static_cast<int>(i % each));
  }

 private:
  int64_t blocks_of_row() const { return shape_[1] / block_elements(format_); }
  yard_dtype_t dtype() const {
    switch (format_) {
      case Format::kI8: return {0, 8, 1};
      case Format::kQ8_0: return {0x81, 34, 32};
      case Format::kQ4_0: return {0x82, 18, 32};
      case Format::kQ4_1: return {0x83, 20, 32};
      case Format::kQ4_K: return {0x84, 144, 256};
      case Format::kQ6_K: return {0x85, 210, 256};
    }
    return {};
  }
  // Sets scales to f16 numbers between 1/8 and 1/4, of both signs if the format has signs.
  void set_scales(uint8_t* b, std::mt19937& random) const {
    const auto put = [&](int64_t at, bool negative) {
      b[at] = static_cast<uint8_t>(random());
      b[at + 1] = static_cast<uint8_t>(0x30 | (random() & 3) | (negative ? 0x80 : 0));
    };
    switch (format_) {
      case Format::kI8: return;
      case Format::kQ8_0: return put(0, random() % 2 == 0);
      case Format::kQ4_0: return put(0, random() % 2 == 0);
      case Format::kQ4_1: return put(0, false), put(2, true);
      case Format::kQ4_K: return put(0, false), put(2, random() % 8 == 0);
      case Format::kQ6_K: return put(208, random() % 2 == 0);
    }
  }

  Format format_;
  int64_t shape_[2], strides_[2];
  std::vector<uint8_t> bytes_;
  yard_tensor_t t_{};
};

}  // namespace yard::simd::testing
