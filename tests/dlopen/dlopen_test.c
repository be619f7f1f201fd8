/* SPDX-License-Identifier: Apache-2.0
 * Opens a library and looks up a symbol in it. Usage: yard_dlopen_test LIBRARY SYMBOL
 * A symbol named call_from_library is called, and must return 0. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  void* const symbol = dlsym(library, argv[2]);
  if (symbol == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  if (strcmp(argv[2], "call_from_library") != 0) return 0;
  int (*call)(void);
  memcpy(&call, &symbol, sizeof call);
  return call();
}
