// SPDX-License-Identifier: Apache-2.0
// Calls under two sets of rules: the kernel of each before and after.
#pragma once

#include <yard/call_spec.h>
#include <yard/runtime.h>

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace yard::tool {

// A call, and how often it was made.
struct CountedCall {
  std::string op, call;  // the canonical CallSpec
  uint64_t count = 1;
};

// Adds to a count, without overflow.
inline void add_count(uint64_t& sum, uint64_t n) {
  sum = n > std::numeric_limits<uint64_t>::max() - sum ? std::numeric_limits<uint64_t>::max()
                                                       : sum + n;
}

// Reads CallSpecs. The message of an error names the CallSpec.
Result<std::vector<CountedCall>> read_calls(const Runtime& runtime,
                                            const std::vector<std::string>& texts);
// Reads a file with one CallSpec on each line, which may follow a count and a tab. Blank lines and
// lines that begin with # are ignored. Counts of equal calls are added. The error names the first
// invalid line, and its notes the others. With `unknown`, calls of unknown ops are counted there
// instead.
struct UnknownOp {
  uint64_t calls = 0;
  std::string message;  // "op 'sofmax' is not known; did you mean 'softmax'?"
};
using UnknownOps = std::map<std::string, UnknownOp>;  // by name
Result<std::vector<CountedCall>> read_trace(const Runtime& runtime, const std::string& path,
                                            UnknownOps* unknown = nullptr);
// Writes "yard: calls.txt: skipped 12 calls: op 'acme_norm' is not known" to stderr for each op.
void print_unknown_ops(const std::string& path, const UnknownOps& unknown);

// A call and its kernels, which are empty where no kernel can run it.
struct Move {
  CountedCall what;
  std::string from, to;
  bool moved() const { return from != to; }
  bool lost() const { return !from.empty() && to.empty(); }
};
std::vector<Move> compare(const Runtime& before, const Runtime& after,
                          const std::vector<CountedCall>& calls);

// The name of a kernel for people, also if there is none.
inline std::string kernel_text(const std::string& id) { return id.empty() ? "none" : id; }

}  // namespace yard::tool
