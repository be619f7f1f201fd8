// SPDX-License-Identifier: Apache-2.0
// Options ask for more than the arguments of one call do. A ResultRecord reports about the call.
//
//   yard::Options o;
//   o.force = "reference.cpp";
//   yard::ResultRecord r;
//   o.result = &r;
//   rms_norm.with(o)(out, x, weight, 1e-6f).or_throw();
//
// Threads may share an Options value while none changes it and `result` is unset.
#pragma once

#include <yard/policy.h>

#include <chrono>

namespace yard {

class Instance;  // bound.h

enum class Mode : uint8_t {
  kAuto,       // static where mapped, rules where one matches, else dynamic
  kStatic,     // only the mapped kernel; an op without one is the error `unmapped`
  kDynamic,    // select and cache
  kConfig,     // rules first
  kHotReload,  // config, watched
  kProgram,    // one that the program has added (ModeProvider), given by its name
};
YARD_API const char* to_string(Mode m) noexcept;
YARD_API std::optional<Mode> parse_mode(std::string_view text) noexcept;

// A report about a call. Only calls with a record read a clock.
struct ResultRecord {
  char kernel[136] = {};            // id of the kernel that ran last; empty if none did
  const char* mode_name = nullptr;  // the name of a kProgram mode, for the life of the process
  Mode mode = Mode::kDynamic;       // what chose the first kernel; by mode_fallback, the last
  bool cached = false;              // the plan was in the cache
  uint8_t attempts = 0;             // kernels run: more than one means fallback
  uint8_t fallback_from = 0;        // ErrorClass of the first failure, 0 if there was none
  int64_t select_ns = 0;            // check, key, lookup or selection
  int64_t run_ns = 0;               // the kernels
  int64_t pre_ns = 0, post_ns = 0;  // copying arguments before a kernel, and its results after it
};

struct Options {
  std::string force;              // the only kernel id to use; bypasses neither deny nor capability
  std::vector<std::string> deny;  // globs over kernel ids, in addition to what policy denies
  std::optional<Policy> policy;   // precedes scope, process, environment and file
  std::optional<Mode> mode;       // if unset, the mode of the settings
  std::string mode_name;          // the mode by name, also a mode of the program
  bool cache = true;              // if false, select again and store nothing
  std::optional<std::chrono::steady_clock::time_point> deadline;  // no kernel starts after it
  std::map<std::string, std::string, std::less<>> labels;         // for rules and traces
  bool deterministic = false;          // only kernels that give the same bits each time
  bool capturing = false;              // only kernels that may run while a graph is captured
  bool inference = false;              // no gradient will be computed
  const Instance* instance = nullptr;  // options and weights for kernels that have state
  ResultRecord* result = nullptr;      // filled in before the call returns, also when it fails
};

}  // namespace yard
