// SPDX-License-Identifier: Apache-2.0
// The registry's state as an immutable value, changes that produce a new one, and descriptors read into these.
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
  bool is_default = false;  // unless there is one of that name
};
struct AddKernel {
  std::shared_ptr<Kernel> kernel;
  bool replaces = false;  // the one of that id, which must be there
};
struct AddFunction {
  std::shared_ptr<Function> function;
};
struct RemoveKernel {
  std::string op, id;
};
struct RemoveBackend {
  std::string name;
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
using Step = std::variant<AddOp, AddBackend, AddKernel, AddFunction, RemoveKernel, RemoveBackend,
                          RemoveOp, Reprobe, RemoveKept>;

// An op with its kernels, by id.
struct OpRecord {
  std::shared_ptr<const Op> op;
  std::map<std::string, std::shared_ptr<const Kernel>, std::less<>> kernels;
};

struct State {
  std::map<std::string, std::shared_ptr<const OpRecord>, std::less<>> op_records;
  std::map<std::string, std::shared_ptr<const Backend>, std::less<>> backends;
  // In order of registration. Group and name are unique per backend.
  std::vector<std::shared_ptr<const Function>> functions;
  // Entry index by schema text: an op that is added again unchanged gets its old index.
  std::map<std::string, uint32_t, std::less<>> indices;

  const OpRecord* find(std::string_view op) const noexcept;
  // Also of those that only provide functions, which may have no record.
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

// ---- descriptors.cc: from untrusted structs to records, or an error ----
//
// Never reads past the stated size of a struct. Checks everything that does not depend on the op: names, texts, kinds,
// limits, missing functions.

Result<std::shared_ptr<Op>> read_op(const yard_op_t& d, std::shared_ptr<void> keep);
Result<std::shared_ptr<Backend>> read_backend(const yard_backend_t& d, std::shared_ptr<void> keep);
// `only_backend` is used if the descriptor names no backend.
Result<std::shared_ptr<Kernel>> read_kernel(const yard_kernel_t& d, std::shared_ptr<void> keep,
                                            const char* only_backend = nullptr);
Result<std::shared_ptr<Function>> read_function(const yard_function_t& d,
                                                std::shared_ptr<void> keep,
                                                const char* only_backend = nullptr);
// Appends a step for everything that the plugin lists. Its ops and kernels are of that origin, with the plugin's name if
// it is a loaded plugin.
Status read_plugin(const yard_plugin_t& d, const std::shared_ptr<void>& keep,
                   std::vector<Step>& steps, Origin::From from = Origin::From::kProgram);

}  // namespace yard::registry

namespace yard::detail {
// The contents of yard::Changes: steps, and the first invalid descriptor.
struct ChangeList {
  std::vector<registry::Step> steps;
  Status problem;
};
}  // namespace yard::detail
