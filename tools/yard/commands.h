// SPDX-License-Identifier: Apache-2.0
// Every command adds itself, its options and its help; main() runs the chosen action.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace yard::tool {

// Runs the chosen command and returns its exit code.
using Action = std::function<int()>;
using AddCommand = void(CLI::App& parent, Action& action);

AddCommand add_list, add_explain, add_run, add_verify, add_config, add_bake, add_plugin,
    add_metrics, add_report, add_functions, add_doctor;
AddCommand add_bench_dispatch, add_bench_kernels;                                 // below `bench`
AddCommand add_config_diff, add_config_simulate;                                  // below `config`
AddCommand add_plugin_lock, add_plugin_new, add_plugin_upgrade, add_plugin_live;  // below `plugin`
// These commands work on a running process.
AddCommand add_ps, add_top, add_status, add_policy, add_deny, add_allow, add_breaker, add_undo,
    add_changes, add_events, add_log, add_verbose, add_trace, add_record;
// These commands keep `parent`, because they show its commands and options.
AddCommand add_completion, add_help;

}  // namespace yard::tool
