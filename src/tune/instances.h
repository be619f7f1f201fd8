// SPDX-License-Identifier: Apache-2.0
// Instances of ops for test cases: the options and weights that kernels with state are created with.
#pragma once

#include <yard/value.h>
#include <yard/verify.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exec/states.h"
#include "op/call.h"
#include "registry/records.h"
#include "tune/buffer.h"
#include "tune/random.h"

namespace yard::tune {

// Options and weights of one or more cases; the reference kernel and the kernel under test share it.
struct TestInstance {
  std::deque<Buffer> weights;  // outlives the states that borrow it
  exec::States states;
  std::string options;                 // "window=4, causal=true"; empty: none
  std::string loaded;                  // "sink=f32[8]"; empty: none
  exec::Weights made;                  // of `weights`, or given
  std::vector<std::string> arguments;  // weights of the kernel that are arguments of the call

  void add_arguments(const registry::Kernel& kernel, const op::Program& program);
  // Loads the weights. `args` are those of the call, which must outlive the states.
  void load(const std::vector<Arg>& args);
};

// Makes instances from what a kernel declares, or from what is given for all of them.
class InstanceGenerator {
 public:
  // Options vary that the reference kernel has, too; others keep their defaults. All must outlive it.
  InstanceGenerator(const registry::Kernel& kernel, const registry::Kernel& reference,
                    const VerifyOptions& given);

  // Whether calls of the kernel need instances.
  bool needed() const noexcept { return kernel_.d.create != nullptr; }
  // For a call of the op. `seed` is that of its contents. Without `random`, options that are not given have their defaults.
  std::unique_ptr<TestInstance> next(const op::Program& program, const op::Call& call,
                                     uint64_t seed, Random* random);

 private:
  exec::OwnedValue option(const op::Param& param, Random& random);

  const registry::Kernel& kernel_;
  const VerifyOptions& given_;
  std::vector<const op::Param*> varied_;
  std::map<std::string, ShuffleBag<int>> values_;  // by option
};

}  // namespace yard::tune
