// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels of attention: tensors, and which keys a query sees.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels.h"
#include "pairs.h"
#include "rows.h"
#include "scalars.h"

namespace yard::simd {

// The longest head that fits the buffers of a piece of work.
inline constexpr int64_t kMostDim = 256;

inline int64_t index_at(Tensor t, int64_t offset) noexcept {
  const char* const p = t.data<char>();
  return t.dtype() == YARD_I64 ? read<int64_t>(p + offset * 8) : read<int32_t>(p + offset * 4);
}

inline float scale_of(double scale, int64_t dim) noexcept {
  return static_cast<float>(scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(dim)));
}

// Checks that every length is in [0, most]. The error names the first that is not.
inline int32_t check_lengths(Call call, const char* op, Tensor lengths, int64_t most) noexcept {
  for (int64_t b = 0; b < lengths.size(0); ++b) {
    const int64_t length = index_at(lengths, b * lengths.stride(0));
    if (length < 0 || length > most)
      return call.fail(YARD_CALLER,
                       "%s: invalid length: expected 0 <= length <= %lld, got %lld for batch %lld",
                       op, static_cast<long long>(most), static_cast<long long>(length),
                       static_cast<long long>(b));
  }
  return YARD_OK;
}

// Copies of keys and values in bf16 for products of pairs, in blocks of kKeys keys of one head. A
// block holds rows of keys, then the transposed values in pairs of keys. Rows of a head can lie so
// far apart in a tensor that each one needs a page, and their lines share few sets of a cache.
struct PackedHeads {
  static constexpr int64_t kKeys = 64;
  int64_t heads = 0, dim = 0, blocks = 0, count = 0;  // of keys; blocks of a head, and of all heads
  char* data = nullptr;

  PackedHeads() = default;
  // Has no blocks if so few queries read the keys that copies would not pay off.
  PackedHeads(Tensor query, Tensor key) noexcept : heads(key.size(2)), dim(key.size(3)) {
    constexpr int64_t kQueries = 64;
    const int64_t rows = heads > 0 ? query.size(1) * (query.size(2) / heads) : 0;
    if (rows <= kQueries) return;
    blocks = (key.size(1) + kKeys - 1) / kKeys;
    count = key.size(0) * heads * blocks;
  }
  int64_t value_rows() const noexcept { return (dim + 15) / 16 * 16; }
  int64_t block_bytes() const noexcept { return kKeys * 2 * (dim + value_rows()); }
  int64_t bytes() const noexcept {
    return count * (block_bytes() + static_cast<int64_t>(sizeof(uint32_t)));
  }
  char* keys(int64_t block) const noexcept { return data + block * block_bytes(); }
  char* values(int64_t block) const noexcept { return keys(block) + kKeys * 2 * dim; }
  // Whether all values of a block are finite. If not, values of weight 0 must be left out.
  uint32_t& finite(int64_t block) const noexcept {
    return reinterpret_cast<uint32_t*>(data + count * block_bytes())[block];
  }
  int64_t block_of(int64_t batch, int64_t head, int64_t key) const noexcept {
    return (batch * heads + head) * blocks + key / kKeys;
  }
};

struct Attention {
  Tensor out, query, key, value, mask;
  float scale;
  uint32_t dtype;
  Tensor sinks{nullptr}, lengths{nullptr};
  bool causal = false;
  int64_t window = 0;                   // 0 means no window
  const PairProducts* pairs = nullptr;  // set if bf16 is multiplied in pairs
  PackedHeads packed{};                 // has data if pairs come from copies

  struct Range {
    int64_t first, last;
  };
  // Returns the keys that query i of batch b sees.
  Range visible(int64_t b, int64_t i) const noexcept {
    int64_t last = key.size(1);
    if (lengths) last = index_at(lengths, b * lengths.stride(0));
    if (causal) last += i + 1 - query.size(1);
    return {window > 0 && window < last ? last - window : 0, last};
  }
};

// The division of a call over a cache. It depends only on the call, and so do results.
struct DecodeSplit {
  static constexpr int64_t kTogether = 4;  // most units that pass over the keys together
  static constexpr int64_t kFarBytes = 2048;
  static constexpr int64_t kPieces = 64;    // pieces that are enough for all threads
  static constexpr int64_t kPartKeys = 64;  // least keys in a part

  int64_t units = 0;            // groups of up to four query heads of one key head, per batch
  int64_t together = 1;         // units that pass over the keys together
  int64_t parts = 1, keys = 0;  // parts of the cache, and keys per part
  int64_t width = 0;            // of a saved row; a whole number of pairs of vectors of any width

  DecodeSplit() = default;
  // `longest` is the number of keys in the longest row of the cache.
  DecodeSplit(Tensor query, Tensor key, int64_t longest) noexcept
      : keys(std::max<int64_t>(longest, 1)), width((query.size(2) + 127) / 128 * 128) {
    const int64_t key_heads = key.size(2);
    if (key_heads == 0) return;
    units = key_heads * ((query.size(1) / key_heads + 3) / 4);
    // If rows of a head lie far apart, several heads share the lookup of each page.
    if (key.stride(1) * (key.c()->dtype.bits / 8) >= kFarBytes) together = kTogether;
    parts = most_parts(query.size(0), longest);
    if (parts == 1) return;
    keys = ((longest + parts - 1) / parts + 31) / 32 * 32;  // whole blocks
    parts = (longest + keys - 1) / keys;
  }
  int64_t groups() const noexcept { return (units + together - 1) / together; }
  int64_t most_parts(int64_t batches, int64_t longest) const noexcept {
    const int64_t pieces = std::max<int64_t>(batches * groups(), 1);
    return std::clamp<int64_t>((kPieces + pieces - 1) / pieces, 1,
                               std::max<int64_t>(longest / kPartKeys, 1));
  }
  // Returns the bytes that parts need for any lengths up to the capacity.
  int64_t most_bytes(int64_t batches, int64_t capacity) const noexcept {
    const int64_t most = most_parts(batches, capacity);
    return most == 1 ? 0 : batches * units * most * 4 * (width + 2) * 4;
  }
};

// A call of attention with one query for each head of each batch, over keys and values in a cache.
struct Decode {
  static constexpr int kTogether = DecodeSplit::kTogether;
  Tensor out, query, key, value, mask, lengths;
  float scale;
  Tensor table{nullptr};  // of blocks; if absent, the cache has a batch dimension
  DecodeSplit split{};
  float* partials = nullptr;  // results of parts, if there are several

  // Returns the partial results of a unit: four rows, each followed by its maximum and sum.
  float* partial(int64_t b, int64_t unit, int64_t part) const noexcept {
    return partials + ((b * split.units + unit) * split.parts + part) * 4 * (split.width + 2);
  }

  // Returns key or value j of batch b and key head g.
  const char* at(Tensor cache, int64_t b, int64_t j, int64_t g) const noexcept {
    if (table) {
      const int64_t block = cache.size(1);
      b = index_at(table, b * table.stride(0) + j / block * table.stride(1));
      j %= block;
    }
    const int64_t offset = b * cache.stride(0) + j * cache.stride(1) + g * cache.stride(2);
    return cache.data<char>() + offset * (cache.c()->dtype.bits / 8);
  }
};

}  // namespace yard::simd
