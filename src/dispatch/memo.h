// SPDX-License-Identifier: Apache-2.0
// Storing call memos (yard/detail/memo.h), and finding those of packed calls.
#pragma once

#include <yard/detail/memo.h>

#include "base/thread_record.h"
#include "dispatch/entry.h"

namespace yard::dispatch {

// The hash of a packed call. Its arguments may be anything.
uint64_t packed_hash(const detail::Site& site, uint64_t scope, const yard_value_t* args,
                     uint32_t count) noexcept;
// The memo of a packed call's form, stale or not; null: none.
const detail::CallMemo* find_packed(const detail::CallMemos& memos, const detail::Site& site,
                                    uint64_t scope, const yard_value_t* args, uint32_t count,
                                    uint64_t hash) noexcept;

// How the words of a form are laid out: see CallMemo.
enum class FormKind : uint8_t { kTyped, kPacked };

// Remembers the form of a call that fits its schema and whose plan was found, from its second time on. `args`
// have facts. Forms that are too large, and those of ops whose choice reads strings, are not remembered.
void remember(base::ThreadRecord& thread, const detail::Site& site, uint64_t hash, FormKind kind,
              const detail::Route& route, const yard_value_t* args);

// In a forked child: what the forking thread remembers is void, as its counters are.
void forget_memos() noexcept;

}  // namespace yard::dispatch
