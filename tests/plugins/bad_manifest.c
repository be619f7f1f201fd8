/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin whose manifest is what the build defines, valid or not. */
#include <yard/plugin.h>

#ifdef YARD_BAD_ABI
#undef YARD_ABI_TEXT
#define YARD_ABI_TEXT YARD_BAD_ABI
#endif
#ifdef YARD_BAD_SANITIZER
#undef YARD_SANITIZER_
#define YARD_SANITIZER_ YARD_BAD_SANITIZER
#endif
#ifdef YARD_BAD_ARCH
#undef YARD_ARCH_
#define YARD_ARCH_ YARD_BAD_ARCH
#endif

static const yard_plugin_t plugin = {.size = sizeof plugin, .name = "bad", .version = "1.0"};
const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t host_abi, const yard_host_t* host) {
  (void)host_abi, (void)host;
  return &plugin;
}

YARD_MANIFEST("bad", "1.0", "");
