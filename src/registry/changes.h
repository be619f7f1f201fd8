// SPDX-License-Identifier: Apache-2.0
// The registry's state as an immutable value, and changes that make a new one of it.
#pragma once

#include <yard/registry.h>

#include <functional>
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
// Takes out every record that holds `keep`; a conflict if others depend on one of them.
struct RemoveKept {
  const void* keep;
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
  // In the order they came. One of a name for each backend; functions by group and name.
  std::vector<std::shared_ptr<const Hook>> hooks, functions;
  // Schema text → entry index: an op that comes back as it was finds its old place.
  std::map<std::string, uint32_t, std::less<>> indices;

  const OpRecord* find(std::string_view op) const noexcept;
  uint32_t index_count() const noexcept { return static_cast<uint32_t>(indices.size()); }
};

struct Applied {
  std::shared_ptr<const State> state;
  std::set<std::string> ops;  // whose candidates changed
  // What left: records whose end completes a ticket.
  std::vector<std::shared_ptr<const void>> removed;
};

// The steps of hooks and functions, as parts of a change.
Status add_hook(State& state, const std::shared_ptr<Hook>& hook);
// Those of which `goes` is true.
void remove_hooks(State& state, std::vector<std::shared_ptr<const void>>& removed,
                  const std::function<bool(const Hook&)>& goes);

// All steps or none. The error names the step's subject and, for a conflict, both sides.
Result<Applied> apply(const State& state, const std::vector<Step>& steps);

}  // namespace yard::registry

namespace yard::detail {
// What yard::Changes holds: steps, and the first thing that was wrong with a descriptor.
struct ChangeList {
  std::vector<registry::Step> steps;
  Status problem;
};
}  // namespace yard::detail
