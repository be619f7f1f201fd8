// SPDX-License-Identifier: Apache-2.0
// The records of the registry: backends, kernels, ops and functions, copied from their descriptors, immutable.
//
// Records are shared by the snapshots that list them and are destroyed with the last one. They own their strings; the
// descriptor `d` points into them, so that built-in, loaded and registered kernels look the same.
#pragma once

#include <yard/plugin.h>
#include <yard/policy.h>
#include <yard/tensor.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/append_list.h"
#include "op/argument_map.h"
#include "op/program.h"
#include "op/schema.h"
#include "registry/features.h"

namespace yard::registry {

// What the probe of a backend said of one device.
struct DeviceProbe {
  Device device;
  bool available = false;
  yard_verdict_t why{};
  std::string text;  // reason of a failed probe, in words
  DeviceProbe* next = nullptr;
};

struct Backend {
  yard_backend_t d{};
  std::string name, vendor, summary, env;
  std::vector<std::string> reasons;
  std::vector<const char*> reason_list;
  std::shared_ptr<void> keep;

  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // Probes the backend once per device and caches the result. If threads probe concurrently one result is kept, and all
  // get one of them. Takes no lock. A probe that throws counts as failed.
  const DeviceProbe& probe(Device device, const yard_host_t* host) const;

 private:
  mutable base::OwnedAppendList<DeviceProbe> probes_;
};

// Where an op or kernel comes from. Only what defines an op may define its reference.
struct Origin {
  enum class From { kProgram, kBuiltIn, kPlugin };
  From from = From::kProgram;
  std::string plugin = {};  // its name; no two loaded plugins of a runtime share one
  bool operator==(const Origin&) const = default;
  std::string shown() const;  // "the program", "plugin 'acme'"
};

struct Kernel : std::enable_shared_from_this<Kernel> {
  yard_kernel_t d{};
  std::string op, id, backend_name, summary, features, typed_signature;
  std::vector<Feature> needs;  // `features`, read
  std::vector<yard_limit_t> limits;
  std::vector<std::string> limit_fields;  // storage of limits[i].field
  bool reads_all = false;                 // a verifier without a list of what it reads
  std::vector<std::string> verify_reads, cost_reads, state_fields;
  std::vector<std::string> reasons;
  // Options of create(): scalars with names, types and perhaps defaults. Null: no options.
  std::string options_text;
  std::shared_ptr<const op::Schema> options;
  // Weights of load(): tensors. Null: not declared.
  std::string weights_text;
  std::shared_ptr<const op::Schema> weights;
  bool needs_weights = false;  // one of them is not optional
  // Parameters of its own, and how the op's fill them; null: it takes the op's. Set when it is registered.
  std::vector<op::ParamText> params;
  std::shared_ptr<const op::ArgumentMap> map;
  Kind kind = Kind::kDefault;
  int priority = 0;
  std::shared_ptr<const Backend> backend;
  std::shared_ptr<void> keep;
  Origin origin;

  // Points `d` at this record's strings; call it after filling in and after copying.
  void link();
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

// An implementation of a function. `d` points to the strings here.
struct Function {
  yard_function_t d{};
  std::string name, group, backend, signature;
  std::vector<std::string> reasons;
  std::shared_ptr<void> keep;
};

// The text of a reason, with figures[n] in place of {n}.
std::string fill_in(std::string_view text, const int64_t figures[3]);

// Whether two ops of the same name are equal, including function pointers and `self`.
bool same(const Op& a, const Op& b);
// A description of the difference between records of the same name: "priority 100 and 120". Empty if they are equal.
std::string difference(const Backend& a, const Backend& b);
std::string difference(const Kernel& a, const Kernel& b);
std::string difference(const Function& a, const Function& b);

// ---- Checks of a kernel that need its op and its backend ----

// Sets `map`: how the op's parameters fill those that the kernel states.
Status resolve_params(Kernel& k, const op::Program& program);

// After resolve_params(): signature, and the fields that it names.
Status check_kernel(const Kernel& k, const Backend& backend, const op::Program& program);

}  // namespace yard::registry
