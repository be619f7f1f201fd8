/* SPDX-License-Identifier: Apache-2.0 */
/* Another manifest for a plugin that has one. */
#include <yard/plugin.h>

YARD_MANIFEST("second", "1.0", YARD_MANIFEST_OPS("second"));
