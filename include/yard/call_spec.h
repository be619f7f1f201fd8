// SPDX-License-Identifier: Apache-2.0
// Calls read from their text form, as plain data with nothing left out.
//
// A CallSpec (docs/reference/call_spec.md) says only what is not the default. Reading it against the
// op's schema fills in the rest: absent optionals, scalar defaults, inferred outputs, compact strides.
// What comes out is enough to make tensors and to call the op by name.
//
//   auto call = yard::Runtime::shared().parse("rms_norm(f32[8,4096], f32[4096])").value();
//   for (const yard::ParsedArg& a : call.args) std::puts(a.name.c_str());   // out x weight eps
#pragma once

#include <yard/tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace yard {

// A tensor that a call speaks of; it has no data.
struct ParsedTensor {
  DType dtype = DType::invalid;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;     // in elements, as many as the shape has
  uint32_t align = YARD_MAX_ALIGN;  // of the data, in bytes
  Device device;
};

struct ParsedArg {
  std::string name;
  bool read = true;      // `!` in the schema: false
  bool written = false;  // `!` or `~`
  // Nothing for an absent optional; enumerators as text.
  std::variant<std::monostate, int64_t, double, bool, std::string, ParsedTensor,
               std::vector<ParsedTensor>>
      value;
  std::string same_as;  // an output that is the input of that name (`out=&x`); else empty
};

struct ParsedCall {
  std::string op;
  std::string text;             // the canonical CallSpec
  std::vector<ParsedArg> args;  // every parameter, in the order of the schema
  Device device;
  uint32_t flags = 0;  // YARD_CALL_*
  std::map<std::string, std::string, std::less<>> labels;
};

}  // namespace yard
