// SPDX-License-Identifier: Apache-2.0
// Parses any bytes as a CallSpec. A spec that parses must survive printing and parsing again. Calls
// of known ops are refused, or made and read back from their own text.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "op/call.h"
#include "op/call_spec.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

const std::vector<yard::op::Program>& programs() {
  static const std::vector<yard::op::Program> all = [] {
    std::vector<yard::op::Program> list;
    for (const char* schema :
         {"rms_norm(out!: T[*rows, hidden], x: T[*rows, hidden], weight: T[hidden], eps: float = "
          "1e-6) "
          "where out may_alias x",
          "gelu_and_mul(out!: T[*rows, d], x: T[*rows, 2*d], approximate: enum{none, tanh} = none)",
          "f(out!: T[*r, n], lse!?: f32[n], x: T[*r|1, n|1], ys?: T[n][], n: int = 2, b: bool = "
          "false, "
          "s: string = \"\") where T in {f32, f16}, n % 2 == 0"})
      list.push_back(yard::op::Program::compile(schema).value());
    return list;
  }();
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yard::op;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const yard::Result<CallSpec> spec = parse_call_spec(text);
  if (!spec.ok()) {
    require(spec.status().message().find('^') != std::string_view::npos);
    return 0;
  }
  const std::string canonical = to_string(*spec);
  const yard::Result<CallSpec> again = parse_call_spec(canonical);
  require(again.ok() && *again == *spec && to_string(*again) == canonical);
  for (const Program& p : programs()) {
    if (p.name() != spec->op) continue;
    const yard::Result<Call> call = Call::from_spec(p, *spec);
    if (!call.ok()) continue;
    const CallSpec own = call->to_spec(p);
    const yard::Result<Call> copy = Call::from_spec(p, parse_call_spec(to_string(own)).value());
    require(copy.ok() && copy->to_spec(p) == own && copy->flags() == call->flags());
    require(p.fits(call->args()) >= 0);
  }
  return 0;
}
