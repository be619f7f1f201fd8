// SPDX-License-Identifier: Apache-2.0
// Calls under two sets of rules: what each would run before and after.
#pragma once

#include <yard/call_spec.h>
#include <yard/runtime.h>

#include <cstdint>
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

// CallSpecs as they were given. Of an error the message says which.
Result<std::vector<CountedCall>> read_calls(const Runtime& runtime,
                                            const std::vector<std::string>& texts);
// A file with one CallSpec on a line, after a count and a tab if there is one; blank lines and those that
// begin with # say nothing. A call that comes again is counted up. The error has the first line that is wrong,
// and the others as notes.
Result<std::vector<CountedCall>> read_trace(const Runtime& runtime, const std::string& path);

// A call and its kernels; empty: no kernel can run it.
struct Move {
  CountedCall what;
  std::string from, to;
  bool moved() const { return from != to; }
  bool lost() const { return !from.empty() && to.empty(); }
};
std::vector<Move> compare(const Runtime& before, const Runtime& after,
                          const std::vector<CountedCall>& calls);

// How people read the name of a kernel that may not be there.
inline std::string kernel_text(const std::string& id) { return id.empty() ? "none" : id; }

}  // namespace yard::tool
