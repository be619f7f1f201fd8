// SPDX-License-Identifier: Apache-2.0
// Plugins: shared libraries that bring ops, kernels, backends and hooks.
//
// Finding a plugin runs none of its code: its manifest (YARD_MANIFEST in plugin.h) says what it serves. It
// is opened when one of its ops is first called, resolved, explained or attached, one of its hooks first used,
// or when load() asks for it. Whatever is wrong with a file, it is refused with a reason and everything else goes on.
//
//   runtime.plugins().discover({"/opt/acme/plugins"}).or_throw();
//   rms_norm(out, x, weight, 1e-6f).or_throw();                     // opens what serves rms_norm
//   yard::Ticket gone = runtime.plugins().unload("acme").value();
//   gone.wait().or_throw();                                         // now its file may be replaced
//
// A file must be replaced by renaming another over it, as installers do, not by writing into it.
#pragma once

#include <yard/config.h>
#include <yard/registry.h>
#include <yard/result.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yard {

namespace plugin {
class Loader;
}

struct PluginSettings {
  // Files, or directories whose *.so are meant; absolute. They come before all others.
  std::vector<std::string> paths;
  // Whether to look where plugins are installed.
  bool installed = true;
  // Files and directories that others can write are taken, too.
  bool allow_writable = false;
  // Only what this file lists is loaded. Empty: what the files `yard.lock` in the searched directories
  // list, or everything when there is none.
  std::string lock_file;

  // Unset: what YARD_PLUGIN_PROBE says, or never, as a probe takes some hundredths of a second.
  std::optional<PluginProbe> probe;
  double probe_seconds = 10;
  uint64_t probe_memory = uint64_t{4} << 30;  // bytes of address space
  // The program that does it, absolute. Empty: `yard-probe`, as it was installed with this library.
  std::string probe_program;
  // Only plugins that `yard verify FILE` has found good, or remember_verified() was told so of, are loaded.
  bool require_verified = false;
  // Where results of probes and of `yard verify` are remembered, absolute. Empty: `yard` in $XDG_STATE_HOME or
  // ~/.local/state. What others can write is not believed; where nothing can be written, nothing is remembered.
  std::string state_directory;

  // Told of each step of a load before it begins: "opening", "query", "start". For those who must know where a
  // library crashed. Must not throw, nor call on the runtime.
  std::function<void(std::string_view path, std::string_view step)> watch;
};

enum class PluginState {
  kFound,      // its manifest is good; opened when it is needed
  kLoaded,     //
  kRefused,    // `reason` and `detail` say why; load() and discover() try it again
  kUnloading,  // taken out; calls in flight still use it
  kUnloaded,   // its code is gone; load() brings it back, calls do not
  kPinned,     // taken out, but its code cannot be removed from the process: see `detail`
};

// Why a file, a path or a plugin was not taken. docs/reference/plugin_reasons.md explains each.
enum class PluginReason {
  kNone = 0,
  kNotFound,
  kUnreadable,
  kRelativePath,
  kWritableByOthers,
  kNotElf,
  kDamaged,
  kOtherMachine,
  kNotALibrary,
  kNoManifest,
  kBadManifest,
  kAbiTooNew,
  kAbiTooOld,
  kMissingFeature,
  kOtherSanitizer,
  kDuplicateName,
  kBadLockFile,
  kNotInLockFile,
  kDigestDiffers,
  kNotVerified,
  kNotProbed,
  kProbeFailed,
  kCannotOpen,
  kNoQuery,
  kQueryDeclined,
  kQueryThrew,
  kBadDescriptor,
  kManifestDiffers,
  kConflict,
  kStartFailed,
};

// What a plugin can be needed for.
enum class PluginOffer { kOp, kGroup, kHook };

// "found", "loaded", ...; "not_found", "other_sanitizer", ...
YARD_API const char* to_string(PluginState state) noexcept;
YARD_API const char* to_string(PluginReason reason) noexcept;

struct PluginInfo {
  std::string path;
  PluginState state = PluginState::kFound;
  PluginReason reason = PluginReason::kNone;
  std::string detail;
  // What the manifest says; empty where there is none.
  std::string name, version, build, arch, sanitizer;
  uint32_t abi = 0;
  std::vector<std::string> devices, features, ops, groups, hooks;
  std::string sha256;  // once it has been loaded, and of inspect()
  // What is remembered of that digest, of inspect() and probe().
  std::optional<bool> probed;  // whether the last probe passed
  bool verified = false;
};

// What became of a library in a process of its own.
struct ProbeReport {
  PluginReason reason =
      PluginReason::kNone;  // kProbeFailed, kNotProbed, or why it would not be loaded
  std::string
      detail;       // "died of SIGSEGV in its query", "was still running after 10 s, in its start"
  PluginInfo info;  // as inspect() has it
  size_t kernels = 0, runs = 0;
  double seconds = 0;
  bool passed() const noexcept { return reason == PluginReason::kNone; }
};

// Writes a lock file that lists these plugins by name, version and digest: whole, or not at all. See
// PluginSettings::lock_file.
YARD_API Status write_plugin_lock(const std::string& path, const std::vector<PluginInfo>& plugins);

// The plugins of one runtime; valid as long as that is. Any thread may call any of it at any time; inside a
// plugin's own query, start or stop everything but list() and inspect() is the error `would_deadlock`.
class Plugins {
 public:
  // Looks through files and directories, absolute, before the places known so far; without any, looks
  // again through those. What was unloaded stays so, unless its own file is given or has changed. The error is what is wrong with an entry itself; files of a directory that are
  // refused are only listed. Plugins that serve an op or a hook which has been used are loaded at once.
  YARD_API Status discover(const std::vector<std::string>& paths = {});
  // All that was found and refused, in the order of the search.
  YARD_API std::vector<PluginInfo> list() const;
  // By name, or by the absolute path of a file. Fine if it is loaded; all or nothing.
  YARD_API Status load(std::string_view name_or_path);
  // Opens what was found and serves an op, a group of dispatched functions or a hook, as the first use of
  // it does. Plugins that cannot be opened are refused and logged; the others count.
  YARD_API Status need(PluginOffer what, std::string_view name);
  // Takes its entries out at once. The ticket is done when no call uses them, its state is destroyed and the
  // library is closed. An error if others depend on an op or backend of it.
  YARD_API Result<Ticket> unload(std::string_view name);
  // Takes it off the list, if it is not loaded.
  YARD_API Status forget(std::string_view name_or_path);

  // Looks at a file without running or remembering anything of it.
  YARD_API PluginInfo inspect(std::string_view path) const;
  // The same, refused also where load() would refuse it before opening it: by a lock file, by require_verified, by
  // the probe that it failed. Another plugin of the same name has no say here.
  YARD_API PluginInfo would_load(std::string_view path) const;
  // Tries a file in a process of its own, whatever is remembered of it, and remembers what came of it. Nothing
  // of it runs here. Lock files have no say.
  YARD_API ProbeReport probe(std::string_view path) const;
  // For `require_verified`: the plugin with that digest has passed (or has not). The error says why that
  // cannot be remembered.
  YARD_API Status remember_verified(std::string_view sha256, bool passed = true) const;

  // For the library itself.
  plugin::Loader& loader() const noexcept { return *loader_; }

 private:
  friend class Runtime;
  explicit Plugins(plugin::Loader& loader) : loader_(&loader) {}
  plugin::Loader* loader_;
};

}  // namespace yard
