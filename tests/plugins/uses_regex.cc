// SPDX-License-Identifier: Apache-2.0
// A plugin with many templates of the standard library. Their GNU-unique symbols would keep it in
// the process if yard_add_plugin() did not build it accordingly.
#include <yard/plugin.hpp>

#include <regex>

namespace {

void run(yard::plugin::Call, yard::plugin::Tensor out, yard::plugin::Tensor) {
  static const std::regex kWord("[[:alpha:]]+");
  *out.data<int64_t>() = std::regex_match("word", kWord) ? 7 : 0;
}

}  // namespace

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t*) {
  using namespace yard::plugin;
  static const Plugin plugin = Plugin(YARD_PLUGIN_NAME, YARD_PLUGIN_VERSION)
                                   .add(Backend("uses_regex"))
                                   .add(OpDef("uses_regex(out!: i64[n], x: i64[n])"))
                                   .add(Kernel::of<run>("uses_regex", "default.uses_regex"));
  return plugin.get();
}
