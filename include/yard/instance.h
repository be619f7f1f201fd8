// SPDX-License-Identifier: Apache-2.0
// Instances: an op with options and weights of its own, for kernels that have state.
//
//   auto attention = yard::Instance::make("sliding_attention", {{"window", 128}}).value();
//   attention.load({{"sink", sink}}).or_throw();            // named tensors, borrowed
//   attention.call({out, q, k, v}).or_throw();
//
// The kernel that serves a call gets its state the first time: created from the options, loaded with the
// weights, prepared for the shape; it is kept for later calls and ended exactly once. Calls may come from
// any thread; a kernel must not change its state while it runs. Plain calls share one instance without
// options or weights.
#pragma once

#include <yard/options.h>
#include <yard/value.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

namespace yard {

class Runtime;
namespace detail {
class Core;
}
namespace exec {
class States;
}

class Instance {
 public:
  // Options by name. An error if no kernel of the op would take them; a kernel that would not is passed
  // over. Copies texts. The runtime must outlive the instance.
  YARD_API static Result<Instance> make(Runtime& runtime, std::string_view op,
                                        std::initializer_list<Arg> options = {});
  // On Runtime::shared().
  YARD_API static Result<Instance> make(std::string_view op,
                                        std::initializer_list<Arg> options = {});

  // Tensors by name; their data must stay as long as the instance. Replaces what was loaded before.
  YARD_API Status load(std::initializer_list<Arg> weights);

  YARD_API Status call(std::initializer_list<Arg> args, Options options = {}) const;

  const std::string& op() const noexcept { return op_; }
  // How many states it holds now.
  YARD_API size_t states() const;

 private:
  friend class detail::Core;
  Instance() = default;
  Runtime* runtime_ = nullptr;
  std::string op_;
  std::shared_ptr<exec::States> states_;
};

}  // namespace yard
