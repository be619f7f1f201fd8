// SPDX-License-Identifier: Apache-2.0
// Finds the kernel of each call under two sets of rules.
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

struct CountedCall {
  std::string op, call;  // `call` is the canonical CallSpec
  uint64_t count = 1;
};

// Adds without overflow; the largest number stays.
inline void add_count(uint64_t& sum, uint64_t n) {
  sum = n > std::numeric_limits<uint64_t>::max() - sum ? std::numeric_limits<uint64_t>::max()
                                                       : sum + n;
}

// Parses CallSpecs. An error names the CallSpec.
Result<std::vector<CountedCall>> read_calls(const Runtime& runtime,
                                            const std::vector<std::string>& texts);
// Reads a file with a CallSpec on each line, optionally after a count and a tab. Ignores blank
// lines and lines that begin with #, and adds up the counts of equal calls. The error names the
// first invalid line, and its notes name the others. If `unknown` is given, calls of unknown ops
// are counted there and are not errors.
struct UnknownOp {
  uint64_t calls = 0;
  std::string message;  // "op 'sofmax' is not known; did you mean 'softmax'?"
};
using UnknownOps = std::map<std::string, UnknownOp>;  // by name
Result<std::vector<CountedCall>> read_trace(const Runtime& runtime, const std::string& path,
                                            UnknownOps* unknown = nullptr);
// Writes "yard: calls.txt: skipped 12 calls: op 'acme_norm' is not known" to stderr for each op.
void print_unknown_ops(const std::string& path, const UnknownOps& unknown);

// A call with its kernels before and after. The name is empty if no kernel can run the call.
struct Move {
  CountedCall what;
  std::string from, to;
  bool moved() const { return from != to; }
  bool lost() const { return !from.empty() && to.empty(); }
};
std::vector<Move> compare(const Runtime& before, const Runtime& after,
                          const std::vector<CountedCall>& calls);

inline std::string kernel_text(const std::string& id) { return id.empty() ? "none" : id; }

}  // namespace yard::tool
