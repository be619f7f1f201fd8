// SPDX-License-Identifier: Apache-2.0
// The calls on which kernels are measured beside PyTorch, other libraries and a copy, and the speeds that are wanted.
#pragma once

#include <yard/call_spec.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace yard::bench {

// Sizes that a case has beside `rows` and `hidden`.
inline constexpr int64_t kHeadDim = 128, kVocabulary = 8192, kExperts = 128, kTopExperts = 8,
                         kCacheKeys = 4096;

// One way to compute the op by other means, such as PyTorch's calls.
struct Way {
  const char* name;
  std::function<void()> run;
};

// An op on [rows, hidden]. For attention, `rows` are tokens, or batches of one token over a cache of kCacheKeys;
// `hidden` are the heads, of kHeadDim each. linear has weights [hidden, hidden].
struct KernelCase {
  std::string op, dtype;
  int64_t rows, hidden;
  // Wanted speed over PyTorch, over a copy, and over other libraries called directly; 0 where none is set.
  double torch_target = 0, copy_target = 0, direct_target = 0;
  bool packed = false;  // weights that were loaded before, here and in other libraries that can
};

// All, in the order of the documentation.
std::vector<KernelCase> kernel_cases();

// The call as text; and its tensors, with numbers that stay in range, and with caches that are full.
std::string call_text(const KernelCase& c);
std::unique_ptr<CallTensors> case_tensors(const std::string& text);

// The typed call, as a program would make it.
std::function<Status()> typed_call(const std::string& op, const CallTensors& data);
// That of linear, with an instance that has loaded the weight.
std::function<Status()> packed_linear_call(const CallTensors& data);

}  // namespace yard::bench
