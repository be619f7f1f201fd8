// SPDX-License-Identifier: Apache-2.0
// Fork: the child leaves the inherited locks alone and goes on from the last published snapshot.
#pragma once

namespace yard::detail {
class Core;
}

namespace yard::dispatch {

// Arranges, once per process, that forked children are usable at once. Takes no lock at fork.
void watch_forks();

// Cores a child has to repair. Lock-free, so that a fork at any moment finds the list whole.
void add_core(detail::Core* core);
void remove_core(detail::Core* core);

}  // namespace yard::dispatch
