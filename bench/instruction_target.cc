// SPDX-License-Identifier: Apache-2.0
// Makes N calls on one path, for counting instructions from outside: instruction_target PATH N.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "bench_paths.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: instruction_target PATH N\n");
    return 2;
  }
  yard::tool::BenchCall::prepare().or_throw();
  yard::tool::BenchCall call;
  for (const yard::tool::Path& p : call.paths())
    if (argv[1] == std::string_view(p.key)) {
      p.loop(10);
      p.loop(std::atol(argv[2]));
      return 0;
    }
  std::fprintf(stderr, "instruction_target: no path '%s'\n", argv[1]);
  return 2;
}
