// SPDX-License-Identifier: Apache-2.0
// Bytes that identify a call: two calls have the same if their CallSpecs are the same. Quicker to make than the text.
#pragma once

#include <yard/plugin.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "op/call_spec.h"
#include "op/program.h"

namespace yard::op {

// Keeps its memory from call to call.
class CallKey {
 public:
  // The key of a call, without its labels. `args` fit the program.
  void set(const Program& program, const yard_value_t* args, uint32_t flags);
  // More that distinguishes calls.
  void add(uint64_t word);
  void add(std::string_view text);
  void add(const Labels& labels);

  std::string_view bytes() const noexcept { return {memory_.data(), used_}; }

 private:
  class Writer;
  std::string memory_;  // never shorter than before
  size_t used_ = 0;
};

// Of such keys, which are long: quicker than std::hash.
struct CallKeyHash {
  using is_transparent = void;
  size_t operator()(std::string_view key) const noexcept;
};

}  // namespace yard::op
