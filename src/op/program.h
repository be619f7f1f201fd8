// SPDX-License-Identifier: Apache-2.0
// A schema compiled for checking calls. Every call of an op is checked before a kernel sees it, in a few
// nanoseconds; a call that does not fit gets a message.
//
//   Result<Program> p = Program::compile("silu_and_mul(out!: T[*rows, d], x: T[*rows, 2*d])");
//   if (p->tags_fit(args, n) && p->fits(args) >= 0) ...  else  return p->explain_mismatch(args, n);
//
// The conditions are a list of steps (steps.h). Most calls need none of them run: a written tensor, the
// *lead*, is compared with the others directly; how each relates to it is a *lane*. Lanes accept a
// call only if the steps that they cover hold; all other calls are left to the steps.
//
// A Program is immutable; copies share the parts that are not hot. Thread-safe.
#pragma once

#include <yard/plugin.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "op/overlap.h"
#include "op/predicate.h"
#include "op/schema.h"

namespace yard::op {

struct ProgramCold;  // steps.h

// Shape and dtype of one pure output.
struct OutputSpec {
  uint32_t param = 0;  // index of the parameter
  bool known = true;   // false: a list, or an optional output that these inputs leave open
  DType dtype = DType::invalid;
  yard_shape_t shape{};
};

class Program {
 public:
  static Result<Program> compile(std::string_view schema_text);

  const Schema& schema() const noexcept;
  const std::string& name() const noexcept { return schema().name; }
  uint32_t arg_count() const noexcept { return arg_count_; }
  // One letter per parameter, as in plugin.h's `typed`.
  std::string_view signature() const noexcept;
  // Index of a parameter, -1 if there is none of that name.
  int index_of(std::string_view param) const noexcept { return schema().index_of(param); }
  // Indices of the pure outputs (`!`), in schema order.
  std::span<const uint8_t> outputs() const noexcept;
  // Whether some argument is read and written (`~`).
  bool has_inout() const noexcept;
  bool may_alias(uint32_t output, uint32_t input) const noexcept;

  // ---- Every call ----

  // Checks the number and tags of the arguments: NONE only for optional ones, no null tensor. No allocation.
  bool tags_fit(const yard_value_t* args, uint32_t n) const noexcept;

  // -1 if the call does not fit the schema, else 0, or YARD_CALL_ALIASED when an output is exactly an
  // input that it may alias. Requires tags_fit(); a tensor whose facts are 0 does not fit. Tensors
  // without data are taken to overlap nothing. No allocation, no lock.
  int32_t fits(const yard_value_t* args) const noexcept;

  // fits() for a call that is about to run: -1 also if a tensor that has elements has no data.
  int32_t fits_live(const yard_value_t* args) const noexcept;

  // Whether fits() depends on integer arguments: an enum's range, a dimension that equals an argument.
  bool checks_scalars() const noexcept;
  // The bytes that a tensor may cover. Conservative.
  struct Range {
    explicit Range(const yard_tensor_t& t) noexcept
        : begin(reinterpret_cast<uintptr_t>(t.data) + t.byte_offset), span(span_of(t.facts)) {}
    // Whether `t` has data outside this range. False if that is uncertain.
    bool apart(const yard_tensor_t& t) const noexcept {
      if (t.data == nullptr) return false;
      const uint64_t away = reinterpret_cast<uintptr_t>(t.data) + t.byte_offset - begin;
      return away / 64 >= span && (0 - away) / 64 >= span_of(t.facts);
    }
    uint64_t begin, span;
  };

  // Whether a tensor that has elements has no data. Requires tags_fit() and facts.
  bool has_null_data(const yard_value_t* args) const noexcept;

  // ---- Errors and preparation ----

  // Why a call does not fit: kInvalidArgument naming op, argument, expected and found. OK exactly when
  // tags_fit() and fits() >= 0.
  Status explain_mismatch(const yard_value_t* args, uint32_t n) const;
  // The same for arg_count() arguments whose outputs may still be missing.
  Status explain_input_mismatch(const yard_value_t* args) const;

  // An integer of a call by name: a dimension, a product ("rows"), an int, bool or enum parameter,
  // "x.rank", "x.size", "xs.count". Empty if the name is unknown.
  std::optional<Field> field(std::string_view name) const;
  std::vector<std::string> field_names() const;

  // Whether some output has a dimension that no input binds: the caller gives it, unless the op has `infer`.
  bool needs_shape_function() const noexcept;
  // Whether inputs determine the dtype and every dimension of an output, if all of them are given.
  bool inputs_determine(uint32_t output) const noexcept;
  // Dtype and shape of every pure output, in schema order, from the inputs; args[output] is not
  // read. `op` provides the shape function where one is needed. A dtype variable that occurs only in
  // outputs has the first dtype of its clause.
  Result<std::vector<OutputSpec>> infer_outputs(const yard_value_t* args,
                                                const yard_op_t* op = nullptr) const;

 private:
  friend class Compiler;

