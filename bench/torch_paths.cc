// SPDX-License-Identifier: Apache-2.0
// The op is registered for the CPU only and called in inference mode, which is the shortest way
// through PyTorch's dispatcher. The dispatcher selects by dispatch key, not by dtype or shape, and
// checks nothing.
#include "torch_paths.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <memory>

namespace {

void noop(const at::Tensor&, const at::Tensor&, const at::Tensor&, double) {}

using Typed = void(const at::Tensor&, const at::Tensor&, const at::Tensor&, double);

// Inference mode belongs to a thread. Each loop enters it, because a loop may run on any thread.
struct Call {
  at::Tensor out, x, weight;
  c10::OperatorHandle handle =
      c10::Dispatcher::singleton().findSchemaOrThrow("yard_bench::noop", "");
  c10::TypedOperatorHandle<Typed> typed = handle.typed<Typed>();

  Call() {
    const c10::InferenceMode inference;
    out = at::empty({8, 64}), x = at::empty({8, 64}), weight = at::empty({64});
  }
};

}  // namespace

TORCH_LIBRARY(yard_bench, m) {
  m.def("noop(Tensor(a!) out, Tensor x, Tensor weight, float eps) -> ()");
}
TORCH_LIBRARY_IMPL(yard_bench, CPU, m) { m.impl("noop", noop); }

namespace yard::bench {

std::vector<tool::Path> torch_paths() {
  auto call = std::make_shared<Call>();
  return {{"torch_typed", "PyTorch's dispatcher, typed call",
           [call](int64_t n) {
             const c10::InferenceMode inference;
             for (; n > 0; --n) call->typed.call(call->out, call->x, call->weight, 1e-6);
           },
           20000},
          {"torch_boxed", "PyTorch's dispatcher, boxed call",
           [call](int64_t n) {
             const c10::InferenceMode inference;
             torch::jit::Stack stack;
             for (; n > 0; --n) {
               stack.clear();
               stack.emplace_back(call->out);
               stack.emplace_back(call->x);
               stack.emplace_back(call->weight);
               stack.emplace_back(1e-6);
               call->handle.callBoxed(&stack);
             }
           },
           5000}};
}

}  // namespace yard::bench
