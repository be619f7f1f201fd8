// SPDX-License-Identifier: Apache-2.0
// attention.full and .causal: oneDNN's products with an online softmax between blocks of keys.
//
// Keys and values are packed once, block by block, for all queries and all heads that share them,
// so memory is linear in the sequence. Then each thread takes blocks of queries, the longest first.
// For each block of keys it multiplies queries with keys, turns scores into weights in the inputs'
// dtype, and adds weights times values to results in f32.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "kernels.h"
#include "primitives.h"
#include "process.h"
#include "weigh.h"

namespace yard::onednn {
namespace {

constexpr int64_t kQueryBlock = 128, kKeyBlock = 512;  // queries and keys per block
constexpr int64_t kLine = 64;                          // alignment in bytes

int64_t blocks_of(int64_t count, int64_t each) { return (count + each - 1) / each; }
int64_t aligned_bytes(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }
int64_t item_bytes(bool bf16) { return bf16 ? 2 : 4; }
int64_t packed_bytes(bool bf16, int64_t width, int64_t columns) {
  Key key;
  key.bf16 = bf16, key.width = width, key.columns = columns;
  return most_packed_bytes(key);
}
int64_t most_threads() {
  return std::max<int64_t>(1, static_cast<int64_t>(std::thread::hardware_concurrency()));
}

// The sizes of a call, and how the call divides its workspace.
struct Shape {
  bool bf16, causal;
  int64_t batch, seq, heads, kv_seq, kv_heads, dim;
  int64_t key_blocks, query_blocks;
  int64_t block_bytes;   // of a packed block of keys or of values
  int64_t worker_bytes;  // scores, weights, results, maxima, sums and queries of a block

  Shape(Tensor query, Tensor key, bool is_causal)
      : bf16(query.dtype() == YARD_BF16),
        causal(is_causal),
        batch(query.size(0)),
        seq(query.size(1)),
        heads(query.size(2)),
        kv_seq(key.size(1)),
        kv_heads(key.size(2)),
        dim(query.size(3)),
        key_blocks(blocks_of(kv_seq, kKeyBlock)),
        query_blocks(blocks_of(seq, kQueryBlock)),
        block_bytes(packed_bytes(bf16, dim, std::min(kKeyBlock, kv_seq))),
        worker_bytes(aligned_bytes(kQueryBlock * kKeyBlock * 4) +
                     aligned_bytes(kQueryBlock * kKeyBlock * item_bytes(bf16)) +
                     aligned_bytes(kQueryBlock * dim * 4) + aligned_bytes(kQueryBlock * 2 * 4) +
                     aligned_bytes(kQueryBlock * dim * item_bytes(bf16))) {}
  int64_t pairs() const { return batch * kv_heads * key_blocks; }
  int64_t keys_in(int64_t block) const { return std::min(kKeyBlock, kv_seq - block * kKeyBlock); }
  int64_t queries_in(int64_t block) const {
    return std::min(kQueryBlock, seq - block * kQueryBlock);
  }
  // Returns the end of the keys that query `i` sees.
  int64_t end_of(int64_t i) const { return causal ? kv_seq - seq + i + 1 : kv_seq; }
};

int64_t sequence_stride(Tensor t) { return t.size(1) > 1 ? t.stride(1) : t.size(3); }
char* begin_of(Tensor t, int64_t b, int64_t i, int64_t head) {
  return t.data<char>() +
         (b * t.stride(0) + i * t.stride(1) + head * t.stride(2)) * yard_unit_bytes(t.c()->dtype);
}

// Takes a primitive from the cache at its first use and gives it back at the end.
class Borrowed {
 public:
  Borrowed() = default;
  ~Borrowed() {
    if (primitive_ != nullptr) PrimitiveCache::shared().give_back(std::move(primitive_));
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  void run(const Key& key, const Operands& on, std::vector<char>& scratchpad) {
    if (primitive_ == nullptr) primitive_ = PrimitiveCache::shared().take(key);
    const size_t bytes = primitive_->scratchpad_bytes();
    if (scratchpad.size() < bytes + kLine) scratchpad.resize(bytes + kLine);
    const auto at = reinterpret_cast<uintptr_t>(scratchpad.data());
    primitive_->execute(on, reinterpret_cast<void*>((at + kLine - 1) / kLine * kLine));
  }

 private:
  std::unique_ptr<Primitive> primitive_;
};

class Attention {
 public:
  Attention(const Shape& shape, Tensor out, Tensor query, Tensor key, Tensor value, double scale,
            char* workspace)
      : s_(shape),
        out_(out),
        query_(query),
        key_(key),
        value_(value),
        scale_(
            static_cast<float>(scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(shape.dim)))),
        packed_(workspace) {}

