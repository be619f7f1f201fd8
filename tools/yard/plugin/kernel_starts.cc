// SPDX-License-Identifier: Apache-2.0
#include "plugin/kernel_starts.h"

#include <fmt/format.h>

#include <vector>

#include "plugin/kernel_texts.h"

namespace yard::tool {
namespace {

struct SchemaParameter {
  enum Type { kTensor, kTensorList, kInt, kFloat, kBool, kString };
  std::string name;
  Type type = kTensor;
};

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

// One parameter: `key~?: T[*tokens, heads]`, `eps: float = 1e-6`.
SchemaParameter parameter_of(std::string_view text) {
  SchemaParameter p;
  const size_t colon = text.find(':');
  const std::string_view name = trimmed(text.substr(0, colon)),
                         type = trimmed(text.substr(colon + 1));
  p.name = name.substr(0, name.find_first_of("!~? "));
  const auto is = [&](std::string_view word) { return type.starts_with(word); };
  if (type.find('[') != type.npos)
    p.type = type.ends_with("[]") && type.find("][") != type.npos ? SchemaParameter::kTensorList
                                                                  : SchemaParameter::kTensor;
  else
    p.type = is("float")    ? SchemaParameter::kFloat
             : is("bool")   ? SchemaParameter::kBool
             : is("string") ? SchemaParameter::kString
                            : SchemaParameter::kInt;  // an enum is passed as its index
  return p;
}

// Of a schema that the library has accepted.
std::vector<SchemaParameter> parameters_of(std::string_view schema) {
  std::vector<SchemaParameter> to;
  int depth = 0;
  bool quoted = false;
  size_t begin = schema.find('(') + 1;
  for (size_t i = begin; i < schema.size(); ++i) {
    const char c = schema[i];
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > 0 || (c != ',' && c != ')')) continue;
    if (!trimmed(schema.substr(begin, i - begin)).empty())
      to.push_back(parameter_of(schema.substr(begin, i - begin)));
    begin = i + 1;
    if (c == ')') break;
  }
  return to;
}

// One word of KernelText::limits.
std::string limit_text(std::string_view word, bool c) {
  const auto dtype = [&](std::string_view field, std::string_view name) {
    if (c)
      return fmt::format("{{.kind = YARD_LIMIT_DTYPE{}, .a = (int64_t)YARD_DTYPE_BIT(YARD_{})}}",
                         field.empty() ? "" : fmt::format(", .field = \"{}\"", field), name);
    return fmt::format("dtypes({{YARD_{}}}{})", name,
                       field.empty() ? "" : fmt::format(", \"{}\"", field));
  };
  if (word == "compact") return c ? "{.kind = YARD_LIMIT_COMPACT}" : "compact()";
  if (word[0] == '+' || word[0] == '-') {
    const std::string_view field = word.substr(1);
    const bool present = word[0] == '+';
    return c ? fmt::format("{{.kind = YARD_LIMIT_{}, .field = \"{}\"}}",
                           present ? "PRESENT" : "ABSENT", field)
             : fmt::format("{}(\"{}\")", present ? "present" : "absent", field);
  }
  if (const size_t at = word.find(':'); at != word.npos)
    return dtype(word.substr(0, at), word.substr(at + 1));
  const size_t equals = word.find('=');
  if (equals == word.npos) return dtype("", word);
  const std::string_view field = word.substr(0, equals), value = word.substr(equals + 1);
  return c ? fmt::format("{{.kind = YARD_LIMIT_EQUALS, .field = \"{}\", .a = {}}}", field, value)
           : fmt::format("equals(\"{}\", {})", field, value);
}

std::string limits_text(std::string_view words, bool c) {
  std::string to;
  while (!words.empty()) {
    const size_t end = words.find(' ');
    const std::string limit = limit_text(words.substr(0, end), c);
    words.remove_prefix(end == words.npos ? words.size() : end + 1);
    if (c)
      to += "    " + limit + ",\n";
    else
      to += (to.empty() ? "" : ", ") + limit;
  }
  return to;
}

// What a tensor parameter is in the texts of a KernelText.
void add_tensor_words(const std::string& name, bool c, Words& words) {
  const auto set = [&](const char* what, const std::string& in_c, const std::string& in_cpp) {
    words[fmt::format("{}_{}", what, name)] = c ? in_c : in_cpp;
  };
  const std::string data_c = fmt::format("data_of({})", name),
                    data_cpp = fmt::format("{}.data<float>()", name);
  set("data", data_c, data_cpp);
  set("maybe", fmt::format("{} ? {} : NULL", name, data_c),
      fmt::format("{} ? {} : nullptr", name, data_cpp));
  set("index", fmt::format("((const int64_t*)(const void*){})", data_c),
      fmt::format("{}.data<int64_t>()", name));
  set("last", fmt::format("size_of({}, -1)", name), fmt::format("{}.size(-1)", name));
  set("second", fmt::format("size_of({}, -2)", name), fmt::format("{}.size(-2)", name));
  set("third", fmt::format("size_of({}, -3)", name), fmt::format("{}.size(-3)", name));
  set("rows", fmt::format("count_of({}, 1)", name), fmt::format("{}.rows()", name));
  set("count", fmt::format("count_of({}, 0)", name), fmt::format("{}.numel()", name));
}

// The head of `run`, with the arguments as local variables.
std::string c_head(const std::vector<SchemaParameter>& parameters) {
  static constexpr const char* kForms[] = {
      "const yard_tensor_t* {0} = args[{1}].tag == YARD_TAG_TENSOR ? args[{1}].u.tensor : NULL;",
      "const yard_tensor_t* const* {0} = args[{1}].u.list; /* args[{1}].count of them */",
      "const int64_t {0} = args[{1}].u.i;",
      "const double {0} = args[{1}].u.f;",
      "const int {0} = args[{1}].u.i != 0;",
      "const char* {0} = args[{1}].u.string; /* args[{1}].count characters */"};
  std::string to =
      "static int32_t run(yard_call_t* call, const yard_value_t* args, uint32_t count) {\n";
  for (size_t i = 0; i < parameters.size(); ++i)
    to +=
        "  " + fmt::format(fmt::runtime(kForms[parameters[i].type]), parameters[i].name, i) + "\n";
  to += "  (void)call, (void)count";
  for (const SchemaParameter& p : parameters) to += fmt::format(", (void){}", p.name);
  return to + ";\n";
}

std::string cpp_head(const std::vector<SchemaParameter>& parameters, const char* returns) {
  static constexpr const char* kTypes[] = {"Tensor", "TensorList", "int64_t",
                                           "double", "bool",       "std::string_view"};
  std::string to = fmt::format("{} run(Call call", returns);
  for (const SchemaParameter& p : parameters) to += fmt::format(", {} {}", kTypes[p.type], p.name);
  return to + ") {\n";
}

// The function `run`; the words of its tensors are not filled in.
std::string run_text(bool c, const std::vector<SchemaParameter>& parameters,
                     const KernelText* start) {
  if (start == nullptr)
    return c ? c_head(parameters) +
                   "  return call->host->fail(call->host->self, call, YARD_DECLINED, \"%s\", \"not "
                   "written yet\");\n}\n"
             : cpp_head(parameters, "int32_t") +
                   "  return call.fail(YARD_DECLINED, \"not written yet\");\n}\n";
  if (c)
    return c_head(parameters) +
           fmt::format(
               "  {}\n  const int64_t rows = {};\n"
               "  for (int64_t r = 0; r < rows; ++r)\n    row({});\n  return YARD_OK;\n}}\n",
               start->locals, start->rows, start->call);
  return cpp_head(parameters, "void") +
         fmt::format(
             "  {}\n  call.parallel_for({}, 16, [&](int64_t begin, int64_t end) {{\n"
             "    for (int64_t r = begin; r < end; ++r)\n      row({});\n  }});\n}}\n",
             start->locals, start->rows, start->call);
}

}  // namespace

