// SPDX-License-Identifier: Apache-2.0
// The text form of a call. Traces print it, and the command accepts it.
//
//   rms_norm(f32[8,4096], f32[4096], eps=1e-6)@cpu
//
// Grammar (blanks may stand between tokens, except around '@', '+' and '%' of the tail):
//
//   call    := op '(' [arg {',' arg}] ')' ['@' device {'+' flag}] ['{' label {',' label} '}']
//   arg     := value | name '=' value                    (positional ones first)
//   value   := tensor | '[' [tensor {',' tensor}] ']' | '&' name | 'none' | 'true' | 'false'
//            | INT | FLOAT | ['-'] 'inf' | 'nan' | WORD | STRING
//   tensor  := dtype '[' [INT {',' INT}] [';' INT {',' INT}] ']' ['%' align] ['@' device]
//   flag    := 'deterministic' | 'capturing' | 'inference' | 'tracing'
//   label   := text '=' text            text := letters, digits, '_', '.', '-' | STRING
//
// A CallSpec is syntax only: it does not know the schema of its op. Positional arguments are the
// parameters that are not pure outputs, in schema order. docs/reference/call_spec.md has the
// details.
#pragma once

#include <yard/plugin.h>
#include <yard/tensor.h>

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

namespace yard::op {

using Labels = std::vector<std::pair<std::string, std::string>>;

struct TensorSpec {
  DType dtype = DType::invalid;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides = {};  // in elements; empty if compact and row-major
  uint32_t align = YARD_MAX_ALIGN;
  std::optional<Device> device = {};  // if it differs from the device of the call
  bool operator==(const TensorSpec&) const = default;
};

// A bare word: an enumerator, or `none` for an argument that is not given.
struct Word {
  std::string text;
  bool operator==(const Word&) const = default;
};
// `&x`, which is the same tensor as the argument x.
struct SameAs {
  std::string name;
  bool operator==(const SameAs&) const = default;
};

struct SpecValue {
  std::variant<int64_t, double, bool, std::string, Word, SameAs, TensorSpec,
               std::vector<TensorSpec>>
      v;
  // Compares values as text: NaN equals NaN, and 0.0 differs from -0.0.
  friend bool operator==(const SpecValue& a, const SpecValue& b);
};

inline std::span<TensorSpec> tensors_of(SpecValue& value) noexcept {
  if (auto* tensor = std::get_if<TensorSpec>(&value.v)) return {tensor, 1};
  if (auto* list = std::get_if<std::vector<TensorSpec>>(&value.v)) return *list;
  return {};
}

struct SpecArg {
  std::string name;  // empty if positional
  SpecValue value;
  bool operator==(const SpecArg&) const = default;
};

struct CallSpec {
  std::string op;
  std::vector<SpecArg> args;
  Device device;
  uint32_t flags = 0;  // YARD_CALL_*
  Labels labels;
  bool operator==(const CallSpec&) const = default;
};

// Names of the flags that a caller may set. YARD_CALL_ALIASED follows from the arguments.
inline constexpr std::pair<std::string_view, uint32_t> kCallFlags[] = {
    {"deterministic", YARD_CALL_DETERMINISTIC},
    {"capturing", YARD_CALL_CAPTURING},
    {"inference", YARD_CALL_INFERENCE},
    {"tracing", YARD_CALL_TRACING},
    {"loaded", YARD_CALL_LOADED},
};

// Failures are Code::kParse. The message names the column and shows the text with a caret below it.
// Also accepts the line that a verbose runtime prints for a call.
Result<CallSpec> parse_call_spec(std::string_view text);

// Returns the canonical text. It states the device of a tensor only if it differs from the call's.
std::string to_string(const CallSpec& spec);
std::string to_string(const SpecValue& value);
std::string to_string(const TensorSpec& tensor);

// If the value is exactly a 32-bit float, as most callers pass them, returns the number with the
// shortest text that gives the same float: 1e-6 and not 9.999999974752427e-7.
double shortest_float(double value);

TensorSpec spec_of(const yard_tensor_t& tensor);
// Returns dtype and shape of any tensor, valid or not, such as "f32[8,4096]".
std::string brief(const yard_tensor_t& tensor);
// Returns any argument, valid or not, such as "a tensor f32[8,4096]" or "the integer 3".
std::string brief(const yard_value_t& value);

// Returns the arguments of a call as in the line of a verbose runtime, with spaces between them.
// Then come device, flags and labels, unless they are just `@cpu`.
//   yard,exec,rms_norm,default.simd,f32[8,4096] f32[4096],hit,12.4us
std::string verbose_arguments(const CallSpec& spec);

}  // namespace yard::op
