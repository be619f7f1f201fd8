// SPDX-License-Identifier: Apache-2.0
// A schema compiled for checking calls. Every call of an op is checked before a kernel sees it, in
// a few nanoseconds. A call that does not fit gets a message.
//
//   Result<Program> p = Program::compile("silu_and_mul(out!: T[*rows, d], x: T[*rows, 2*d])");
//   if (p->tags_fit(args, n) && p->fits(args) >= 0) ...  else  return p->explain_mismatch(args, n);
//
// The conditions are a list of steps (steps.h). Simple schemas, such as norms and elementwise ops,
// also have a quick check that compares the output with the other tensors directly. A call that the
// quick check does not accept is left to the steps.
//
// A Program is immutable, and copies share the parts that are not hot. Any thread may use it.
#pragma once

#include <memory>

#include "op/facts.h"
#include "op/overlap.h"
#include "op/predicate.h"

namespace yard::op {

struct ProgramCold;  // steps.h

struct OutputSpec {
  uint32_t param = 0;  // index of the parameter
  bool known = true;   // false for a list, and for an optional output that the inputs leave open
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
  int index_of(std::string_view param) const noexcept { return schema().index_of(param); }
  // Indices of the pure outputs (`!`), in schema order.
  std::span<const uint8_t> outputs() const noexcept;
  // Whether some argument is read and written (`~`).
  bool has_inout() const noexcept;
  bool may_alias(uint32_t output, uint32_t input) const noexcept;
  bool has_aliases() const noexcept;

  // ---- Every call ----

  // Checks the number and tags of the arguments. NONE is for optional ones only, and no tensor may
  // be null. Does not allocate.
  bool tags_fit(const yard_value_t* args, uint32_t n) const noexcept;

  // Returns -1 if the call does not fit the schema, YARD_CALL_ALIASED if it does and an output is
  // exactly an input that it may alias, else 0. Requires tags_fit(). A tensor whose facts are 0
  // does not fit; tensors without data overlap nothing. Does not allocate or lock.
  int32_t fits(const yard_value_t* args) const noexcept;

  // Like fits() for a call that is about to run: also returns -1 if a tensor that has elements has
  // no data, or if the call writes_nothing().
  int32_t fits_live(const yard_value_t* args) const noexcept;

  // Whether fits() depends on scalars, such as the range of an enum or an int that is a dimension.
  bool checks_scalars() const noexcept;
  // Whether a tensor that has elements has no data. Requires tags_fit() and facts.
  bool has_null_data(const yard_value_t* args) const noexcept;
  // Whether no tensor that the call writes has elements, so that no kernel needs to run. Requires
  // tags_fit() and facts.
  bool writes_nothing(const yard_value_t* args) const noexcept;

  // ---- Errors and preparation ----

  // Says why a call does not fit: kInvalidArgument with op, argument, expected and found. OK
  // exactly if tags_fit() and fits() >= 0, unless outputs may be missing.
  Status explain_mismatch(const yard_value_t* args, uint32_t n,
                          bool outputs_may_be_missing = false) const;

  // Finds an integer of a call: a dimension, a product ("rows"), an int, bool or enum parameter,
  // "x.rank", "x.size" or "xs.count". Empty if the name is unknown.
  std::optional<Field> field(std::string_view name) const;
  std::vector<std::string> field_names() const;

  // Whether some output has a dimension that no input binds. The caller must give that output,
  // unless the op has a shape function.
  bool needs_shape_function() const noexcept;
  // Whether inputs determine the dtype and every dimension of an output, if all of them are given.
  bool inputs_determine(uint32_t output) const noexcept;
  // Infers every pure output from the inputs. args[output] is not read. `op` provides the shape
  // function, if one is needed. A dtype variable that occurs only in outputs has the first dtype of
  // its clause.
  Result<std::vector<OutputSpec>> infer_outputs(const yard_value_t* args,
                                                const yard_op_t* op = nullptr) const;

 private:
  friend class Compiler;

