// SPDX-License-Identifier: Apache-2.0
// How much of its stack a thread may use for nested calls.
#pragma once

namespace yard::base {

// Whether less of this thread's stack is left than a call may need: 256 KiB, or a quarter of a small stack. False on a stack
// that is not the thread's own, as that of a fiber. The first question of a thread may read /proc; allocates then only.
bool stack_is_low() noexcept;

}  // namespace yard::base
