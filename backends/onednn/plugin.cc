// SPDX-License-Identifier: Apache-2.0
// The descriptor of backend `onednn`.
#include <dnnl.hpp>
#include <mutex>

#include "kernels.h"
#include "process.h"

namespace yard::onednn {
namespace {

const char* const kReasons[] = {
    "its OpenMP threads do not exist in a forked child",
    "it was compiled for oneDNN {0} and runs with {1}",
    "oneDNN finds no processor it can use",
    "no thread can be started, and its OpenMP library ends the process then",
};

// Touches no thread of OpenMP: asking whether it can be used must not make a process that cannot be forked.
int32_t probe(void*, const yard_host_t*, yard_device_t, yard_verdict_t* why) {
  watch_forks();
  const dnnl_version_t* version = dnnl_version();
  if (forked()) {
    why->reason = YARD_REASON_OWN;
  } else if (version->major != DNNL_VERSION_MAJOR) {
    why->reason = YARD_REASON_OWN + 1;
    why->figures[0] = DNNL_VERSION_MAJOR, why->figures[1] = version->major;
  } else if (dnnl_engine_get_count(dnnl_cpu) == 0) {
    why->reason = YARD_REASON_OWN + 2;
  } else if (!can_start(1)) {
    why->reason = YARD_REASON_OWN + 3;
  } else {
    return YARD_OK;
  }
  return YARD_DECLINED;
}

template <auto F>
plugin::Kernel kernel(const char* op, std::span<const yard_limit_t> limits) {
  return plugin::Kernel::of<F>(op, "vendor.onednn")
      .backend("onednn")
      .summary("oneDNN's primitive; rows it would get wrong in double")
      .kind(YARD_KIND_VENDOR)
      .flags(YARD_KERNEL_DETERMINISTIC | YARD_KERNEL_FAILS_BEFORE_WRITING)
      .limits(limits);
}

plugin::Plugin make() {
  static constexpr yard_limit_t softmax_limits[] = {plugin::dtypes({YARD_F32}), plugin::compact(),
                                                    plugin::aligned(4)};
  static constexpr yard_limit_t layer_norm_limits[] = {plugin::dtypes({YARD_F32}),
                                                       plugin::compact(), plugin::aligned(4),
                                                       plugin::at_most("hidden", kLongestNormRow)};
  plugin::Plugin p("onednn", "builtin");
  p.add(plugin::Backend("onednn")
            .vendor("onednn")
            .summary("primitives of Intel's oneDNN")
            .flags(YARD_BACKEND_FORK_UNSAFE)
            .probe(probe)
            .reasons(kReasons));
  p.add(kernel<softmax>("softmax", softmax_limits));
  p.add(kernel<layer_norm>("layer_norm", layer_norm_limits));
  return p;
}

}  // namespace

const yard_plugin_t* descriptor() {
  static constinit const plugin::Plugin* made = nullptr;
  static constinit std::once_flag once;  // which a fork cannot leave taken, as it can a static's
  std::call_once(once, [] { made = new plugin::Plugin(make()); });
  return made->get();
}

}  // namespace yard::onednn

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t*) {
  return yard::onednn::descriptor();
}
