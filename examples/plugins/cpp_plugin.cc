// SPDX-License-Identifier: Apache-2.0
// A plugin in C++ with a new op, its reference kernel, and a faster kernel on the host's threads.
// [plugin]
#include <cmath>
#include <yard/plugin.hpp>

using namespace yard::plugin;

// Defines the op. Its claim says which arguments it takes, so there is nothing to check.
static void softcap(Call, Tensor out, Tensor x, double cap) {
  for (int64_t i = 0; i < x.numel(); ++i)
    out.data<float>()[i] = float(cap * std::tanh(x.data<float>()[i] / cap));
}

static void softcap_threads(Call call, Tensor out, Tensor x, double cap) {
  const float c = float(cap), *from = x.data<float>();
  call.parallel_for(x.numel(), 4096, [&, to = out.data<float>()](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = c * std::tanh(from[i] / c);
  });
}

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t*) {
  static const yard_limit_t limits[] = {dtypes({YARD_F32}), compact()};
  static const Plugin plugin =
      Plugin(YARD_PLUGIN_NAME, YARD_PLUGIN_VERSION)
          .add(Backend("example_cpp"))
          .add(OpDef("softcap(out!: T[*rows, d], x: T[*rows, d], cap: float = 30.0)"))
          .add(Kernel::of<softcap>("softcap", "reference.example_cpp")
                   .kind(YARD_KIND_REFERENCE)
                   .limits(limits))
          .add(Kernel::of<softcap_threads>("softcap", "default.example_cpp").limits(limits));
  return plugin.get();
}
// [/plugin]
