// SPDX-License-Identifier: Apache-2.0
// Handles any bytes as a request of live control. Whether the request is valid or refused, the
// answer is one line of valid JSON with the request's id.
#include <yard/runtime.h>

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "inspect/commands.h"

namespace {

using namespace yard;

void require(bool condition) {
  if (!condition) std::abort();
}

// Makes a runtime with recorded calls, so that commands have something to report.
void make_runtime() {
  static Runtime* runtime = nullptr;
  if (runtime != nullptr) return;
  set_log_level(LogLevel::kOff);
  runtime = new Runtime;
  float x[4] = {1, 2, 3, 4}, out[4];
  runtime->call("softmax", {TensorView(out, DType::f32, {1, 4}), TensorView(x, DType::f32, {1, 4})})
      .or_throw();
}

void check_answer(const std::string& line, const inspect::Value& id) {
  require(line.find('\n') == line.npos);
  const auto parsed = nlohmann::json::parse(line, nullptr, false);
  require(parsed.is_object() && parsed.at("id") == nlohmann::json::parse(id.json));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  make_runtime();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  inspect::Request request;
  const Status parsed = inspect::parse_request(text, request);
  if (!parsed.ok()) {
    check_answer(inspect::answer(request, parsed), request.id);
    return 0;
  }
  // These commands open files that the input names.
  if (request.command.starts_with("record") || request.command == "config.load") return 0;
  const auto result = inspect::handle_request(request, {0, 1});
  check_answer(inspect::answer(request, result), request.id);
  // Undo all changes, so that the next input starts from the same state.
  inspect::Request undo;
  undo.command = "undo";
  while (inspect::handle_request(undo, {0, 1}).ok()) {
  }
  return 0;
}