  // How one required tensor relates to the lead tensor.
  struct Lane {
    enum class Kind : uint8_t {
      kSame,   // dtype, device, rank and every size equal the lead's
      kLast,   // one dimension, equal to the lead's last; dtype and device equal the lead's
      kOther,  // as given by the other members
    };
    Kind kind = Kind::kOther;
    uint8_t arg = 0;
    uint8_t dims = 0;    // number of trailing dimensions that equal the lead's; kAllDims: all
    uint8_t scale = 1;   // the last of them is `scale` times the lead's
    uint32_t same = 0;   // facts bits that equal the lead's
    uint32_t fixed = 0;  // facts bits that equal those of `want`
    uint32_t want = 0;
    bool may_alias = false;
  };
  static constexpr uint8_t kAllDims = 255;
  static constexpr uint8_t kOptional = 128;
  static constexpr uint32_t kTypeBits = YARD_FACTS_DTYPE | YARD_FACTS_DEVICE;

  // Common schemas whose lanes are unrolled.
  enum class Form : uint8_t { kAny, kSameLast, kSameSame };
  struct Lead;

  bool tag_fits(uint32_t i, const yard_value_t& v) const noexcept;
  static bool pointers_fit(const yard_value_t& v) noexcept;
  Status explain(const yard_value_t* args, uint32_t n, bool outputs_may_be_missing) const;
  template <uint32_t kSameLanes, uint32_t kLastLanes>
  bool fits_form(const yard_value_t* args) const noexcept;
  bool fits_lanes(const yard_value_t* args) const noexcept;
  bool fits_quickly(const yard_value_t* args) const noexcept;
  bool lane_fits(const Lane& lane, const yard_tensor_t& lead,
                 const yard_tensor_t& t) const noexcept;
  // fits() for calls that fits_quickly() did not accept.
  int32_t fits_exactly(const yard_value_t* args) const noexcept;
  // As fits_lanes(), for tensors that may overlap; `flags` gets YARD_CALL_ALIASED.
  bool fits_lanes_sharing(const yard_value_t* args, int32_t& flags) const noexcept;
  // The steps that lanes do not cover. Adds to `flags`; -1 if one fails.
  int32_t fits_rest(const yard_value_t* args, int32_t flags) const noexcept;
  // All steps.
  [[gnu::noinline]] int32_t fits_steps(const yard_value_t* args) const noexcept;

  // Hot. The lead is a required tensor that is written, an output if possible; without one lane_count_
  // is 0. lane_args_ repeats the arguments of the lanes: first the lead, then the lanes of kind kSame,
  // of kind kLast, and the others.
  uint8_t arg_count_ = 0;
  uint8_t lane_count_ = 0;
  uint8_t same_end_ = 0, last_end_ = 0;
  uint8_t min_rank_ = 0;  // of the lead
  bool has_rest_ = false;
  Form form_ = Form::kAny;
  uint8_t lane_args_[YARD_MAX_ARGS]{};
  uint64_t dtypes_ = ~0ull;  // of the lead
  Lane lanes_[YARD_MAX_ARGS];
  uint8_t tags_[YARD_MAX_ARGS]{};  // the expected tag, plus kOptional where NONE is allowed
  std::shared_ptr<const ProgramCold> cold_;
};

inline bool Program::tag_fits(uint32_t i, const yard_value_t& v) const noexcept {
  if (v.tag != (tags_[i] & ~uint32_t{kOptional}))
    return v.tag == YARD_TAG_NONE && (tags_[i] & kOptional) != 0;
  if (v.tag == YARD_TAG_TENSOR) return v.u.tensor != nullptr;
  return (v.tag != YARD_TAG_LIST && v.tag != YARD_TAG_STRING) || pointers_fit(v);
}

inline bool Program::tags_fit(const yard_value_t* args, uint32_t n) const noexcept {
  if (n != arg_count_) return false;
  for (uint32_t i = 0; i < n; ++i)
    if (!tag_fits(i, args[i])) return false;
  return true;
}

// A lane of any kind.
inline bool Program::lane_fits(const Lane& lane, const yard_tensor_t& lead,
                               const yard_tensor_t& t) const noexcept {
  const auto f = static_cast<uint32_t>(t.facts), g = static_cast<uint32_t>(lead.facts);
  if ((((f ^ g) & lane.same) | ((f ^ lane.want) & lane.fixed)) != 0) return false;
  const uint64_t rank = (lead.facts & YARD_FACTS_RANK) >> YARD_FACTS_RANK_SHIFT;
  uint64_t n = lane.dims < rank ? lane.dims : rank;
  const int64_t* const a = lead.shape + (rank - n);
  const int64_t* const b = t.shape;
  if (lane.scale != 1) {
    int64_t last;
    --n;
    if (__builtin_mul_overflow(a[n], int64_t{lane.scale}, &last) || last != b[n]) return false;
  }
  for (uint64_t i = 0; i < n; ++i)
    if (a[i] != b[i]) return false;
  return true;
}

// The lead's values that lanes compare with, kept in CPU registers.
struct Program::Lead : Range {
  explicit Lead(const yard_tensor_t& t) noexcept
      : Range(t),
        shape(t.shape),
        facts(t.facts),
        rank((facts & YARD_FACTS_RANK) >> YARD_FACTS_RANK_SHIFT) {}

