// SPDX-License-Identifier: Apache-2.0
// What observers print of a call: made once for each form of call and kernel.
#pragma once

#include <string>
#include <string_view>

#include "op/call.h"
#include "registry/interfaces.h"
#include "telemetry/call_texts.h"

namespace yard::runtime {

// The text that `make` makes of the call's CallSpec, for one of the kernels that ran.
template <class Make>
const std::string& observed_text(telemetry::CallTexts& texts, const registry::ObservedCall& call,
                                 std::string_view kernel, const Make& make) {
  thread_local op::CallKey key;
  key.set(call.program, call.args, call.flags);
  key.add(call.index), key.add(call.labels), key.add(kernel);
  return texts.find(key.bytes(), [&] {
    const op::Call captured = op::Call::capture(call.program, call.args, call.flags, call.labels);
    return make(captured.to_spec(call.program));
  });
}

}  // namespace yard::runtime
