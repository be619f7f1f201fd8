// SPDX-License-Identifier: Apache-2.0
// What health tells calls of an op apart by: device, dtypes, and the log2 bucket of each dimension.
#pragma once

#include <vector>

#include "health/key.h"
#include "op/program.h"
#include "registry/records.h"

namespace yard::select {

// One call as health sees it.
struct CallKind {
  Device device;
  uint64_t dtypes = 0;
  health::Buckets sizes;

  bool is_of(const health::Key& key) const noexcept {
    return key.dtypes == dtypes && key.device == device && key.sizes == sizes;
  }
};

// The op's dimensions, in the order of its fields; at most Buckets::kMost count.
std::vector<op::Field> health_dims(const op::Program& program);

// Of a call that fits the program. `dims` are health_dims() of it.
CallKind call_kind(const op::Program& program, const std::vector<op::Field>& dims,
                   const yard_value_t* args);

// Where the first tensor of a call is.
Device device_of(const yard_value_t* args, uint32_t count) noexcept;

health::Key health_key(const registry::Kernel& kernel, const CallKind& kind);

}  // namespace yard::select
