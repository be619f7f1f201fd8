// SPDX-License-Identifier: Apache-2.0
// The kind of a call, by which its breakers are kept: device, dtypes, and the log2 bucket of each dimension.
#pragma once

#include <vector>

#include "health/health_snapshot.h"
#include "op/predicate.h"
#include "op/program.h"
#include "registry/records.h"

namespace yard::select {

struct CallKind {
  Device device;
  uint64_t dtypes = 0;  // call_dtypes()
  health::Buckets sizes;
};

// The op's dimensions, in the order of its fields; at most Buckets::kMost count.
std::vector<op::Field> health_dims(const op::Program& program);

// Of a call that fits the program. `dims` are health_dims() of it.
CallKind call_kind(const op::Program& program, const std::vector<op::Field>& dims,
                   const yard_value_t* args);

// What dimensions in these buckets pass; one that is absent counts as 0. There are as many buckets as dimensions.
std::vector<op::Predicate> size_predicates(const health::Buckets& sizes,
                                           const std::vector<op::Field>& dims);

// The dtypes of all tensors of a call, packed; of a list the first tensor counts.
uint64_t call_dtypes(const op::Program& program, const yard_value_t* args) noexcept;

// The device of the first tensor of a call.
Device device_of(const yard_value_t* args, uint32_t count) noexcept;

health::Key health_key(const registry::Kernel& kernel, const CallKind& kind);

}  // namespace yard::select