std::string fill_in(std::string_view text, const Words& words) {
  std::string to;
  while (!text.empty()) {
    const size_t at = text.find('@'), end = at == text.npos ? at : text.find('@', at + 1);
    const auto word =
        end == text.npos ? words.end() : words.find(text.substr(at + 1, end - at - 1));
    const size_t taken = word != words.end() ? at : at == text.npos ? text.size() : at + 1;
    to += text.substr(0, taken);
    text.remove_prefix(taken);
    if (word == words.end()) continue;
    to += word->second;
    text.remove_prefix(end - at + 1);
  }
  return to;
}

bool has_kernel_start(std::string_view op) { return kernel_text(op) != nullptr; }

Words kernel_words(std::string_view op, const std::string& schema, bool c) {
  const std::vector<SchemaParameter> parameters = parameters_of(schema);
  const KernelText* start = kernel_text(op);
  Words words;
  for (const SchemaParameter& p : parameters)
    if (p.type == SchemaParameter::kTensor) add_tensor_words(p.name, c, words);
  words["RUN"] = fill_in(run_text(c, parameters, start), words);
  words["SCHEMA"] = schema;
  words["LIBS"] = c && start != nullptr ? "  LIBS m\n" : "";
  words["INCLUDES"] = start != nullptr ? "\n#include <math.h>\n" : "";
  if (start != nullptr)
    words["LIMITS"] = limits_text(start->limits, c);
  else
    words["LIMITS"] = c ? "    {.kind = YARD_LIMIT_COMPACT},\n" : "compact()";
  if (start != nullptr)
    words["ROW"] = fmt::format(
        "{} One row: your code goes here. ctest compares it with the reference kernel.{}\n{}{}\n\n",
        c ? "/*" : "//", c ? " */" : "", c ? "static " : "", start->row);
  else
    words["ROW"] = "";
  words["START"] = start != nullptr
                       ? "the kernel is simple and correct; make it fast."
                       : "the kernel declines every call, and `verify` fails until it is written.";
  return words;
}

}  // namespace yard::tool
