// SPDX-License-Identifier: Apache-2.0
// A plugin that cannot be unloaded, because it has a GNU-unique symbol (PIN_UNIQUE) or a
// thread_local whose destructor has not run.
#include <yard/plugin.hpp>

#ifndef ANSWER
#define ANSWER 51
#endif

template <class T>
struct __attribute__((visibility("default"))) Unique {
  static T value;
};
template <class T>
T Unique<T>::value{};

namespace {

struct Lasting {
  ~Lasting() { ++Unique<int>::value; }
  int touched = 0;
};
#ifndef PIN_UNIQUE
thread_local Lasting t_lasting;
#endif

void run(yard::plugin::Call, yard::plugin::Tensor out, yard::plugin::Tensor) {
#ifndef PIN_UNIQUE
  ++t_lasting.touched;
#endif
  *out.data<int64_t>() = ANSWER + (++Unique<int>::value < 0);
}

}  // namespace

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t*) {
  using namespace yard::plugin;
  static const Plugin plugin = Plugin(NAME, "1.0")
                                   .add(Backend(NAME))
                                   .add(OpDef(NAME "(out!: i64[n], x: i64[n])"))
                                   .add(Kernel::of<run>(NAME, "default." NAME));
  return plugin.get();
}

YARD_MANIFEST(NAME, "1.0", YARD_MANIFEST_OPS(NAME));
