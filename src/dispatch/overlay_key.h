// SPDX-License-Identifier: Apache-2.0
// Which entry of an op a call needs when its scope or options decide about the choice. Finding that entry
// compares, and allocates nothing.
#pragma once

#include <yard/options.h>

#include <cstdint>

namespace yard::dispatch {

// Borrows the options.
struct OverlayKey {
  uint64_t scope = 0;                // number of the scope's policy; 0: none
  const Options* options = nullptr;  // null: they say nothing that counts
  bool labelled = false;             // the labels of the options count
  bool rollout = false;              // by the rules of a rollout
  uint64_t hash = 0;                 // 0: the global entry will do

  // `options` may be null.
  static OverlayKey make(uint64_t scope, const Options* options, bool labelled, bool rollout);
  bool operator==(const OverlayKey& o) const noexcept;
};

// The hash of a scope alone.
inline uint64_t scope_hash(uint64_t id) noexcept { return id * 0x9e3779b97f4a7c15ull; }

}  // namespace yard::dispatch
