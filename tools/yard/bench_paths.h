// SPDX-License-Identifier: Apache-2.0
// The op that `yard bench dispatch` calls, and the ways there are to call it. Its kernels do nothing, so
// that what is measured is the way to them.
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

// Runs a path `n` times.
using Loop = std::function<void(int64_t n)>;

// One way to reach the kernel.
struct Path {
  const char* key;      // in JSON, without _ns
  const char* meaning;  // for people
  Loop loop;
  int64_t batch;  // calls between two looks at the clock
};

// Arguments of one thread: f32[8,64], f32[64].
class BenchCall {
 public:
  // Registers bench_noop with eight kernels on the shared runtime, unless that has been done.
  static Status prepare();

  BenchCall();
  // raw, static, bound, dynamic, varied, scoped, packed, scope, cold. Borrow this object.
  std::vector<Path> paths();
  Path raw();
  Path dynamic();

 private:
  alignas(64) float x_[8 * 64] = {}, out_[8 * 64] = {}, weight_[64] = {};
  TensorView tx_, tout_, tweight_;
  TensorView few_x_, few_out_;  // fewer rows of the same
  const Scope scope_ = Scope().strict();
  std::optional<Frozen<Out, In, In, float>> frozen_;
  std::optional<Bound<Out, In, In, float>> bound_;
  yard_op_ref_t* packed_ = nullptr;
  yard_value_t args_[4] = {};
  Options cold_;
};

// A thousand kernels of ten other ops, there until remove.
Status add_other_kernels();
Status remove_other_kernels();

}  // namespace yard::tool
