// SPDX-License-Identifier: Apache-2.0
// yard plugin: commands for plugins.
#include <CLI/CLI.hpp>

#include "plugin_commands.h"
#include "plugin_new.h"

namespace yard::tool {

void add_plugin(CLI::App& app, Action& action) {
  CLI::App* plugin = app.add_subcommand("plugin", "List, check, lock, upgrade and create plugins");
  plugin->require_subcommand(1);
  plugin->footer(
      "Examples:\n"
      "  yard plugin list                    found plugins, and refused ones with the reason\n"
      "  yard plugin inspect ./acme.so       the manifest of a file\n"
      "  yard plugin probe ./acme.so         run it in a separate process\n"
      "  yard verify ./acme.so               compare its kernels with the reference\n"
      "  yard plugin lock /opt/acme          load only these from now on\n"
      "  yard plugin upgrade ./acme.so       replace the installed version\n"
      "  yard plugin new acme                a new plugin project");
  add_plugin_list(*plugin, action);
  add_plugin_inspect(*plugin, action);
  add_plugin_lock(*plugin, action);
  add_plugin_probe(*plugin, action);
  add_plugin_upgrade(*plugin, action);
  add_plugin_new(*plugin, action);
}

}  // namespace yard::tool
