// SPDX-License-Identifier: Apache-2.0
// The records of the registry: backends, kernels, ops and functions. They are immutable copies of
// descriptors, and snapshots share them. The texts and lists of a descriptor are members of its
// record; the pointers in `d` are null.
#pragma once

#include <yard/policy.h>

#include "base/append_list.h"
#include "op/argument_map.h"
#include "op/program.h"
#include "registry/features.h"

namespace yard::registry {

struct DeviceProbe {
  Device device;
  bool available = false;
  yard_verdict_t why{};
  std::string text;  // explains why the probe failed
  DeviceProbe* next = nullptr;
};

struct Backend {
  yard_backend_t d{};
  std::string name, vendor, summary, env;
  std::vector<std::string> reasons;
  std::shared_ptr<void> keep;
  using Probes = base::OwnedAppendList<DeviceProbe>;
  std::shared_ptr<Probes> probes = std::make_shared<Probes>();

  // Probes the backend once for each device. Takes no lock: if threads probe at the same time, one
  // result is kept. A probe that throws has failed.
  const DeviceProbe& probe(Device device, const yard_host_t* host) const;
};

struct Origin {
  enum class From { kProgram, kBuiltIn, kPlugin };
  From from = From::kProgram;
  std::string plugin = {};  // unique among the loaded plugins of a runtime
  bool operator==(const Origin&) const = default;
  std::string shown() const;  // like "the program" or "plugin 'acme'"
};

struct Kernel : std::enable_shared_from_this<Kernel> {
  yard_kernel_t d{};
  std::string op, id, backend_name, summary, features, typed_signature;
  std::vector<Feature> needs;        // parsed from `features`
  std::vector<yard_limit_t> limits;  // their field names are interned
  bool reads_all = false;            // the verifier does not list what it reads
  std::vector<std::string> verify_reads, cost_reads, state_fields;
  std::vector<std::string> reasons;
  std::string options_text, weights_text;
  std::shared_ptr<const op::Schema> options;   // scalars for create(), or null
  std::shared_ptr<const op::Schema> weights;   // tensors for load(), or null
  bool needs_weights = false;                  // some weight is not optional
  std::vector<op::ParamText> params;           // the kernel's own parameters, if any
  std::shared_ptr<const op::ArgumentMap> map;  // how the op's arguments fill `params`, or null
  Kind kind = Kind::kDefault;
  int priority = 0;
  std::shared_ptr<const Backend> backend;
  std::shared_ptr<void> keep;
  Origin origin;
};

struct Op {
  std::string name, schema, summary;
  yard_op_t d{};
  std::vector<yard_tolerance_t> tolerances;
  std::shared_ptr<const op::Program> program;
  std::shared_ptr<void> keep;
  Origin origin;
  uint32_t index = 0;  // into a snapshot's entries; never reused for another op
};

struct Function {
  yard_function_t d{};
  std::string name, group, backend, signature;
  std::vector<std::string> reasons;
  std::shared_ptr<void> keep;
};

// Returns `text` with figures[n] in place of {n}.
std::string fill_in(std::string_view text, const int64_t figures[3]);

// Says how two records of one name differ, like "priority 100 and 120". Returns "" if they do not.
std::string difference(const Op& a, const Op& b);
std::string difference(const Backend& a, const Backend& b);
std::string difference(const Kernel& a, const Kernel& b);
std::string difference(const Function& a, const Function& b);

Status resolve_params(Kernel& k, const op::Program& program);
// Checks the signature and the fields that the kernel names. Call resolve_params() first.
Status check_kernel(const Kernel& k, const Backend& backend, const op::Program& program);

}  // namespace yard::registry
