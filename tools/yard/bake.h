// SPDX-License-Identifier: Apache-2.0
// Turns recorded calls into one kernel for each op, as rules and as a header.
#pragma once

#include <yard/runtime.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config_moves.h"

namespace yard::tool {

// The calls of one op.
struct BakedOp {
  std::string op;
  std::string kernel;  // that served most of them; of equals the first by name
  uint64_t calls = 0, served = 0;
  std::vector<std::pair<std::string, uint64_t>> kernels;  // and how many each served, most first
  std::vector<CountedCall> classes;                       // most frequent first
  std::vector<std::string> unable;  // calls that another kernel served and this one cannot

  bool from_plugin = false;  // its kernel exists only after a plugin has been opened

  bool conflict() const { return kernels.size() > 1; }
};

struct Baked {
  std::string source;             // the file the calls come from
  std::vector<BakedOp> ops;       // by name
  std::vector<CountedCall> lost;  // calls that no kernel can run
  uint64_t calls = 0;

  bool conflict() const {
    for (const BakedOp& op : ops)
      if (op.conflict()) return true;
    return false;
  }
};

// The kernels that would serve the calls. `at_start`: the kernels that exist when a program reads its rules.
Baked bake(const Runtime& runtime, const Listing& at_start, const std::vector<CountedCall>& calls,
           const std::string& source);

// Equal calls give equal text.
std::string bake_yaml(const Baked& baked);
// `name_space` has been checked.
std::string bake_header(const Baked& baked, const std::string& name_space);
// Whether it is a valid namespace: words with :: between them.
bool is_namespace(const std::string& text);

}  // namespace yard::tool
