/* SPDX-License-Identifier: Apache-2.0 */
/* Sample calls of a dispatched function, as they cross from a plugin to a host that does not know the types of its
 * arguments: yard_hook_t::samples of plugin.h. The host asks the verifier about each, several times and on several
 * threads, and looks whether it changes anything; nothing is run. In C++ samples.h and plugin_hooks.hpp do all this.
 * Standalone C11, as plugin.h. */
#pragma once

#include <yard/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The arguments of one call. Valid while take() runs. */
typedef struct yard_sample {
  uint32_t size, pad_;
  void* self;
  /* Calls `verify`, a yard_hook_t::verify of the function's signature, with `of` and the arguments, and returns what
   * that does; several threads may ask at once. */
  int32_t (*ask)(void* self, void (*verify)(void), void* of, yard_verdict_t* verdict);
  /* Calls see() with whatever a verifier could reach through them and must not change. NULL: nobody knows. */
  void (*visit)(void* self, void (*see)(void* to, const void* data, uint64_t bytes), void* to);
} yard_sample_t;

/* Who takes them: what `to` of yard_hook_t::samples points to, which hands one call after the other to take(). */
typedef struct yard_samples {
  uint32_t size, pad_;
  void* self;
  void (*take)(void* self, const yard_sample_t* sample);
} yard_samples_t;

#ifdef __cplusplus
} /* extern "C" */
#endif
