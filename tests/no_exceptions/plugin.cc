// SPDX-License-Identifier: Apache-2.0
// A plugin that is compiled with -fno-exceptions. Its functions have external names, so that the
// linker could confuse the functions of the two kinds of files.
#include <yard/plugin.hpp>

namespace mixed_plugin {

using namespace yard::plugin;

// [kernel]
int32_t add_number(Call call, Tensor x, int64_t add) {
  if (add < 0) return call.fail(YARD_FAULT, "%d is negative", static_cast<int>(add));
  float* const data = x.data<float>();
  return call.parallel_for(x.size(0), 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) data[i] += static_cast<float>(add);
  });
}
// [/kernel]

struct State {
  explicit State(Named options) : number(options.integer("misspelt")) {}
  int64_t number;
};
int32_t use_state(Call, Tensor) { return YARD_OK; }

Plugin make() {
  return Plugin(YARD_PLUGIN_NAME, YARD_PLUGIN_VERSION)
      .add(Backend("codes"))
      .add(OpDef("mixed_add(x~: f32[n], add: int)"))
      .add(OpDef("mixed_state(x~: f32[n])"))
      .add(Kernel::of<add_number>("mixed_add", "default.codes").backend("codes"))
      .add(with_state<State>(Kernel::of<use_state>("mixed_state", "default.codes").backend("codes"),
                             "number: int = 1"));
}

}  // namespace mixed_plugin

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t*) {
  return yard::plugin::made_once<mixed_plugin::make>();
}