  // Packs keys and values. Returns false if a value is not finite, because a product cannot leave
  // out such a value when its weight is 0.
  bool pack(Call call, int64_t workers) {
    std::atomic<int64_t> next{0};
    std::atomic<bool> finite{true};
    call.parallel_for(workers, 1, [&](int64_t, int64_t) {
      const ThreadCount one(nullptr, 1);
      Borrowed keys[2], values[2];  // for whole blocks, and for the last block
      std::vector<char> scratchpad;
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < s_.pairs();) {
        const int64_t block = i % s_.key_blocks, head = i / s_.key_blocks % s_.kv_heads,
                      b = i / s_.key_blocks / s_.kv_heads, count = s_.keys_in(block);
        char* const from = begin_of(value_, b, block * kKeyBlock, head);
        if (!all_finite(s_.bf16, from, count, s_.dim, sequence_stride(value_))) {
          finite = false;
          return;
        }
        const bool last = count < kKeyBlock;
        values[last].run(pack_key(false, count, sequence_stride(value_)), {values_at(i), from},
                         scratchpad);
        keys[last].run(pack_key(true, count, sequence_stride(key_)),
                       {keys_at(i), begin_of(key_, b, block * kKeyBlock, head)}, scratchpad);
      }
    });
    return finite;
  }

  void attend(Call call, int64_t workers) {
    std::atomic<int64_t> next{0}, worker{0};
    const int64_t units = s_.batch * s_.heads * s_.query_blocks;
    call.parallel_for(workers, 1, [&](int64_t, int64_t) {
      const int64_t mine = worker.fetch_add(1, std::memory_order_relaxed);
      if (mine >= workers) return;
      const ThreadCount one(nullptr, 1);
      Worker w(packed_ + 2 * s_.pairs() * s_.block_bytes + mine * s_.worker_bytes, s_);
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < units;) {
        const int64_t of = i % (s_.batch * s_.heads);
        one_block(w, of / s_.heads, of % s_.heads, s_.query_blocks - 1 - i / (s_.batch * s_.heads));
      }
    });
  }

 private:
  struct Worker {
    Worker(char* at, const Shape& s)
        : scores(reinterpret_cast<float*>(at)),
          weights(at + aligned_bytes(kQueryBlock * kKeyBlock * 4)),
          result(reinterpret_cast<float*>(
              weights + aligned_bytes(kQueryBlock * kKeyBlock * item_bytes(s.bf16)))),
          top(result + aligned_bytes(kQueryBlock * s.dim * 4) / 4),
          sum(top + kQueryBlock),
          queries(reinterpret_cast<char*>(top) + aligned_bytes(kQueryBlock * 2 * 4)) {}
    float* scores;
    char* weights;
    float *result, *top, *sum;
    char* queries;
    // Indexed by whether there are fewer queries, and fewer keys, than in a whole block.
    Borrowed multiply[2][2], add[2][2];
    std::vector<char> scratchpad;
  };

  char* keys_at(int64_t pair) const { return packed_ + 2 * pair * s_.block_bytes; }
  char* values_at(int64_t pair) const { return keys_at(pair) + s_.block_bytes; }
  // Keys are the columns of their product, values the rows.
  Key pack_key(bool by_column, int64_t count, int64_t stride) const {
    Key key;
    key.kind = Kind::kPack, key.threads = 1, key.bf16 = s_.bf16, key.wide = true, key.packed = true;
    key.by_column = by_column, key.right_stride = stride;
    key.width = by_column ? s_.dim : count, key.columns = by_column ? count : s_.dim;
    return key;
  }
  // Rows have no gaps, because oneDNN's products of other rows are slow.
  Key product_key(int64_t rows, int64_t width, int64_t columns) const {
    Key key;
    key.kind = Kind::kProduct, key.threads = 1, key.bf16 = s_.bf16, key.wide = true;
    key.packed = true, key.rows = rows, key.width = width, key.columns = columns;
    key.left_stride = width, key.out_stride = columns;
    return key;
  }