  // Facts of 0 differ from the lead's, since no valid facts have device type 0.
  bool same(const yard_tensor_t& t) const noexcept {
    if (((facts ^ t.facts) & (kTypeBits | YARD_FACTS_RANK)) != 0 || !apart(t)) return false;
    const int64_t *const a = shape, *const b = t.shape;
    if (rank == 2) return ((a[0] ^ b[0]) | (a[1] ^ b[1])) == 0;  // the common case
    for (uint64_t i = 0; i < rank; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }
  bool last(const yard_tensor_t& t) const noexcept {
    return ((facts ^ t.facts) & kTypeBits) == 0 &&
           (t.facts & YARD_FACTS_RANK) == (1ull << YARD_FACTS_RANK_SHIFT) && apart(t) &&
           t.shape[0] == shape[rank - 1];
  }

  const int64_t* shape;
  uint64_t facts, rank;
};

// The arguments are the lead, kSameLanes of kind kSame and kLastLanes of kind kLast, in this order; any
// dtype and rank are allowed.
template <uint32_t kSameLanes, uint32_t kLastLanes>
inline bool Program::fits_form(const yard_value_t* args) const noexcept {
  const Lead lead(*args[0].u.tensor);
  if ((lead.facts & YARD_FACTS_VALID) == 0 || (lead.facts & YARD_FACTS_PLAIN) == 0 ||
      lead.rank == 0 || args[0].u.tensor->data == nullptr)
    return false;
  for (uint32_t i = 1; i <= kSameLanes; ++i)
    if (!lead.same(*args[i].u.tensor)) return false;
  for (uint32_t i = kSameLanes + 1; i <= kSameLanes + kLastLanes; ++i)
    if (!lead.last(*args[i].u.tensor)) return false;
  return true;
}

inline bool Program::fits_lanes(const yard_value_t* args) const noexcept {
  if (lane_count_ == 0) return false;
  const yard_tensor_t& first = *args[lane_args_[0]].u.tensor;
  const Lead lead(first);
  if (((static_cast<uint32_t>(lead.facts) ^ lanes_[0].want) & lanes_[0].fixed) != 0 ||
      lead.rank < min_rank_ || ((dtypes_ >> (lead.facts & YARD_FACTS_DTYPE)) & 1) == 0 ||
      first.data == nullptr)
    return false;
  const uint8_t* at = lane_args_ + 1;
  for (const uint8_t* end = lane_args_ + same_end_; at != end; ++at)
    if (!lead.same(*args[*at].u.tensor)) return false;
  for (const uint8_t* end = lane_args_ + last_end_; at != end; ++at)
    if (!lead.last(*args[*at].u.tensor)) return false;
  for (const uint8_t* end = lane_args_ + lane_count_; at != end; ++at) {
    const yard_tensor_t& t = *args[*at].u.tensor;
    if (!lane_fits(lanes_[at - lane_args_], first, t) || !lead.apart(t)) return false;
  }
  return true;
}

// Accepts calls of plain tensors that have data and do not overlap; leaves others to fits_exactly().
inline bool Program::fits_quickly(const yard_value_t* args) const noexcept {
  switch (form_) {
    case Form::kSameLast: return fits_form<1, 1>(args);
    case Form::kSameSame: return fits_form<2, 0>(args);
    default: return fits_lanes(args);
  }
}

inline int32_t Program::fits(const yard_value_t* args) const noexcept {
  if (!fits_quickly(args)) return fits_exactly(args);
  return has_rest_ ? fits_rest(args, 0) : 0;
}

inline int32_t Program::fits_live(const yard_value_t* args) const noexcept {
  const bool quick = fits_quickly(args);
  if (quick && !has_rest_) [[likely]]
    return 0;
  const int32_t flags = quick ? fits_rest(args, 0) : fits_exactly(args);
  return flags >= 0 && has_null_data(args) ? -1 : flags;
}

inline bool Program::has_null_data(const yard_value_t* args) const noexcept {
  const auto lacks_data = [](const yard_tensor_t* t) {
    return t->data == nullptr && (t->facts >> YARD_FACTS_SPAN_SHIFT) != 0;
  };
  for (uint32_t i = 0; i < arg_count_; ++i) {
    if (args[i].tag == YARD_TAG_TENSOR) {
      if (lacks_data(args[i].u.tensor)) return true;
    } else if (args[i].tag == YARD_TAG_LIST) {
      for (uint32_t k = 0; k < args[i].count; ++k)
        if (lacks_data(args[i].u.list[k])) return true;
    }
  }
  return false;
}

}  // namespace yard::op
