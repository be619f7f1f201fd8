// SPDX-License-Identifier: Apache-2.0
// Prints logits for tests as f32 on stdout: after the first PROMPT tokens, which run as one batch,
// and after each further token. Usage: llm_logits FILE.gguf POLICY PROMPT TOKEN...
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "generating.h"

int main(int argc, char** argv) try {
  if (argc < 5) return 2;
  llm::Ids ids;
  for (int i = 4; i < argc; ++i) ids.push_back(std::atoi(argv[i]));
  const llm::Model model(llm::Gguf::open(argv[1]));
  const yard::ScopedPolicy in(llm::policy_named(argv[2]));
  llm::Session session(model, static_cast<int64_t>(ids.size()));
  std::span<const int32_t> rest = ids;
  for (size_t n = std::min(static_cast<size_t>(std::atoi(argv[3])), ids.size()); !rest.empty();
       n = 1) {
    session.advance(rest.first(n)).or_throw();
    rest = rest.subspan(n);
    const std::span<const float> logits = session.logits();
    std::fwrite(logits.data(), sizeof(float), logits.size(), stdout);
  }
  return 0;
} catch (const std::exception& e) {
  return std::fprintf(stderr, "llm_logits: %s\n", e.what()), 1;
}
