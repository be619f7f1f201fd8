// SPDX-License-Identifier: Apache-2.0
#include "bench/measured_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "schema.h"

namespace yard::tool {
namespace {

constexpr int64_t kUsualSize = 1024;  // for dimensions that are not named below
constexpr int64_t kResults = 8;  // for dimensions that only outputs have, such as the k of a top-k
constexpr int kScalar = 256;     // for integers without a default

const Shapes& usual_sizes() {
  static const auto* const sizes = new Shapes{{"rows", {1, 64, 4096}}, {"tokens", {1, 64, 4096}},
                                              {"batch", {1}},          {"m", {64, 512}},
                                              {"hidden", {4096}},      {"d", {4096}},
                                              {"seq", {512}},          {"kv_seq", {512}},
                                              {"heads", {32}},         {"kv_heads", {8}},
                                              {"dim", {128}},          {"head_dim", {128}},
                                              {"block", {16}}};
  return *sizes;
}

// A dimension with a name and a factor ("*rows", "2*d", "hidden|1"), or with a fixed size ("128").
struct Dimension {
  std::string name;
  int64_t factor = 1;
  explicit Dimension(std::string text) {
    text = text.substr(0, text.find('|'));
    if (text[0] >= '0' && text[0] <= '9') {
      char* end = nullptr;
      factor = std::strtoll(text.c_str(), &end, 10);
      text = *end == '*' ? end : "";
    }
    name = text.starts_with('*') ? text.substr(1) : text;
  }
};

bool is_tensor(const SchemaParameter& p) { return p.type == SchemaParameter::kTensor; }

using Chosen = std::map<std::string, int64_t, std::less<>>;
using Dtypes = std::map<std::string, std::string, std::less<>>;  // by variable

std::vector<Chosen> combinations(const std::vector<SchemaParameter>& parameters,
                                 const Shapes& shapes) {
  std::map<std::string, bool> names;  // true if an input has the dimension
  for (const SchemaParameter& p : parameters)
    for (const std::string& d : p.dims)
      if (const Dimension dim(d); !dim.name.empty()) names[dim.name] |= p.read;
  std::vector<Chosen> to(1);
  for (const auto& [name, of_input] : names) {
    std::vector<int64_t> sizes = {of_input ? kUsualSize : kResults};
    if (const auto usual = usual_sizes().find(name); usual != usual_sizes().end())
      sizes = usual->second;
    if (const auto given = shapes.find(name); given != shapes.end()) sizes = given->second;
    std::vector<Chosen> more;
    for (const Chosen& c : to)
      for (const int64_t size : sizes) more.emplace_back(c)[name] = size;
    to = std::move(more);
  }
  return to;
}

// Returns the dtypes of the variables: first `dtype` wherever the schema allows it, then
// block-quantised ones.
std::vector<Dtypes> choices_of(const OpInfo& op, const std::vector<SchemaParameter>& parameters,
                               const std::string& dtype) {
  Dtypes plain, quantised;
  for (const SchemaParameter& p : parameters) {
    if (!is_tensor(p) || parse_dtype(p.dtype)) continue;
    const std::vector<std::string> listed = dtypes_of(op.schema, p.dtype);
    const bool fits = listed.empty() || std::ranges::find(listed, dtype) != listed.end();
    plain[p.dtype] = quantised[p.dtype] = fits ? dtype : listed[0];
    const auto block =
        std::ranges::find_if(listed, [](const std::string& d) { return d.starts_with('q'); });
    if (block != listed.end()) quantised[p.dtype] = *block;
  }
  if (plain == quantised) return {plain};
  return {plain, quantised};
}

// Adds one optional tensor, all of them, or the outputs to the required inputs of a call.
struct More {
  std::string optional;
  bool all = false, outputs = false;
};
std::string call_text(const std::string& op, const std::vector<SchemaParameter>& parameters,
                      const Chosen& sizes, const Dtypes& dtypes, const More& more) {
  std::string to = op + "(";
  bool by_position = !more.outputs, first = true;
  for (const SchemaParameter& p : parameters) {
    const bool wanted = is_tensor(p) ? (p.read || more.outputs) &&
                                           (p.required || more.all || p.name == more.optional)
                                     : p.required;
    if (!wanted) {
      by_position = by_position && !p.read;
      continue;
    }
    std::string value = std::to_string(kScalar);
    if (is_tensor(p)) {
      std::vector<int64_t> shape;
      for (const std::string& d : p.dims) {
        const Dimension dim(d);
        shape.push_back(dim.name.empty() ? dim.factor : dim.factor * sizes.at(dim.name));
      }
      const auto of = dtypes.find(p.dtype);
      value =
          fmt::format("{}[{}]", of != dtypes.end() ? of->second : p.dtype, fmt::join(shape, ","));
    } else if (p.type == SchemaParameter::kEnum) {
      value = p.words.at(0);
    } else if (p.type == SchemaParameter::kBool) {
      value = "true";
    }
    to += fmt::format("{}{}{}", std::exchange(first, false) ? "" : ", ",
                      by_position && is_tensor(p) ? "" : p.name + "=", value);
  }
  return to + ")";
}

// Returns the first call that the schema accepts, or the error for the first call.
Result<std::string> valid_call(const std::string& op,
                               const std::vector<SchemaParameter>& parameters, const Chosen& sizes,
                               const Dtypes& dtypes) {
  std::vector<More> ways = {{}};
  for (const SchemaParameter& p : parameters)
    if (is_tensor(p) && !p.required) ways.push_back({p.name});
  ways.push_back({"", true, false}), ways.push_back({"", false, true});
  Status problem;
  for (const More& more : ways) {
    std::string text = call_text(op, parameters, sizes, dtypes, more);
    const auto call = Runtime::shared().parse(text);
    if (call.ok()) return text;
    if (problem.ok()) problem = call.status();
  }
  return problem;
}

}  // namespace

std::vector<std::string> measured_dimensions(const OpInfo& op) {
  std::vector<std::string> to;
  for (const SchemaParameter& p : parameters_of(op.schema))
    for (const std::string& d : p.dims)
      if (const Dimension dim(d); !dim.name.empty()) to.push_back(dim.name);
  return to;
}

Result<std::vector<std::string>> measured_calls(const OpInfo& op,
                                                const std::vector<std::string>& dtypes,
                                                const Shapes& shapes) {
  const std::vector<SchemaParameter> parameters = parameters_of(op.schema);
  std::vector<std::string> to;
  for (const std::string& dtype : dtypes) {
    const std::vector<Dtypes> choices = choices_of(op, parameters, dtype);
    for (const Dtypes& choice : choices)
      for (const Chosen& sizes : combinations(parameters, shapes)) {
        auto call = valid_call(op.name, parameters, sizes, choice);
        if (!call.ok() && &choice == &choices[0]) return call.status();
        // Skips sizes that do not fit the blocks of a quantised dtype.
        if (call.ok() && std::ranges::find(to, *call) == to.end()) to.push_back(*std::move(call));
      }
  }
  return to;
}

std::unique_ptr<CallTensors> measured_tensors(const ParsedCall& call) {
  auto data = std::make_unique<CallTensors>(call, 1);
  for (const Arg& a : data->args()) {
    const bool cos = a.name == "cos";
    if ((!cos && a.name != "sin") || a.value.c().tag != YARD_TAG_TENSOR) continue;
    const TensorView table(*a.value.c().u.tensor);
    const uint16_t one = table.dtype() == DType::f16 ? 0x3c00 : 0x3f80;
    if (table.dtype() == DType::f32)
      std::fill_n(static_cast<float*>(table.data()), table.numel(), cos ? 1.0f : 0.0f);
    else
      std::fill_n(static_cast<uint16_t*>(table.data()), table.numel(), cos ? one : uint16_t{0});
  }
  return data;
}

}  // namespace yard::tool