  void one_block(Worker& w, int64_t b, int64_t head, int64_t block) const {
    const int64_t first_query = block * kQueryBlock, queries = s_.queries_in(block);
    const int64_t first_pair = (b * s_.kv_heads + head / (s_.heads / s_.kv_heads)) * s_.key_blocks;
    const int64_t end = s_.end_of(first_query + queries - 1);
    std::fill_n(w.result, queries * s_.dim, 0.0f);
    std::fill_n(w.top, queries, -std::numeric_limits<float>::infinity());
    std::fill_n(w.sum, queries, 0.0f);
    const int64_t row_bytes = s_.dim * item_bytes(s_.bf16);
    for (int64_t q = 0; q < queries; ++q)
      std::memcpy(w.queries + q * row_bytes, begin_of(query_, b, first_query + q, head),
                  static_cast<size_t>(row_bytes));
    for (int64_t k = 0; k * kKeyBlock < end; ++k) {
      const int64_t keys = s_.keys_in(k);
      Operands scores{w.scores, w.queries};
      scores.right = keys_at(first_pair + k);
      w.multiply[queries < kQueryBlock][keys < kKeyBlock].run(product_key(queries, s_.dim, keys),
                                                              scores, w.scratchpad);
      for (int64_t q = 0; q < queries; ++q) {
        const int64_t seen =
            std::clamp<int64_t>(s_.end_of(first_query + q) - k * kKeyBlock, 0, keys);
        weigh_row(s_.bf16, w.scores + q * keys, w.weights + q * keys * item_bytes(s_.bf16), seen,
                  keys, scale_, w.top[q], w.sum[q], w.result + q * s_.dim, s_.dim);
      }
      Operands sums{w.result, w.weights};
      sums.right = values_at(first_pair + k);
      Key add = product_key(queries, keys, s_.dim);
      add.add = true;
      w.add[queries < kQueryBlock][keys < kKeyBlock].run(add, sums, w.scratchpad);
    }
    for (int64_t q = 0; q < queries; ++q)
      finish_row(s_.bf16, w.result + q * s_.dim, w.sum[q], s_.dim,
                 begin_of(out_, b, first_query + q, head));
  }

  const Shape& s_;
  Tensor out_, query_, key_, value_;
  float scale_;
  char* packed_;
};

int32_t attend(Call call, Tensor out, Tensor query, Tensor key, Tensor value, double scale,
               bool causal) {
  if (forked()) return call.fail(YARD_DECLINED, "oneDNN's threads do not exist in a forked child");
  if (out.numel() == 0) return YARD_OK;
  const Shape shape(query, key, causal);
  const yard_host_t* host = call.c()->host;
  const int64_t threads =
      host != nullptr && host->concurrency != nullptr ? host->concurrency(host->self) : 1;
  const auto workers = [&](int64_t units) {
    return std::clamp<int64_t>(std::min(threads, units), 1, most_threads());
  };
  Attention job(shape, out, query, key, value, scale, call.workspace<char>().data());
  try {
    if (!job.pack(call, workers(shape.pairs())))
      return call.fail(YARD_DECLINED, "a value is not finite");
  } catch (const dnnl::error& e) {
    if (e.status != dnnl_unimplemented) throw;
    return call.fail(YARD_DECLINED, "oneDNN cannot pack such keys: %s", e.what());
  }
  job.attend(call, workers(shape.batch * shape.heads * shape.query_blocks));
  return YARD_OK;
}

}  // namespace

int64_t attention_workspace(Tensor, Tensor query, Tensor key, Tensor, Tensor, double) {
  if (query.numel() == 0) return 0;
  const Shape s(query, key, false);
  return 2 * s.pairs() * s.block_bytes + most_threads() * s.worker_bytes;
}

int32_t attention_full(Call call, Tensor out, Tensor query, Tensor key, Tensor value, Tensor,
                       double scale) {
  return attend(call, out, query, key, value, scale, false);
}

int32_t attention_causal(Call call, Tensor out, Tensor query, Tensor key, Tensor value, Tensor,
                         double scale) {
  return attend(call, out, query, key, value, scale, true);
}

}  // namespace yard::onednn
