// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as environment variables, with one NAME=VALUE in each line. Each variable is set
// or reported, values that are set are well formed, reading twice gives the same result, and
// reports can be printed.
#include <yard/log.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "policy/environment.h"
#include "policy/process.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

yard::policy::Variables lines_of(std::string_view text) {
  yard::policy::Variables to;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    const size_t equals = line.find('=');
    if (equals != std::string_view::npos)
      to.emplace(line.substr(0, equals), line.substr(equals + 1));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return to;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yard::policy;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Variables variables = lines_of(text);
  std::vector<EnvProblem> problems, again;
  const Environment e = read_environment(variables, {}, problems);
  require(read_environment(variables, e, again) == e && again == problems);
  require(validate(e.policy).ok());
  require(notes(e.policy, "").size() == e.sources.size());
  require(yard::apply_log_levels(e.log_levels).ok());
  for (const EnvProblem& p : problems) {
    require(!p.message.empty());
    for (const char c : to_string(p)) require(static_cast<unsigned char>(c) >= 0x20);
  }
  // Also tests the grammar of log levels directly, because programs may call it.
  const bool good = yard::apply_log_levels(text).ok();
  require(good == yard::apply_log_levels(text).ok());
  yard::apply_log_levels("").or_throw();
  return 0;
}
