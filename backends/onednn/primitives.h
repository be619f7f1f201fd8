// SPDX-License-Identifier: Apache-2.0
// Makes oneDNN primitives once per shape and reuses them.
//
// Making a primitive takes as long as normalizing some rows. A Primitive owns its stream and memory
// objects, so that a call only sets their pointers, and one thread uses it at a time. The cache
// lends a primitive and takes it back; threads that ask for one shape at once each get their own.
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
  bool scale = false, shift = false;  // used by layer_norm; for a product, `shift` is a bias
  int threads = 0;                    // oneDNN divides the work when a primitive is made
  int64_t rows = 0, width = 0;
  float eps = 0;  // used by layer_norm
  // A product is [rows, width] * [width, columns]. Strides are in elements.
  bool bf16 = false, by_column = false;  // by_column: columns of the right side are dense
  bool packed = false;                   // the right side is in packed_form(), whatever its stride
  bool wide = false;                     // the result is f32, whatever the dtype of the sides
  bool add = false;                      // adds to the output instead of replacing it
  int64_t columns = 0, left_stride = 0, right_stride = 0, out_stride = 0;
  bool operator==(const Key&) const = default;
};

struct Operands {
  void *out, *x;                            // may be equal, except for a product
  void *scale = nullptr, *shift = nullptr;  // set if the key has them
  void* right = nullptr;                    // right side of a product
};

const dnnl::engine& cpu_engine();

// Returns the form that oneDNN prefers for the right side of a product with this key's dtypes,
// width and columns. The form does not depend on the number of rows or threads, so one packed copy
// serves all. Throws dnnl::error if there is no such product. A primitive of kind kPack copies `x`
// into this form, reading it with the key's stride and direction.
dnnl::memory::desc packed_form(const Key& key);
// Returns an upper limit of the bytes of the packed form.
int64_t most_packed_bytes(const Key& key);
// Returns whether the form has blocks, and not merely rows.
bool is_blocked(const dnnl::memory::desc& form);

class Primitive {
 public:
  // Throws dnnl::error if oneDNN has no primitive for the key.
  explicit Primitive(const Key& key);
  const Key& key() const noexcept { return key_; }
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
  std::vector<dnnl_exec_arg_t> args_;  // memories_ in the form that oneDNN takes
};

class PrimitiveCache {
 public:
  explicit PrimitiveCache(size_t capacity) : capacity_(capacity) { idle_.reserve(capacity + 1); }

  // Returns an idle or new primitive. Pass it to give_back() afterwards.
  std::unique_ptr<Primitive> take(const Key& key);
  // Keeps the primitive. If the cache is full, destroys the primitive that was unused for longest.
  void give_back(std::unique_ptr<Primitive> primitive);

  // Returns the cache that all kernels share. It is never destroyed, because calls may still run
  // while a process ends.
  static PrimitiveCache& shared();
  size_t idle() const;
  uint64_t made() const;

 private:
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Primitive>> idle_;  // unused for longest first
  uint64_t made_ = 0;
};

// Waking a thread takes as long as this many multiplications of a product.
inline constexpr double kOperationsPerThread = 1 << 17;

// Sets the key's thread count and runs its primitive, with the host's memory as its scratchpad.
// Returns a yard_code_t. If it fails, nothing has been written.
int32_t run_primitive(plugin::Call call, Key key, const Operands& on);

}  // namespace yard::onednn
