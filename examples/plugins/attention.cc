// SPDX-License-Identifier: Apache-2.0
// Finds the plugin of swa_sink.cc, whose file is the argument, and uses its op with options and
// weights.
#include <yard/bound.h>
#include <yard/yard.h>

#include <vector>

#include "../check.h"

int main(int, char** argv) {
  // [find]
  yard::Plugins plugins = yard::Runtime::shared().plugins();
  plugins.discover({argv[1]}).or_throw();  // a file, or a directory of them; opens none
  // [/find]
  CHECK(plugins.list().at(0).state == yard::PluginState::kFound);

  std::vector<float> queries = {0}, keys = {1, 2, 3}, values = {60, 6, 12}, sink = {0}, result(1);
  const yard::TensorView q = yard::view(queries, {1, 1, 1, 1}), k = yard::view(keys, {1, 3, 1, 1}),
                         v = yard::view(values, {1, 3, 1, 1}), s_aux = yard::view(sink, {1}),
                         out = yard::view(result, {1, 1, 1, 1});
  // [use]
  auto attention = yard::Instance::make("flash_attention_2_swa_sink",
                                        {{"sliding_window", 2}, {"s_aux_enable", true}});
  attention.value().load({{"s_aux", s_aux}}).or_throw();
  attention.value().call({out, q, k, v}).or_throw();  // the first one makes the state
  // [/use]
  CHECK(near(result[0], 6));  // a third each of 6, 12 and the sink's 0; 60 is out of the window

  // [replace]
  yard::Ticket old = plugins.replace("swa_sink").value();  // by the file that is at its path now
  old.wait().or_throw();  // no call runs the old version, and its code is gone
  // [/replace]
  CHECK(plugins.list().at(0).state == yard::PluginState::kLoaded);

  // [unload]
  yard::Ticket gone = plugins.unload("swa_sink").value();
  gone.wait().or_throw();  // no call runs it, its states are ended, its code is gone
  // [/unload]
  CHECK(plugins.list().at(0).state == yard::PluginState::kUnloaded);
}
