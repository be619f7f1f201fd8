// SPDX-License-Identifier: Apache-2.0
// instruction_target PATH N: makes N calls on one path, so that another program can count the
// instructions. The path `counting` only counts N calls, and `nothing` is the empty loop of
// `counting`.
#include <yard/detail/guard.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "bench/paths.h"

namespace {

// Does only the counting that a successful call does, or with `really` unset not even that.
void count_calls(long n, bool really) {
  yard::detail::ThreadHead* thread = yard::detail::t_thread;
  for (long i = 0; i < n; ++i) {
    asm volatile("" : "+r"(thread));
    if (really) yard::detail::count(*thread, 1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: instruction_target PATH N\n");
    return 2;
  }
  yard::tool::BenchCall::prepare().or_throw();
  yard::tool::BenchCall call;
  const std::string_view path = argv[1];
  if (path == "counting" || path == "nothing") {
    count_calls(10, true);
    count_calls(std::atol(argv[2]), path == "counting");
    return 0;
  }
  for (const yard::tool::Path& p : call.paths())
    if (path == p.key) {
      p.loop(10);
      p.loop(std::atol(argv[2]));
      return 0;
    }
  std::fprintf(stderr, "instruction_target: no path '%s'\n", argv[1]);
  return 2;
}
