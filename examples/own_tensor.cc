// SPDX-License-Identifier: Apache-2.0
// Passes the program's own tensor class to ops.
#include <yard/yard.h>

#include <vector>

#include "check.h"

// [class]
namespace acme {

class Tensor {
 public:
  explicit Tensor(std::vector<int64_t> sizes, float value = 0) : sizes_(std::move(sizes)) {
    int64_t n = 1;
    for (int64_t s : sizes_) n *= s;
    data_.assign(size_t(n), value);
  }
  const float* data() const { return data_.data(); }
  const std::vector<int64_t>& sizes() const { return sizes_; }

 private:
  std::vector<int64_t> sizes_;
  std::vector<float> data_;
};

// In the namespace of the class: it is found by its argument.
yard::TensorView yard_view(const Tensor& t) {
  return yard::TensorView(t.data(), yard::DType::f32, t.sizes());
}

}  // namespace acme
// [/class]

// [kept]
namespace acme {

// A tensor that keeps its view. A copy would need a view of its own data.
class Buffer {
 public:
  explicit Buffer(std::vector<int64_t> sizes) : tensor_(std::move(sizes)) {}
  Buffer(const Buffer&) = delete;
  const Tensor& tensor() const { return tensor_; }
  const yard::TensorView& view() const { return view_; }

 private:
  Tensor tensor_;
  yard::TensorView view_ = yard_view(tensor_);
};

const yard::TensorView& yard_view(const Buffer& b) { return b.view(); }

}  // namespace acme
// [/kept]

inline constexpr yard::Op<void(yard::Out, yard::In, yard::In, float)> rms_norm{"rms_norm"};

int main() {
  // [call]
  acme::Tensor x({2, 4}, 3.0f), weight({4}, 0.5f), out({2, 4});
  rms_norm(out, x, weight, 1e-6f).or_throw();
  auto fast = yard::bind(rms_norm, out, x, weight).value();
  fast(out, x, weight, 1e-6f).or_throw();
  // [/call]
  CHECK(near(out.data()[7], 0.5));
  CHECK(!fast.kernel().empty());
  CHECK(yard::explain(rms_norm, out, x, weight, 1e-6f).value().selected == fast.kernel());
  acme::Buffer kept({2, 4});
  rms_norm(kept, x, weight, 1e-6f).or_throw();
  CHECK(near(kept.tensor().data()[7], 0.5));
  // The program's tensors and plain views can be mixed.
  const std::vector<float> constant(4, 2.0f);
  rms_norm(out, x, yard::view(constant, {4}), 1e-6f).or_throw();
  CHECK(near(out.data()[0], 2));
  CHECK(!rms_norm(out, x, x, 1e-6f).ok());  // checked like any other call
}
