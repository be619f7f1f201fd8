// SPDX-License-Identifier: Apache-2.0
// The program `yard-probe`, in which a library is tried before another process opens it.
#include <yard/plugins.h>

int main(int argc, char** argv) { return yard::detail::probe_child(argc, argv); }
