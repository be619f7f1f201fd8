/* SPDX-License-Identifier: Apache-2.0 */
/* Adds a second manifest to a plugin. */
#include <yard/plugin.h>

YARD_MANIFEST("second", "1.0", YARD_MANIFEST_OPS("second"));
