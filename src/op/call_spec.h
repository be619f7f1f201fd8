// SPDX-License-Identifier: Apache-2.0
// The text form of a call, used by traces, the command and tuning.
//
//   rms_norm(f32[8,4096], f32[4096], eps=1e-6)@cpu
//
// Grammar (blanks between tokens are free, except around '@', '+' and '%' of the tail):
//
//   call    := op '(' [arg {',' arg}] ')' ['@' device {'+' flag}] ['{' label {',' label} '}']
//   arg     := value | name '=' value                    (positional ones first)
//   value   := tensor | '[' [tensor {',' tensor}] ']' | '&' name | 'none' | 'true' | 'false'
//            | INT | FLOAT | ['-'] 'inf' | 'nan' | WORD | STRING
//   tensor  := dtype '[' [INT {',' INT}] [';' INT {',' INT}] ']' ['%' align] ['@' device]
//   flag    := 'deterministic' | 'capturing' | 'inference' | 'tracing'
//   label   := text '=' text            text := letters, digits, '_', '.', '-' | STRING
//
// A CallSpec is syntax only; no schema is consulted. Positional arguments are the parameters that are
// not pure outputs, in schema order. docs/reference/call_spec.md has the details.
#pragma once

#include <yard/plugin.h>
#include <yard/status.h>
#include <yard/tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace yard::op {

using Labels = std::vector<std::pair<std::string, std::string>>;

struct TensorSpec {
  DType dtype = DType::invalid;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements; empty: compact, row-major
  uint32_t align = YARD_MAX_ALIGN;
  std::optional<Device> device;  // unset: the call's
  bool operator==(const TensorSpec&) const = default;
};

// A bare word: an enumerator, or `none` for an absent optional.
struct Word {
  std::string text;
  bool operator==(const Word&) const = default;
};
// &x: the same tensor as the argument x.
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

// The tensors of a value: none, one or many.
inline std::span<TensorSpec> tensors_of(SpecValue& value) noexcept {
  if (auto* tensor = std::get_if<TensorSpec>(&value.v)) return {tensor, 1};
  if (auto* list = std::get_if<std::vector<TensorSpec>>(&value.v)) return *list;
  return {};
}

struct SpecArg {
  std::string name;  // empty: positional
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

// Failures are Code::kParse; the message names the column and shows the text with a caret below it. Also reads the line
// that a verbose runtime prints for a call, as the call that it is about.
Result<CallSpec> parse_call_spec(std::string_view text);

// The canonical text. A tensor's device is left out where it is the call's.
std::string to_string(const CallSpec& spec);
std::string to_string(const SpecValue& value);
std::string to_string(const TensorSpec& tensor);

// Most callers pass 32-bit floats. Of a value that is exactly one, the number with the shortest text that gives the same
// float: 1e-6, not 9.999999974752427e-7. Any other value is returned as it is.
double shortest_float(double value);

// Dtype, shape, strides, alignment and device of a tensor that has facts.
TensorSpec spec_of(const yard_tensor_t& tensor);
// "f32[8,4096]": dtype and shape of any tensor, valid or not.
std::string brief(const yard_tensor_t& tensor);

// The arguments of a call in the line of a verbose runtime, with spaces between them. The device
// and what follows it are left out if they are `@cpu`.
//   yard,exec,rms_norm,default.simd,f32[8,4096] f32[4096],hit,12.4us
std::string verbose_arguments(const CallSpec& spec);

}  // namespace yard::op
