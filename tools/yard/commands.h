// SPDX-License-Identifier: Apache-2.0
// The commands. Each adds itself, its options and its help; main() runs the chosen action.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace yard::tool {

// Runs the chosen command and gives its exit code.
using Action = std::function<int()>;

void add_list(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_config(CLI::App& app, Action& action);
void add_bake(CLI::App& app, Action& action);
void add_plugin(CLI::App& app, Action& action);
void add_metrics(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_functions(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);
// These are about a running process.
void add_ps(CLI::App& app, Action& action);
void add_top(CLI::App& app, Action& action);
void add_status(CLI::App& app, Action& action);
void add_policy(CLI::App& app, Action& action);
void add_deny(CLI::App& app, Action& action);
void add_allow(CLI::App& app, Action& action);
void add_breaker(CLI::App& app, Action& action);
void add_undo(CLI::App& app, Action& action);
void add_changes(CLI::App& app, Action& action);
void add_log(CLI::App& app, Action& action);
void add_verbose(CLI::App& app, Action& action);
void add_trace(CLI::App& app, Action& action);
void add_record(CLI::App& app, Action& action);
// These two keep `app`, whose commands and options they show.
void add_completion(CLI::App& app, Action& action);
void add_help(CLI::App& app, Action& action);

// Below `bench`.
void add_bench_dispatch(CLI::App& bench, Action& action);
void add_bench_kernels(CLI::App& bench, Action& action);
// Below `config`.
void add_config_diff(CLI::App& config, Action& action);
void add_config_simulate(CLI::App& config, Action& action);
void add_config_load(CLI::App& config, Action& action);
void add_config_rollback(CLI::App& config, Action& action);
void add_config_history(CLI::App& config, Action& action);
// Below `plugin`.
void add_plugin_lock(CLI::App& plugin, Action& action);
// A project that builds and passes its tests unchanged.
void add_plugin_new(CLI::App& plugin, Action& action);
// Replaces an installed plugin by a new version.
void add_plugin_upgrade(CLI::App& plugin, Action& action);

}  // namespace yard::tool
