// SPDX-License-Identifier: Apache-2.0
// The registry's state as an immutable value, and changes that produce a new one.
#pragma once

#include <yard/registry.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "registry/records.h"

namespace yard::registry {

// One step of a change.
struct AddOp {
  std::shared_ptr<Op> op;
};
struct AddBackend {
  std::shared_ptr<Backend> backend;
};
// Unless there is one of that name.
struct AddDefaultBackend {
  std::shared_ptr<Backend> backend;
};
struct AddKernel {
  std::shared_ptr<Kernel> kernel;
};
struct AddHook {
  std::shared_ptr<Hook> hook;  // or function
};
struct ReplaceKernel {
  std::shared_ptr<Kernel> kernel;
};
struct RemoveKernel {
  std::string op, id;
};
struct RemoveBackend {
  std::string name;
};
// Its hooks and functions; its kernels stay.
struct RemoveHooks {
  std::string backend;
};
struct RemoveOp {
  std::string name;
};
struct Reprobe {
  std::string backend;
};
// Removes every record that holds `keep`; a conflict if others depend on one of them. If it is `replaced`, later steps may
// add them again, and the kernels of others are moved to these; a conflict if one is missing or has another schema.
struct RemoveKept {
  const void* keep;
  bool replaced = false;
};
using Step = std::variant<AddOp, AddBackend, AddDefaultBackend, AddKernel, AddHook, ReplaceKernel,
                          RemoveKernel, RemoveBackend, RemoveHooks, RemoveOp, Reprobe, RemoveKept>;

// An op with its kernels, by id.
struct OpRecord {
  std::shared_ptr<const Op> op;
  std::map<std::string, std::shared_ptr<const Kernel>, std::less<>> kernels;
};

struct State {
  std::map<std::string, std::shared_ptr<const OpRecord>, std::less<>> op_records;
  std::map<std::string, std::shared_ptr<const Backend>, std::less<>> backends;
  // In order of registration. Names are unique per backend; functions by group and name.
  std::vector<std::shared_ptr<const Hook>> hooks, functions;
  // Entry index by schema text: an op that is added again unchanged gets its old index.
  std::map<std::string, uint32_t, std::less<>> indices;

  const OpRecord* find(std::string_view op) const noexcept;
  // Also of those that only provide hooks or functions, which may have no record.
  std::vector<std::string> backend_names() const;
  uint32_t index_count() const noexcept { return static_cast<uint32_t>(indices.size()); }
};

struct Applied {
  std::shared_ptr<const State> state;
  std::set<std::string> ops;  // whose candidates changed
  // Removed records; their destruction completes a ticket.
  std::vector<std::shared_ptr<const void>> removed;
};

// All steps or none. The error names the subject of the step and, for a conflict, both sides.
Result<Applied> apply(const State& state, const std::vector<Step>& steps);

}  // namespace yard::registry

namespace yard::detail {
// The contents of yard::Changes: steps, and the first invalid descriptor.
struct ChangeList {
  std::vector<registry::Step> steps;
  Status problem;
};
}  // namespace yard::detail
