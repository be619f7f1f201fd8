// SPDX-License-Identifier: Apache-2.0
// The registry's state, which is an immutable value, and changes that produce a new one.
#pragma once

#include <yard/registry.h>

#include <set>

#include "registry/records.h"

namespace yard::registry {

struct AddOp {
  std::shared_ptr<Op> op;
};
struct AddBackend {
  std::shared_ptr<Backend> backend;
  bool is_default = false;  // has no effect if there is a backend of that name
};
struct AddKernel {
  std::shared_ptr<Kernel> kernel;
  bool replaces = false;  // a kernel with this id must exist
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
// Removes every record that holds `keep`. If other records depend on a removed one, that is a
// conflict, unless the records are `replaced` and later steps add what is missing. Later steps must
// serve the ops in `must_serve` with equal schemas.
struct RemoveKept {
  const void* keep;
  bool replaced = false;
  std::vector<std::string> must_serve = {};
};
using Step = std::variant<AddOp, AddBackend, AddKernel, AddFunction, RemoveKernel, RemoveBackend,
                          RemoveOp, Reprobe, RemoveKept>;

struct OpRecord {
  std::shared_ptr<const Op> op;
  std::map<std::string, std::shared_ptr<const Kernel>, std::less<>> kernels;  // by id
};

struct State {
  std::map<std::string, std::shared_ptr<const OpRecord>, std::less<>> op_records;
  std::map<std::string, std::shared_ptr<const Backend>, std::less<>> backends;
  // In order of registration. Group and name are unique per backend.
  std::vector<std::shared_ptr<const Function>> functions;
  // Keyed by schema, so that an op that is added again unchanged gets its old index.
  std::map<std::string, uint32_t, std::less<>> indices;

  const OpRecord* find(std::string_view op) const noexcept;
  // Includes backends without a record, which only provide functions.
  std::vector<std::string> backend_names() const;
  uint32_t index_count() const noexcept { return static_cast<uint32_t>(indices.size()); }
};

struct Applied {
  std::shared_ptr<const State> state;
  std::set<std::string> ops;  // ops whose candidates changed
  // The removed records. Destroying them completes a ticket.
  std::vector<std::shared_ptr<const void>> removed;
};

// Applies all steps or none.
Result<Applied> apply(const State& state, const std::vector<Step>& steps);

// These read untrusted structs, never past their stated size. They check everything that does not
// depend on the op: names, texts, kinds, limits, missing functions.
Result<std::shared_ptr<Op>> read_op(const yard_op_t& d, std::shared_ptr<void> keep);
Result<std::shared_ptr<Backend>> read_backend(const yard_backend_t& d, std::shared_ptr<void> keep);
// `only_backend` is used if the descriptor names no backend.
Result<std::shared_ptr<Kernel>> read_kernel(const yard_kernel_t& d, std::shared_ptr<void> keep,
                                            const char* only_backend = nullptr);
Result<std::shared_ptr<Function>> read_function(const yard_function_t& d,
                                                std::shared_ptr<void> keep,
                                                const char* only_backend = nullptr);
// Appends a step for everything that the plugin lists.
Status read_plugin(const yard_plugin_t& d, const std::shared_ptr<void>& keep,
                   std::vector<Step>& steps, Origin::From from = Origin::From::kProgram);

}  // namespace yard::registry

namespace yard::detail {
struct ChangeList {
  std::vector<registry::Step> steps;
  Status problem;  // of the first invalid descriptor
};
}  // namespace yard::detail
