// SPDX-License-Identifier: Apache-2.0
// The tables themselves. A setting stands here exactly when something reads it.
#include "policy/config_keys.h"

namespace yard::policy {
namespace {

constexpr double kDay = 86'400;

constexpr const char* kWatches[] = {"auto", "inotify", "poll"};

template <auto Part, auto Member>
SettingAt in(ConfigSettings& s) {
  return &((s.*Part).*Member);
}
template <auto Member>
SettingAt own(ConfigSettings& s) {
  return &(s.*Member);
}
using S = ConfigSettings;

constexpr Key kDefaults[] = {
    {.name = "fallback_policy",
     .shape = Shape::kKernels,
     .meaning = "kernels to fall back to, in order, for ops that have no chain of their own"},
    {.name = "default_priority",
     .shape = Shape::kWhole,
     .meaning = "priority of rules that state none",
     .most = kMostPriority,
     .fallback = "50"},
};

constexpr Key kRule[] = {
    {.name = "operation",
     .shape = Shape::kOpGlob,
     .meaning = "the op, or a glob over ops",
     .required = true},
    {.name = "conditions",
     .shape = Shape::kConditions,
     .meaning = "what must hold of the call, all of it"},
    {.name = "kernel",
     .shape = Shape::kKernel,
     .meaning = "the kernel that serves such calls, or a glob over kernels",
     .required = true},
    {.name = "priority",
     .shape = Shape::kWhole,
     .meaning = "of rules that match, the highest goes first; of equals, the earlier",
     .most = kMostPriority,
     .fallback = "defaults.default_priority"},
    {.name = "optional",
     .shape = Shape::kSwitch,
     .meaning = "the op or the kernel may be unknown: a plugin may bring it later",
     .fallback = "false"},
    {.name = "name", .shape = Shape::kText, .meaning = "how explanations call the rule"},
    {.name = "description", .shape = Shape::kText, .meaning = "for people"},
};

constexpr Key kScore[] = {
    {.name = "operation",
     .shape = Shape::kOpGlob,
     .meaning = "the op, or a glob over ops",
     .fallback = "*"},
    {.name = "conditions",
     .shape = Shape::kConditions,
     .meaning = "what must hold of the call, all of it"},
    {.name = "kernel",
     .shape = Shape::kKernel,
     .meaning = "the kernel, or a glob over kernels",
     .required = true},
    {.name = "add",
     .shape = Shape::kNumber,
     .meaning = "added to the kernel's priority",
     .least = -1e6,
     .most = 1e6,
     .fallback = "0"},
    {.name = "multiply",
     .shape = Shape::kNumber,
     .meaning = "the sum is multiplied by it",
     .least = 0,
     .most = 1e6,
     .fallback = "1"},
    {.name = "optional",
     .shape = Shape::kSwitch,
     .meaning = "the op or the kernel may be unknown: a plugin may bring it later",
     .fallback = "false"},
    {.name = "name", .shape = Shape::kText, .meaning = "how explanations call it"},
    {.name = "description", .shape = Shape::kText, .meaning = "for people"},
};

constexpr const char* kKinds[] = {"default", "vendor", "reference"};
constexpr Key kPolicy[] = {
    {.name = "prefer",
     .shape = Shape::kWord,
     .meaning = "the kind of kernel that comes first",
     .words = kKinds},
    {.name = "strict", .shape = Shape::kSwitch, .meaning = "the first choice or its error"},
    {.name = "reference_only", .shape = Shape::kSwitch, .meaning = "reference kernels only"},
    {.name = "per_op", .shape = Shape::kOpOrders, .meaning = "what may run for an op, best first"},
    {.name = "allow_vendors",
     .shape = Shape::kVendors,
     .meaning = "the only vendors whose kernels may run"},
    {.name = "deny_vendors",
     .shape = Shape::kVendors,
     .meaning = "vendors whose kernels may not run"},
    {.name = "allow_kernels",
     .shape = Shape::kGlobs,
     .meaning = "the only kernels that may run; the same as kernel_allows"},
    {.name = "deny_kernels",
     .shape = Shape::kGlobs,
     .meaning = "kernels that may not run; the same as kernel_denies"},
    {.name = "locks",
     .shape = Shape::kOpKernel,
     .meaning = "the only kernel for an op; the same as kernel_locks"},
    {.name = "backends", .shape = Shape::kSwitches, .meaning = "switches single backends"},
};

constexpr Key kCache[] = {
    {.name = "enabled",
     .shape = Shape::kSwitch,
     .meaning = "whether plans are kept; off means to select anew for each call",
     .at = in<&S::cache, &S::Cache::enabled>,
     .fallback = "true"},
    {.name = "size",
     .shape = Shape::kWhole,
     .meaning = "plans kept per op; beyond it the oldest goes",
     .least = 1,
     .most = 1e7,
     .at = in<&S::cache, &S::Cache::size>,
     .fallback = "as the program says: 4096"},
};

constexpr Key kReload[] = {
    {.name = "watch",
     .shape = Shape::kWord,
     .meaning = "how changes of the file are noticed; auto means inotify where it works, else poll",
     .words = kWatches,
     .at = in<&S::reload, &S::Reload::watch>,
     .fallback = "auto"},
    {.name = "debounce",
     .shape = Shape::kDuration,
     .meaning = "how long a file must rest before it is read; the last write always counts",
     .most = kDay,
     .at = in<&S::reload, &S::Reload::debounce>,
     .fallback = "100ms"},
    {.name = "poll_interval",
     .shape = Shape::kDuration,
     .meaning = "how often poll looks at the files",
     .least = 0.001,
     .most = kDay,
     .at = in<&S::reload, &S::Reload::poll_interval>,
     .fallback = "1s"},
};

constexpr Key kSettings[] = {
    {.name = "mode",
     .shape = Shape::kMode,
     .meaning = "how plans are obtained: auto, static, dynamic, config or hot_reload",
     .at = own<&S::mode>,
     .fallback = "auto"},
    {.name = "modes", .shape = Shape::kOpModes, .meaning = "the mode of single ops"},
    {.name = "cache", .shape = Shape::kMap, .meaning = "plans that are kept", .inner = kCache},
    {.name = "max_fallback_attempts",
     .shape = Shape::kWhole,
     .meaning = "how many more kernels are tried after the first has failed",
     .most = 100,
     .at = own<&S::max_fallback_attempts>,
     .fallback = "all there are"},
    {.name = "reload", .shape = Shape::kMap, .meaning = "watching the file", .inner = kReload},
};

constexpr Key kRoot[] = {
    {.name = "version",
     .shape = Shape::kVersion,
     .meaning = "of this grammar: 1.0",
     .required = true},
    {.name = "include",
     .shape = Shape::kPaths,
     .meaning = "other files, relative to this one, whose word is weaker than this one's"},
    {.name = "defaults",
     .shape = Shape::kMap,
     .meaning = "what holds where nothing else is said",
     .inner = kDefaults},
    {.name = "dispatch_rules",
     .shape = Shape::kMaps,
     .meaning = "which kernel serves which calls",
     .inner = kRule},
    {.name = "kernel_locks",
     .shape = Shape::kOpKernel,
     .meaning = "the only kernel for an op; bypasses neither deny nor capability"},
    {.name = "kernel_denies", .shape = Shape::kGlobs, .meaning = "kernels that may not run"},
    {.name = "kernel_allows", .shape = Shape::kGlobs, .meaning = "the only kernels that may run"},
    {.name = "fallback_chains",
     .shape = Shape::kOpKernels,
     .meaning = "kernels to fall back to, in order"},
    {.name = "policy", .shape = Shape::kMap, .meaning = "preferences", .inner = kPolicy},
    {.name = "static_kernel_map",
     .shape = Shape::kOpKernel,
     .meaning = "the kernel of an op in static mode; ops by name, no globs"},
    {.name = "score",
     .shape = Shape::kMaps,
     .meaning = "adjustments of kernels' priorities",
     .inner = kScore},
    {.name = "settings",
     .shape = Shape::kMap,
     .meaning = "how the runtime works",
     .inner = kSettings},
};

}  // namespace

std::span<const Key> root_keys() noexcept { return kRoot; }
std::span<const Key> rule_keys() noexcept { return kRule; }
std::span<const Key> score_keys() noexcept { return kScore; }
std::span<const Key> defaults_keys() noexcept { return kDefaults; }
std::span<const Key> policy_keys() noexcept { return kPolicy; }
std::span<const Key> settings_keys() noexcept { return kSettings; }

}  // namespace yard::policy
