/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin that cannot be opened, because it calls a function that no library defines. */
#include <yard/plugin.h>

int a_function_nobody_has(void);

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t host_abi, const yard_host_t* host) {
  (void)host_abi, (void)host, (void)a_function_nobody_has();
  return NULL;
}

YARD_MANIFEST("needs_more", "1.0", "");
