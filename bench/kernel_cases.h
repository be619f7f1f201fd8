// SPDX-License-Identifier: Apache-2.0
// The calls on which kernels are compared with PyTorch, other libraries and a copy, and the target
// speeds.
#pragma once

#include <yard/call_spec.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace yard::bench {

// Further sizes of the cases.
inline constexpr int64_t kHeadDim = 128, kVocabulary = 8192, kExperts = 128, kTopExperts = 8,
                         kCacheKeys = 4096;

// Another way to compute the op, such as with PyTorch's calls.
struct Way {
  const char* name;
  std::function<void()> run;
};

// A call with tensors [rows, hidden]. For attention, `rows` counts tokens, or batches of one token
// with a cache of kCacheKeys, and `hidden` covers the heads, each with kHeadDim. The weights of
// linear are [hidden, hidden].
struct KernelCase {
  std::string op, dtype;
  int64_t rows, hidden;
  // The target speeds relative to PyTorch, to a copy, and to other libraries; 0 if there is no
  // target.
  double torch_target = 0, copy_target = 0, direct_target = 0;
  bool packed = false;  // weights are packed beforehand, also by other libraries that can
};

// Returns all cases in the order of the documentation.
std::vector<KernelCase> kernel_cases();

// case_tensors() fills tensors with numbers that stay in range, and fills caches completely.
std::string call_text(const KernelCase& c);
std::unique_ptr<CallTensors> case_tensors(const std::string& text);

std::function<Status()> typed_call(const std::string& op, const CallTensors& data);
// Returns the typed call of linear with an instance that has loaded the weight.
std::function<Status()> packed_linear_call(const CallTensors& data);

}  // namespace yard::bench
