// SPDX-License-Identifier: Apache-2.0
#include "kernel_starts.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace yard::tool {
namespace {

// Limits of a kernel on compact tensors of f32.
constexpr const char* kCompactCpp = "dtypes({YARD_F32}), compact()";
constexpr const char* kCompactC =
    "    {.kind = YARD_LIMIT_DTYPE, .a = (int64_t)YARD_DTYPE_BIT(YARD_F32)},\n"
    "    {.kind = YARD_LIMIT_COMPACT},\n";

// A kernel that computes one row after the other, as text for C and for C++. In `rows`, `locals` and `call`
// @data_x@ is the pointer to x, @maybe_x@ the same or null, @index_x@ a pointer to integers, @last_x@ its last
// dimension, @second_x@ the one before, @rows_x@ the product of all but the last, @count_x@ of all.
struct KernelStart {
  const char* op;
  const char* limits_cpp;
  const char* limits_c;
  const char* row;     // the function `row`
  const char* rows;    // how many there are
  const char* locals;  // declarations before the loop
  const char* call;    // arguments of `row` for row number r
};
constexpr KernelStart kStarts[] = {
    {"rms_norm", kCompactCpp, kCompactC,
     R"(void row(float* out, const float* x, const float* weight, int64_t n, double eps) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += (double)x[i] * x[i];
  const double rms = sqrt(sum / (double)n + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = (float)(x[i] / rms * weight[i]);
})",
     "@rows_out@", "const int64_t n = @last_out@;",
     "@data_out@ + r * n, @data_x@ + r * n, @data_weight@, n, eps"},
    {"add_rms_norm", kCompactCpp, kCompactC,
     R"(void row(float* out, float* residual, const float* x, const float* weight, int64_t n,
                double eps) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    residual[i] += x[i];
    sum += (double)residual[i] * residual[i];
  }
  const double rms = sqrt(sum / (double)n + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = (float)(residual[i] / rms * weight[i]);
})",
     "@rows_out@", "const int64_t n = @last_out@;",
     "@data_out@ + r * n, @data_residual@ + r * n, @data_x@ + r * n, @data_weight@, n, eps"},
    {"layer_norm", kCompactCpp, kCompactC,
     R"(void row(float* out, const float* x, const float* weight, const float* bias, int64_t n,
                double eps) {
  double mean = 0, variance = 0;
  for (int64_t i = 0; i < n; ++i) mean += x[i];
  mean /= (double)n;
  for (int64_t i = 0; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean);
  const double deviation = sqrt(variance / (double)n + eps);
  for (int64_t i = 0; i < n; ++i) {
    double y = (x[i] - mean) / deviation;
    if (weight) y *= weight[i];
    if (bias) y += bias[i];
    out[i] = (float)y;
  }
})",
     "@rows_out@", "const int64_t n = @last_out@;",
     "@data_out@ + r * n, @data_x@ + r * n, @maybe_weight@, @maybe_bias@, n, eps"},
    {"silu_and_mul", kCompactCpp, kCompactC,
     R"(void row(float* out, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double v = x[i];
    out[i] = (float)(v / (1 + exp(-v)) * x[n + i]);
  }
})",
     "@rows_out@", "const int64_t n = @last_out@;", "@data_out@ + r * n, @data_x@ + r * 2 * n, n"},
    {"gelu_and_mul", kCompactCpp, kCompactC,
     R"(void row(float* out, const float* x, int64_t n, int64_t approximate) {
  for (int64_t i = 0; i < n; ++i) {
    const double v = x[i];
    const double u = 0.7978845608028654 * (v + 0.044715 * v * v * v);  /* sqrt(2 / pi) */
    const double y =
        approximate == 0 ? 0.5 * v * erfc(-v * 0.7071067811865476) : v / (1 + exp(-2 * u));
    out[i] = (float)(y * x[n + i]);
  }
})",
     "@rows_out@", "const int64_t n = @last_out@;",
     "@data_out@ + r * n, @data_x@ + r * 2 * n, n, approximate"},
    {"softmax", kCompactCpp, kCompactC,
     R"(void row(float* out, const float* x, int64_t n) {
  double largest = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; ++i)
    if (x[i] > largest) largest = x[i];
  for (int64_t i = 0; i < n; ++i) sum += exp(x[i] - largest);
  for (int64_t i = 0; i < n; ++i) out[i] = (float)(exp(x[i] - largest) / sum);
})",
     "@rows_out@", "const int64_t n = @last_out@;", "@data_out@ + r * n, @data_x@ + r * n, n"},
    {"rotary_embedding",
     "dtypes({YARD_F32}, \"query\"), dtypes({YARD_I64}, \"positions\"), compact(),\n"
     "                                        present(\"positions\"), absent(\"key\"), "
     "absent(\"cos\"), equals(\"style\", 0)",
     "    {.kind = YARD_LIMIT_DTYPE, .field = \"query\", .a = (int64_t)YARD_DTYPE_BIT(YARD_F32)},\n"
     "    {.kind = YARD_LIMIT_DTYPE, .field = \"positions\", .a = "
     "(int64_t)YARD_DTYPE_BIT(YARD_I64)},\n"
     "    {.kind = YARD_LIMIT_COMPACT},\n"
     "    {.kind = YARD_LIMIT_PRESENT, .field = \"positions\"},\n"
     "    {.kind = YARD_LIMIT_ABSENT, .field = \"key\"},\n"
     "    {.kind = YARD_LIMIT_ABSENT, .field = \"cos\"},\n"
     "    {.kind = YARD_LIMIT_EQUALS, .field = \"style\", .a = 0},\n",
     R"(void row(float* query, int64_t position, int64_t heads, int64_t head_dim, int64_t dims,
                double base) {
  for (int64_t i = 0; i < dims / 2; ++i) {
    const double angle = (double)position * pow(base, -2.0 * (double)i / (double)dims);
    const double c = cos(angle), s = sin(angle);
    for (int64_t h = 0; h < heads; ++h) {
      float* head = query + h * head_dim;
      const double a = head[i], b = head[i + dims / 2];
      head[i] = (float)(a * c - b * s);
      head[i + dims / 2] = (float)(b * c + a * s);
    }
  }
})",
     "@count_positions@",
     "const int64_t heads = @second_query@, head_dim = @last_query@;\n"
     "  const int64_t dims = rotary_dim != 0 ? rotary_dim : head_dim;",
     "@data_query@ + r * heads * head_dim, @index_positions@[r], heads, head_dim, dims, base"},
};

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

// Null for an op without one.
const KernelStart* kernel_start(std::string_view op) {
  const auto* const at = std::find_if(std::begin(kStarts), std::end(kStarts),
                                      [&](const KernelStart& s) { return op == s.op; });
  return at == std::end(kStarts) ? nullptr : at;
}

// What a tensor parameter is in the texts of a KernelStart.
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
                     const KernelStart* start) {
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

bool has_kernel_start(std::string_view op) { return kernel_start(op) != nullptr; }

Words kernel_words(std::string_view op, const std::string& schema, bool c) {
  const std::vector<SchemaParameter> parameters = parameters_of(schema);
  const KernelStart* start = kernel_start(op);
  Words words;
  for (const SchemaParameter& p : parameters)
    if (p.type == SchemaParameter::kTensor) add_tensor_words(p.name, c, words);
  words["RUN"] = fill_in(run_text(c, parameters, start), words);
  words["SCHEMA"] = schema;
  words["LIBS"] = c && start != nullptr ? "  LIBS m\n" : "";
  words["INCLUDES"] = start != nullptr ? "\n#include <math.h>\n" : "";
  if (start != nullptr)
    words["LIMITS"] = c ? start->limits_c : start->limits_cpp;
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
