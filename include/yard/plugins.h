// SPDX-License-Identifier: Apache-2.0
// Plugins are shared libraries with ops, kernels, backends and functions.
//
//   runtime.plugins().discover({"/opt/acme/plugins"}).or_throw();
//   rms_norm(out, x, weight, 1e-6f).or_throw();  // opens the plugin that serves rms_norm
//   yard::Ticket old = runtime.plugins().replace("acme").value();  // calls go on without a gap
//   old.wait().or_throw();                                         // the old code is gone
//
// Finding a plugin reads its manifest (plugin.h) and runs none of its code. load() opens a plugin,
// as does the first use of its ops or functions. Replace a file by renaming another over it.
#pragma once

#include <yard/config.h>
#include <yard/registry.h>

namespace yard {

namespace plugin {
class Loader;
}

struct PluginSettings {
  // Absolute paths of files, or of directories with *.so files, which are searched first.
  std::vector<std::string> paths;
  bool installed = true;                        // whether to search the installation directory
  bool allow_writable = false;                  // whether to accept what other users can write
  uint64_t max_file_bytes = uint64_t{2} << 30;  // larger files are refused before they are read
  // Only plugins in this file are loaded. If empty, the `yard.lock` files of the directories count.
  std::string lock_file;
  std::vector<std::string> unlocked;  // paths of plugins that need no entry in lock files

  // Load only plugins that passed `yard verify FILE` or that remember_verified() named.
  bool require_verified = false;
  // Absolute path of the directory for results of `yard verify`, by default `yard` in
  // $XDG_STATE_HOME or ~/.local/state. Files that other users can write are ignored.
  std::string state_directory;

  // Called before load steps ("opening", "query", "start"). Must not throw or use the runtime.
  std::function<void(std::string_view path, std::string_view step)> watch;
};

enum class PluginState {
  kFound,  // opened when it is needed
  kLoaded,
  kRefused,    // see `reason` and `detail`; load() and discover() try again
  kUnloading,  // unregistered; calls in flight still use it
  kUnloaded,   // closed; load() opens it again, calls do not
  kPinned,     // unregistered, but cannot be removed from the process: see `detail`
};

// The ops that a replacement must serve, with equal schemas. kInUse means those called so far.
enum class KeptOps : uint8_t { kInUse, kAll, kNone };

// docs/reference/plugin_reasons.md explains why a file or plugin was refused.
// clang-format off
enum class PluginReason {
  kNone = 0,
  kNotFound, kUnreadable, kRelativePath, kWritableByOthers, kTooLarge, kNotElf, kDamaged,
  kOtherMachine, kNotALibrary, kNoManifest, kBadManifest, kAbiTooNew, kAbiTooOld, kMissingFeature,
  kOtherSanitizer, kDuplicateName, kBusy, kBadLockFile, kNotInLockFile, kDigestDiffers,
  kNotVerified, kCannotOpen, kNoQuery, kQueryDeclined, kQueryThrew, kBadDescriptor,
  kManifestDiffers, kConflict, kStartFailed,
};
// clang-format on

YARD_API const char* to_string(PluginState state) noexcept;
YARD_API const char* to_string(PluginReason reason) noexcept;

struct PluginInfo {
  std::string path;
  PluginState state = PluginState::kFound;
  PluginReason reason = PluginReason::kNone;
  std::string detail;
  std::string name, version, build, arch, sanitizer;  // from the manifest; empty if there is none
  uint32_t abi = 0;
  std::vector<std::string> devices, features, ops, groups;  // groups of functions
  std::string sha256;                                       // set by load() and inspect()
  bool verified = false;  // the stored result for that digest; set by inspect()
};

// Atomically writes the name, version and digest of these plugins.
YARD_API Status write_plugin_lock(const std::string& path, const std::vector<PluginInfo>& plugins);

// The plugins of one runtime, valid as long as the runtime. Any thread may call any function. In a
// plugin's query, start or stop, all but list() and inspect() fail with `would_deadlock`.
class YARD_API Plugins {
 public:
  // Searches `paths` (absolute files and directories), if any, before all earlier places. Fails
  // only for invalid entries; list() shows refused files. Unloaded plugins stay unloaded unless
  // their file is given or has changed. Plugins for an op or group in use are loaded at once.
  Status discover(const std::vector<std::string>& paths = {});
  std::vector<PluginInfo> list() const;  // in search order, including refused ones
  // Takes a name or the absolute path of a file. Changes nothing on failure.
  Status load(std::string_view name_or_path);
  // Unregisters the plugin at once. Fails if others depend on one of its ops or backends. The
  // ticket is done when no call uses the plugin, its state is destroyed and the library is closed.
  Result<Ticket> unload(std::string_view name);
  // Replaces a plugin by the file at its path, or at `path`, in one change: calls find the old or
  // the new version. The old one stays if the new one is refused, lacks what others depend on, or
  // does not serve the ops to `keep`. Breakers of its backend close unless opened manually. An
  // equal digest changes nothing.
  Result<Ticket> replace(std::string_view name, std::string_view path = {},
                         KeptOps keep = KeptOps::kInUse);
  Status forget(std::string_view name_or_path);  // removes it from the list, if it is not loaded

  // Reads a file without running its code or changing the list.
  PluginInfo inspect(std::string_view path) const;
  // Like inspect(), with the checks that load() makes before it opens a file.
  PluginInfo would_load(std::string_view path) const;
  Status remember_verified(std::string_view sha256, bool passed = true) const;

  // States features of devices: "cuda:sm_90" for all, "cuda:1:sm_90" for one. A number after the
  // last '_' is a level, which includes lower ones. Tries refused plugins again.
  Status state_device_features(const std::vector<std::string>& features);

  // For the library itself.
  plugin::Loader& loader() const noexcept { return *loader_; }

 private:
  friend class Runtime;
  Plugins(const Runtime& runtime, plugin::Loader& loader) : runtime_(&runtime), loader_(&loader) {}
  const Runtime* runtime_;
  plugin::Loader* loader_;
};

}  // namespace yard
