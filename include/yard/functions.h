// SPDX-License-Identifier: Apache-2.0
// The dispatched functions of a process (function.h) and who provides them: listing, explaining, lazy groups.
//
// A group's backends may come late: from plugins whose manifest names the group, and from providers, which are
// asked at the first call of one of its functions. A provider that fails is reported and costs the others
// nothing; load() asks it again.
//
//   yard::add_provider("kda", [](yard::Changes& c) {
//     c.add_backend(fast);
//     yard::implement(c, chunk_attention, "fast", fast_chunk, fast_chunk_fits);
//     return yard::Status();
//   });
#pragma once

#include <yard/registry.h>
#include <yard/status.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace yard {

namespace detail {
struct FunctionArgs;
struct FunctionSite;
}  // namespace detail
namespace function {
class Registry;
}

// A reason that a verifier gave, with the figures it had the first time. The first sixteen of an implementation are
// kept apart and logged, further ones counted together.
struct FunctionRefusal {
  std::string reason;  // name in the catalogue; "own" for a verifier's own text
  std::string text;
  uint64_t count = 0;
};

// One backend's implementation of a function.
struct FunctionProvider {
  std::string backend;
  int priority = 0;  // as it counts: higher first
  bool on = false;   // calls ask it
  std::string reason, detail;
  std::string breaker = "closed";  // or "open", "half_open": one call at a time tries it
  uint64_t calls = 0, failures = 0;
  std::vector<FunctionRefusal> refusals;
};

struct FunctionInfo {
  std::string group, name;
  std::string signature;  // as declared; of an orphan, as provided
  std::string choice;     // the key it chooses by, where that is not its own
  bool declared = false;  // false: an orphan, provided and declared by nobody
  bool asked = false;     // called, or loaded for: the group has been asked for its backends
  std::vector<FunctionProvider>
      providers;  // in the order in which calls ask them, those that are out last
  uint64_t original_calls = 0;
};

// What became of one that a group's functions can come from.
struct FunctionSource {
  std::string group;
  std::string name;
  bool done = false;
  uint64_t attempts = 0;
  std::string error;  // of the last attempt; empty: none, or not tried yet
};

struct FunctionCandidate {
  std::string backend;
  int priority = 0;
  std::string verdict;  // "selected", "able", "refused" by its verifier, "broken" verifier, "out"
  std::string reason, detail;
};

struct FunctionExplanation {
  std::string function;  // "kda/chunk_attention"
  std::string selected;  // a backend, or "original"
  std::string why;  // where something else than priority decided: the master switch, a commit group
  std::vector<FunctionCandidate> candidates;
  // A line for each.
  YARD_API std::string to_text() const;
};

// Fills in what the group gets. Nothing of it counts if the status is an error, or if it throws. One runs at a time.
// Must not wait for other threads that call functions or add providers.
using FunctionSetup = std::function<Status(Changes&)>;

// The functions as one runtime sees them; valid as long as that is. Any thread, at any time.
class Functions {
 public:
  // Declared and provided ones, by group and name. Loads nothing.
  YARD_API std::vector<FunctionInfo> list() const;
  // One of them: "kda/chunk_attention".
  YARD_API Result<FunctionInfo> find(std::string_view function) const;
  YARD_API std::vector<FunctionSource> sources() const;

  // Providers of one group add up. One that comes after the group was loaded is asked at once, in its turn; its error
  // is in sources() and in the log. One that comes from the code of a plugin that is being loaded may be asked by the
  // next call.
  YARD_API void add_provider(std::string group, FunctionSetup setup, std::string name = {});
  // What the first call does, and again what failed. The error is the first of those that failed; not_found: nobody
  // declares, provides or serves the group; would_deadlock: the code of a plugin that is being loaded cannot do so.
  YARD_API Status load(std::string_view group);

  // Every verifier that a call asks is checked: see Function::check_verifiers(). Slow. On from the start in debug
  // builds of the library, and where YARD_CHECK_VERIFIERS says so.
  YARD_API void check_verifiers(bool on);

  explicit Functions(function::Registry& registry) noexcept : registry_(&registry) {}
  // For the headers of functions.
  function::Registry& registry() const noexcept { return *registry_; }

 private:
  function::Registry* registry_;
};

// On Runtime::shared().
YARD_API void add_provider(std::string group, FunctionSetup setup, std::string name = {});

namespace detail {

YARD_API FunctionExplanation explain_function(FunctionSite& site, const FunctionArgs& args);
YARD_API std::vector<std::string> check_function(FunctionSite& site, const FunctionArgs& args);
// The number of a text, for ever; YARD_REASON_REFUSED where there are too many.
YARD_API int32_t intern_reason(const char* text) noexcept;
YARD_API const yard_host_t* function_host() noexcept;

}  // namespace detail
}  // namespace yard
