// SPDX-License-Identifier: Apache-2.0
// oneDNN primitives, made once for a shape and used again.
//
// Making one takes as long as normalizing some rows. A Primitive is used by one thread at a time: it owns
// its stream and memory objects, so that a call only sets their pointers. The cache lends it out and takes
// it back; threads that ask for the same shape at once get one each.
#pragma once

#include <dnnl.hpp>
#include <yard/plugin.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace yard::onednn {

enum class Kind : uint8_t { kSoftmax, kLayerNorm, kProduct, kPack };

struct Key {
  Kind kind = Kind::kSoftmax;
  bool scale = false, shift = false;  // of layer_norm; of a product, shift is a bias
  int threads = 0;                    // oneDNN divides the work when a primitive is made
  int64_t rows = 0, width = 0;
  float eps = 0;  // of layer_norm
  // Of a product: [rows, width] times [width, columns]. Strides in elements.
  bool bf16 = false, by_column = false;  // by_column: columns of the right side are dense
  bool packed = false;                   // the right side is in packed_form(), whatever its stride
  bool wide = false;                     // the result is f32, whatever the dtype of the sides
  bool add = false;                      // to what is there
  int64_t columns = 0, left_stride = 0, right_stride = 0, out_stride = 0;
  bool operator==(const Key&) const = default;
};

struct Operands {
  void *out, *x;                            // may be the same, but not of a product
  void *scale = nullptr, *shift = nullptr;  // where the key has them
  void* right = nullptr;                    // of a product
};

const dnnl::engine& cpu_engine();

// The form in which oneDNN wants the right side of a product with this key's dtypes, width and columns, if it may choose. It
// does not depend on the number of rows or threads, so that one packed copy serves all. Throws dnnl::error where there is no
// such product. A primitive of kind kPack copies `x` into it, with the key's stride and direction.
dnnl::memory::desc packed_form(const Key& key);
// As many bytes as it takes, or more.
int64_t most_packed_bytes(const Key& key);
// Whether that is a form of its own, in blocks, and not merely rows.
bool is_blocked(const dnnl::memory::desc& form);

class Primitive {
 public:
  // Throws dnnl::error where oneDNN has none for that key.
  explicit Primitive(const Key& key);
  const Key& key() const noexcept { return key_; }
  // What execute() needs in `scratchpad`.
  size_t scratchpad_bytes() const { return scratchpad_bytes_; }
  // Throws dnnl::error.
  void execute(const Operands& on, void* scratchpad);

 private:
  void add(int argument, const dnnl::memory::desc& form);
  void prepare_softmax(const dnnl::memory::desc& form, const dnnl::primitive_attr& attributes);
  void prepare_layer_norm(const dnnl::memory::desc& form, const dnnl::primitive_attr& attributes);
  void prepare_product(dnnl::primitive_attr attributes);
  void prepare_pack(const dnnl::primitive_attr& attributes);

  Key key_;
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  size_t scratchpad_bytes_ = 0;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> args_;  // the same, as oneDNN takes them
};

class PrimitiveCache {
 public:
  explicit PrimitiveCache(size_t capacity) : capacity_(capacity) { idle_.reserve(capacity + 1); }

  // One that is not in use, from the cache or new. Give it back when done.
  std::unique_ptr<Primitive> take(const Key& key);
  // Keeps it; beyond the capacity the one unused for longest goes.
  void give_back(std::unique_ptr<Primitive> primitive);

  // What all kernels share; never destroyed, as calls may still run while a process ends.
  static PrimitiveCache& shared();
  size_t idle() const;
  uint64_t made() const;

 private:
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Primitive>> idle_;  // longest unused first
  uint64_t made_ = 0;
};

// Waking a thread takes as long as these many multiplications of a product.
inline constexpr double kOperationsPerThread = 1 << 17;

// Runs the primitive of that key (whose thread count is filled in here) with the host's memory as its
// scratchpad. A yard_code_t; fails before anything is written.
int32_t run_primitive(plugin::Call call, Key key, const Operands& on);

}  // namespace yard::onednn
