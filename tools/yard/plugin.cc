// SPDX-License-Identifier: Apache-2.0
// yard plugin: what there is to do with plugins.
#include <CLI/CLI.hpp>

#include "plugin_commands.h"
#include "plugin_new.h"

namespace yard::tool {

void add_plugin(CLI::App& app, Action& action) {
  CLI::App* plugin = app.add_subcommand("plugin", "Plugins: what there is, and whether it is good");
  plugin->require_subcommand(1);
  plugin->footer(
      "Examples:\n"
      "  yard plugin list                    what is found, and what is refused and why\n"
      "  yard plugin inspect ./acme.so       what a file says of itself\n"
      "  yard plugin probe ./acme.so         whether it survives a process of its own\n"
      "  yard verify ./acme.so               whether it computes what its ops mean\n"
      "  yard plugin lock /opt/acme          only these are loaded from now on\n"
      "  yard plugin new acme                a project for a plugin of one's own");
  add_plugin_list(*plugin, action);
  add_plugin_inspect(*plugin, action);
  add_plugin_lock(*plugin, action);
  add_plugin_probe(*plugin, action);
  add_plugin_new(*plugin, action);
}

}  // namespace yard::tool
