// SPDX-License-Identifier: Apache-2.0
// The op that `yard bench dispatch` calls, and the ways to call it. The kernels do nothing, so that
// only dispatch is measured.
#pragma once

#include <yard/c.h>
#include <yard/yard.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace yard::tool {

inline constexpr Op<void(Out, In, In, float)> bench_noop{"bench_noop"};
inline constexpr Op<void(Out, InOut, In, In, float)> bench_noop_2{"bench_noop_2"};

// Calls a path `n` times.
using Loop = std::function<void(int64_t n)>;

struct Path {
  const char* key;      // in JSON, without the suffix _ns
  const char* meaning;  // shown to people
  Loop loop;
  int64_t batch;  // calls between two reads of the clock
};

// A tensor class of a program. Each call makes a view of it.
struct OwnTensor {
  float* data;
  std::vector<int64_t> sizes;
};
inline TensorView yard_view(const OwnTensor& t) { return {t.data, DType::f32, t.sizes}; }

// The arguments of one thread and the ways to call bench_noop with them.
class BenchCall {
 public:
  // Registers the ops with eight kernels each on the shared runtime. Call this once.
  static Status prepare();

  BenchCall();
  // Returns all rows of `yard bench dispatch` in their order, raw first. The paths borrow this
  // object.
  std::vector<Path> paths();
  Path raw();
  Path dynamic();

 private:
  struct Form {
    TensorView out, x, weight;
  };
  Path one_form(const char* key, const char* meaning, const Form& form);
  Path in_rotation(const char* key, const char* meaning, std::vector<Form> forms);

  static constexpr int64_t kRows = 64, kHidden = 64, kStride = 128;
  alignas(64) float x_[kRows * kStride] = {}, out_[kRows * kStride] = {}, weight_[kStride] = {};
  const Form usual_;
  const OwnTensor own_out_{out_, {8, kHidden}}, own_x_{x_, {8, kHidden}},
      own_weight_{weight_, {kHidden}};
  // The memory of a growing sequence. The kernels do nothing, so it is never touched.
  static constexpr int64_t kLongest = 65536;
  const std::unique_ptr<float[]> long_x_{new float[kLongest * kHidden]};
  const std::unique_ptr<float[]> long_out_{new float[kLongest * kHidden]};
  const Scope scope_ = Scope().strict();
  std::optional<Frozen<Out, In, In, float>> frozen_;
  std::optional<Bound<Out, In, In, float>> bound_;
  yard_op_ref_t* packed_ = nullptr;
  yard_value_t args_[4] = {};
  Options cold_, with_record_;
  ResultRecord record_;
};

// Registers a thousand kernels of ten other ops. remove_other_kernels() removes them.
Status add_other_kernels();
Status remove_other_kernels();

}  // namespace yard::tool