  // How a tensor of a simple schema relates to the output.
  struct Relation {
    uint8_t arg = 0;
    uint8_t dims = 0;    // number of trailing dimensions that equal the output's, or kAllDims
    uint8_t scale = 1;   // the last of them is `scale` times the output's
    uint32_t same = 0;   // facts bits that equal the output's
    uint32_t fixed = 0;  // facts bits that equal the bits of `want`
    uint32_t want = 0;
  };
  static constexpr uint8_t kAllDims = 255;
  static constexpr uint8_t kOptional = 128;
  static constexpr size_t kMaxRelations = 8;

  bool tag_fits(uint32_t i, const yard_value_t& v) const noexcept;
  static bool pointers_fit(const yard_value_t& v) noexcept;
  static bool is_related(const Relation& r, const yard_tensor_t& out,
                         const yard_tensor_t& t) noexcept;
  // Accepts calls of plain tensors that have data and do not overlap, if the output has elements.
  bool fits_quickly(const yard_value_t* args) const noexcept;
  [[gnu::noinline]] int32_t fits_steps(const yard_value_t* args) const noexcept;

  uint8_t arg_count_ = 0;
  // The output, then the other tensors. Empty if the schema is not simple.
  uint8_t relation_count_ = 0;
  uint8_t min_rank_ = 0;     // of the output
  uint64_t dtypes_ = ~0ull;  // of the output
  Relation relations_[kMaxRelations];
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

inline bool Program::is_related(const Relation& r, const yard_tensor_t& out,
                                const yard_tensor_t& t) noexcept {
  const auto f = static_cast<uint32_t>(t.facts), g = static_cast<uint32_t>(out.facts);
  if ((((f ^ g) & r.same) | ((f ^ r.want) & r.fixed)) != 0) return false;
  const uint64_t rank = (out.facts & YARD_FACTS_RANK) >> YARD_FACTS_RANK_SHIFT;
  uint64_t n = r.dims < rank ? r.dims : rank;
  const int64_t* const a = out.shape + (rank - n);
  const int64_t* const b = t.shape;
  if (r.scale != 1) {
    int64_t last;
    --n;
    if (__builtin_mul_overflow(a[n], int64_t{r.scale}, &last) || last != b[n]) return false;
  }
  for (uint64_t i = 0; i < n; ++i)
    if (a[i] != b[i]) return false;
  return t.data != nullptr && !ranges_may_meet(out, t);
}

inline bool Program::fits_quickly(const yard_value_t* args) const noexcept {
  if (relation_count_ == 0) return false;
  const yard_tensor_t& out = *args[relations_[0].arg].u.tensor;
  const uint64_t rank = (out.facts & YARD_FACTS_RANK) >> YARD_FACTS_RANK_SHIFT;
  if (((static_cast<uint32_t>(out.facts) ^ relations_[0].want) & relations_[0].fixed) != 0 ||
      rank < min_rank_ || ((dtypes_ >> (out.facts & YARD_FACTS_DTYPE)) & 1) == 0 ||
      out.data == nullptr || (out.facts >> YARD_FACTS_SPAN_SHIFT) == 0)
    return false;
  for (uint32_t i = 1; i < relation_count_; ++i)
    if (!is_related(relations_[i], out, *args[relations_[i].arg].u.tensor)) return false;
  return true;
}

inline int32_t Program::fits(const yard_value_t* args) const noexcept {
  return fits_quickly(args) ? 0 : fits_steps(args);
}

inline int32_t Program::fits_live(const yard_value_t* args) const noexcept {
  if (fits_quickly(args)) [[likely]]
    return 0;
  const int32_t flags = fits_steps(args);
  return flags >= 0 && (has_null_data(args) || writes_nothing(args)) ? -1 : flags;
}

inline bool Program::has_null_data(const yard_value_t* args) const noexcept {
  for (uint32_t i = 0; i < arg_count_; ++i)
    for (const yard_tensor_t* t : tensors_of(args[i]))
      if (t->data == nullptr && (t->facts >> YARD_FACTS_SPAN_SHIFT) != 0) return true;
  return false;
}

}  // namespace yard::op
