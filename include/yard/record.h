// SPDX-License-Identifier: Apache-2.0
// Recordings: which calls a program makes, and how often, as text that the command reads.
//
//   runtime.record_to("calls.txt").or_throw();      // or YARD_RECORD=calls.txt in the environment
//   ...                                             // a warm-up
//   runtime.stop_recording().or_throw();
//   // yard bake --trace calls.txt --header baked.h
//
// A line of the file is a count, a tab and a CallSpec, the most frequent first. Calls that run are recorded, through
// bound handles, too; frozen handles are not seen. While nothing is recorded nothing is paid; while something is,
// a call costs some hundred nanoseconds more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace yard {

// Distinct calls that a recording holds. Further ones are counted as dropped.
inline constexpr size_t kMostRecorded = 65536;

struct RecordingStats {
  std::string path;      // of the file; empty: nothing is recorded
  uint64_t calls = 0;    // that are in it
  uint64_t dropped = 0;  // that are not, since there were too many distinct ones
  size_t distinct = 0;
  std::string
      problem;  // why the file could not be written when that was last tried; empty: it could
};

}  // namespace yard
