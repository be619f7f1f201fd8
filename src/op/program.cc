// SPDX-License-Identifier: Apache-2.0
// Queries of a Program, and the part of its check that is not inlined: see program.h.
#include "op/program.h"

#include <algorithm>

#include "op/steps.h"

namespace yard::op {

const Schema& Program::schema() const noexcept { return cold_->schema; }
std::string_view Program::signature() const noexcept { return cold_->signature; }
std::span<const uint8_t> Program::outputs() const noexcept { return cold_->outputs; }
bool Program::has_inout() const noexcept { return cold_->has_inout; }
bool Program::needs_shape_function() const noexcept { return cold_->needs_shape_function; }

bool Program::checks_scalars() const noexcept {
  for (const Step& s : cold_->steps)
    if (s.op == Step::Op::kEnum || s.op == Step::Op::kInt) return true;
  return false;
}

bool Program::may_alias(uint32_t output, uint32_t input) const noexcept {
  for (const auto& [out, in] : cold_->aliases)
    if (out == output && in == input) return true;
  return false;
}

std::optional<Field> Program::field(std::string_view name) const {
  for (const auto& [known, f] : cold_->fields)
    if (known == name) return f;
  return std::nullopt;
}

std::vector<std::string> Program::field_names() const {
  std::vector<std::string> names;
  for (const auto& entry : cold_->fields) names.push_back(entry.first);
  return names;
}

uint32_t Program::tensors_with_free_rows() const noexcept {
  // Lanes of kinds kSame and kLast allow any number of rows; other lanes and steps may not.
  if (lane_count_ == 0 || has_rest_ || last_end_ != lane_count_) return 0;
  for (uint32_t i = 0; i < arg_count_; ++i)
    if ((tags_[i] & ~kOptional) == YARD_TAG_LIST || tags_[i] == (YARD_TAG_TENSOR | kOptional))
      return 0;
  uint32_t which = 0;
  for (uint32_t i = 0; i < same_end_; ++i) which |= 1u << lane_args_[i];
  return which;
}

[[gnu::always_inline]] inline bool Program::fits_lanes_sharing(const yard_value_t* args,
                                                               int32_t& flags) const noexcept {
  const yard_tensor_t& lead = *args[lane_args_[0]].u.tensor;
  const Lane& first = lanes_[0];
  const uint64_t rank = (lead.facts & YARD_FACTS_RANK) >> YARD_FACTS_RANK_SHIFT;
  if (((static_cast<uint32_t>(lead.facts) ^ first.want) & first.fixed & ~YARD_FACTS_PLAIN) != 0 ||
      rank < min_rank_ || ((dtypes_ >> (lead.facts & YARD_FACTS_DTYPE)) & 1) == 0 ||
      ((lead.facts & YARD_FACTS_PLAIN) == 0 && overlaps_itself(lead)))
    return false;
  for (uint32_t i = 1; i < lane_count_; ++i) {
    const yard_tensor_t& t = *args[lane_args_[i]].u.tensor;
    if (!lane_fits(lanes_[i], lead, t)) return false;
    if (!ranges_may_meet(lead, t)) continue;
    // Common in-place calls: compact tensors of equal type at the same address are the same memory.
    const bool in_place = lanes_[i].kind == Lane::Kind::kSame && lead.data == t.data && lead.data &&
                          lead.byte_offset == t.byte_offset && span_of(t.facts) != 0 &&
                          (lead.facts & t.facts & YARD_FACTS_COMPACT) != 0;
    const Overlap o = in_place ? Overlap::kSame : overlap(lead, t);
    if (o == Overlap::kNone) continue;
    if (o != Overlap::kSame || !lanes_[i].may_alias) return false;
    flags = static_cast<int32_t>(YARD_CALL_ALIASED);
  }
  return true;
}

int32_t Program::fits_rest(const yard_value_t* args, int32_t flags) const noexcept {
  StepRunner runner(cold_->schema, args, args[lane_args_[0]].u.tensor->facts & YARD_FACTS_DEVICE);
  return runner.run(cold_->rest) == nullptr ? flags | runner.flags() : -1;
}

int32_t Program::fits_steps(const yard_value_t* args) const noexcept {
  StepRunner runner(cold_->schema, args);
  return runner.run(cold_->steps) == nullptr ? runner.flags() : -1;
}

int32_t Program::fits_exactly(const yard_value_t* args) const noexcept {
  int32_t flags = 0;
  if (lane_count_ == 0 || !fits_lanes_sharing(args, flags)) return fits_steps(args);
  return has_rest_ ? fits_rest(args, flags) : flags;
}

bool Program::pointers_fit(const yard_value_t& v) noexcept {
  if (v.count == 0) return true;
  if (v.tag == YARD_TAG_STRING) return v.u.string != nullptr;
  return v.u.list != nullptr && std::all_of(v.u.list, v.u.list + v.count,
                                            [](const yard_tensor_t* t) { return t != nullptr; });
}

}  // namespace yard::op
