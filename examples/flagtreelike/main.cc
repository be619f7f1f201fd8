// SPDX-License-Identifier: Apache-2.0
// Generates code for two devices that each have a backend. One backend replaces an implementation,
// the other a definition. Usage: flagtreelike PLUGIN
#include <yard/yard.h>

#include "../check.h"
#include "codegen.h"

using codegen::Builder;
using codegen::Value;

namespace {

void add_mthreads_like(yard::Changes& changes) {
  yard::implement(changes, codegen::matmul, "mthreads_like",
                  [](int64_t m, int64_t n, int64_t k) -> std::string {
                    return "tensor core 128x128, " + std::to_string(m * n * k) + " products";
                  });
}

size_t lines_of_an_add(int bits) {
  Builder builder;
  codegen::atomic_add(builder, {"%p", 64}, {"%v", bits});
  return builder.lines().size();
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 2);
  // Before any backend is active, every function runs its default.
  CHECK(lines_of_an_add(64) == 1);
  CHECK(codegen::matmul(2, 2, 2) == "tile 64x64 of 2x2x2");

  // [activate]
  yard::Runtime& runtime = yard::Runtime::shared();
  yard::Functions functions = runtime.functions();
  runtime.plugins().discover({argv[1]}).or_throw();
  yard::Changes changes;
  add_mthreads_like(changes);
  runtime.apply(std::move(changes)).or_throw();
  const yard::Device first{2, 0}, second{2, 1};
  functions.activate("iluvatar_like", first).or_throw();
  functions.activate("mthreads_like", second).or_throw();
  // [/activate]

  // [devices]
  {
    yard::ScopedPolicy on(yard::Scope().device(first));
    CHECK(lines_of_an_add(64) == 2);  // its own way
    CHECK(lines_of_an_add(32) == 1);  // it asked for the next, here the default
    CHECK(codegen::matmul(2, 2, 2) == "tile 64x64 of 2x2x2");
  }
  {
    yard::ScopedPolicy on(yard::Scope().device(second));
    CHECK(lines_of_an_add(64) == 1);
    CHECK(codegen::matmul(2, 2, 2) == "tensor core 128x128, 8 products");
  }
  CHECK(codegen::matmul(2, 2, 2) == "tile 64x64 of 2x2x2");  // on no device nothing is active
  // [/devices]

  // [falsy]
  {
    yard::ScopedPolicy on(yard::Scope().device(first));
    Builder builder;
    CHECK(codegen::atomic_add(builder, {"%p", 64}, {"%v", 64}) == std::nullopt);
    CHECK(builder.lines().size() == 2);  // the default has not run behind its back
  }
  // [/falsy]

  // [scope]
  {
    yard::ScopedPolicy in(yard::Scope().backend("mthreads_like"));  // this thread, in this block
    CHECK(codegen::matmul(1, 1, 1) == "tensor core 128x128, 1 products");
  }
  CHECK(codegen::matmul(1, 1, 1) == "tile 64x64 of 1x1x1");
  // [/scope]

  // [list]
  for (const yard::FunctionInfo& f : functions.list()) CHECK(f.declared && !f.providers.empty());
  const yard::FunctionInfo add = functions.find("codegen/atomic_add").value();
  CHECK(add.providers[0].backend == "iluvatar_like" && add.providers[0].devices[0] == first);
  // [/list]

  // [unload]
  yard::Ticket gone = runtime.plugins().unload("iluvatar_like").value();
  gone.wait().or_throw();  // no call runs its functions, its code is gone
  // [/unload]
  yard::ScopedPolicy on(yard::Scope().device(first));
  CHECK(lines_of_an_add(64) == 1);
  return 0;
}
