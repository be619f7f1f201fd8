// SPDX-License-Identifier: Apache-2.0
#include "plugin/kernel_texts.h"

#include <algorithm>
#include <iterator>

namespace yard::tool {
namespace {

constexpr const char *kCompact = "F32 compact", *kAttention = "query:F32 compact -mask";

// One query over the keys [first, last) of its head, which are `step` apart.
constexpr const char* kAttentionRow =
    R"(void row(float* out, const float* query, const float* key, const float* value, int64_t first,
                int64_t last, int64_t step, int64_t dim, double scale) {
  for (int64_t part = 0; part < dim; part += 1024) {  /* 1024 results at a time */
    const int64_t n = dim - part < 1024 ? dim - part : 1024;
    double top = -INFINITY, sum = 0, parts[1024] = {0};
    for (int64_t j = first < 0 ? 0 : first; j < last; ++j) {
      double score = 0;
      for (int64_t i = 0; i < dim; ++i) score += (double)query[i] * key[j * step + i];
      score *= scale;
      if (score == -INFINITY) continue;
      if (score > top) {  /* all before counts for less */
        const double less = exp(top - score);
        for (int64_t i = 0; i < n; ++i) parts[i] *= less;
        sum *= less, top = score;
      }
      const double weight = exp(score - top);
      sum += weight;
      for (int64_t i = 0; i < n; ++i) parts[i] += weight * value[j * step + part + i];
    }
    for (int64_t i = 0; i < n; ++i)
      out[part + i] = sum == 0 ? 0 : (float)(parts[i] / sum);
  }
})";
constexpr const char* kAttentionSizes =
    "const int64_t dim = @last_query@, heads = @second_query@, seq = @third_query@;\n"
    "  const int64_t kv_seq = @third_key@, kv_heads = @second_key@;\n"
    "  const int64_t group = kv_heads > 0 ? heads / kv_heads : 1;";
#define YARD_ATTENTION(range)                                                                   \
  "@data_out@ + r * dim, @data_query@ + r * dim,\n"                                             \
  "          @data_key@ + (r / heads / seq * kv_seq * kv_heads + r % heads / group) * dim,\n"   \
  "          @data_value@ + (r / heads / seq * kv_seq * kv_heads + r % heads / group) * dim,\n" \
  "          " range ", kv_heads * dim, dim, scale != 0 ? scale : 1 / sqrt((double)dim)"

constexpr KernelText kTexts[] = {
    {"rms_norm", kCompact,
     R"(void row(float* out, const float* x, const float* weight, int64_t n, double eps) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += (double)x[i] * x[i];
  const double rms = sqrt(sum / (double)n + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = (float)(x[i] / rms * weight[i]);
})",
     "@rows_out@", "const int64_t n = @last_out@;",
     "@data_out@ + r * n, @data_x@ + r * n, @data_weight@, n, eps"},
    {"add_rms_norm", kCompact,
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
    {"layer_norm", kCompact,
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
    {"silu_and_mul", kCompact,
     R"(void row(float* out, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double v = x[i];
    out[i] = (float)(v / (1 + exp(-v)) * x[n + i]);
  }
})",
     "@rows_out@", "const int64_t n = @last_out@;", "@data_out@ + r * n, @data_x@ + r * 2 * n, n"},
    {"gelu_and_mul", kCompact,
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
    {"softmax", kCompact,
     R"(void row(float* out, const float* x, int64_t n) {
  double largest = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; ++i)
    if (x[i] > largest) largest = x[i];
  for (int64_t i = 0; i < n; ++i) sum += exp(x[i] - largest);
  for (int64_t i = 0; i < n; ++i) out[i] = (float)(exp(x[i] - largest) / sum);
})",
     "@rows_out@", "const int64_t n = @last_out@;", "@data_out@ + r * n, @data_x@ + r * n, n"},
    {"rotary_embedding", "query:F32 positions:I64 compact +positions -key -cos style=0",
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
    {"add", kCompact,
     R"(void row(float* out, const float* a, const float* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
})",
     "@rows_out@", "const int64_t n = @last_out@;",
     "@data_out@ + r * n, @data_a@ + r * n, @data_b@ + r * n, n"},
    {"mul", kCompact,
     R"(void row(float* out, const float* a, const float* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] * b[i];
})",
     "@rows_out@", "const int64_t n = @last_out@;",
     "@data_out@ + r * n, @data_a@ + r * n, @data_b@ + r * n, n"},
    {"matmul", kCompact,
     R"(void row(float* out, const float* a, const float* b, int64_t n, int64_t k) {
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += (double)a[j] * b[j * n + i];
    out[i] = (float)sum;
  }
})",
     "@rows_out@", "const int64_t m = @second_out@, n = @last_out@, k = @last_a@;",
     "@data_out@ + r * n, @data_a@ + r * k, @data_b@ + r / m * k * n, n, k"},
    {"linear", kCompact,
     R"(void row(float* out, const float* x, const float* weight, const float* bias, int64_t n,
                int64_t k) {
  for (int64_t i = 0; i < n; ++i) {
    double sum = bias ? bias[i] : 0;
    for (int64_t j = 0; j < k; ++j) sum += (double)x[j] * weight[i * k + j];
    out[i] = (float)sum;
  }
})",
     "@rows_out@", "const int64_t n = @last_out@, k = @last_x@;",
     "@data_out@ + r * n, @data_x@ + r * k, @data_weight@, @maybe_bias@, n, k"},
    {"embedding", "out:F32 ids:I64 table:F32 compact",
     R"(void row(float* out, const float* table, int64_t id, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = table[id * n + i];
})",
     "@rows_out@", "const int64_t n = @last_out@;",
     "@data_out@ + r * n, @data_table@, @index_ids@[r], n"},
    {"quantize_int8", "x:F32 compact",
     R"(void row(int8_t* out, float* scale, const float* x, int64_t n) {
  double largest = 0;
  for (int64_t i = 0; i < n; ++i)
    if (fabs(x[i]) > largest) largest = fabs(x[i]);
  for (int64_t i = 0; i < n; ++i)
    if (x[i] != x[i]) largest = x[i];  /* a NaN is larger than all numbers */
  *scale = (float)(largest / 127);
  for (int64_t i = 0; i < n; ++i) {
    const double q = *scale > 0 && *scale < INFINITY ? nearbyint((double)x[i] / *scale) : 0;
    out[i] = (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
  }
})",
     "@rows_out@", "const int64_t n = @last_out@;",
     "(int8_t*)(void*)@data_out@ + r * n, @data_scale@ + r, @data_x@ + r * n, n"},
    {"dequantize", "out:F32 x:I8 compact",
     R"(void row(float* out, const int8_t* x, float scale, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = (float)x[i] * scale;
})",
     "@rows_out@", "const int64_t n = @last_out@;",
     "@data_out@ + r * n, (const int8_t*)(const void*)@data_x@ + r * n, @data_scale@[r], n"},
    {"attention.full", kAttention, kAttentionRow, "@rows_out@", kAttentionSizes,
     YARD_ATTENTION("0, kv_seq")},
    {"attention.causal", kAttention, kAttentionRow, "@rows_out@", kAttentionSizes,
     YARD_ATTENTION("0, kv_seq - seq + r / heads % seq + 1")},
    {"attention.sliding_window", "query:F32 compact -mask -sinks", kAttentionRow, "@rows_out@",
     kAttentionSizes,
     YARD_ATTENTION("kv_seq - seq + r / heads % seq + 1 - window, "
                    "kv_seq - seq + r / heads % seq + 1")},
    {"attention.cross", "query:F32 lengths:I64 compact +lengths -mask", kAttentionRow, "@rows_out@",
     kAttentionSizes, YARD_ATTENTION("0, @index_lengths@[r / heads / seq]")},
    {"attention.decode", "query:F32 key:F32 lengths:I64 compact -mask", kAttentionRow, "@rows_out@",
     "const int64_t dim = @last_query@, heads = @second_query@;\n"
     "  const int64_t kv_seq = @third_key@, kv_heads = @second_key@;\n"
     "  const int64_t group = kv_heads > 0 ? heads / kv_heads : 1, seq = 1;",
     YARD_ATTENTION("0, @index_lengths@[r / heads]")},
    {"attention.paged_decode", "query:F32 key:F32 block_table:I64 lengths:I64 compact",
     R"(void row(float* out, const float* query, const float* key, const float* value,
                const int64_t* table, int64_t length, int64_t block, int64_t step, int64_t dim,
                double scale) {
  for (int64_t part = 0; part < dim; part += 1024) {  /* 1024 results at a time */
    const int64_t n = dim - part < 1024 ? dim - part : 1024;
    double top = -INFINITY, sum = 0, parts[1024] = {0};
    for (int64_t j = 0; j < length; ++j) {
      const int64_t at = (table[j / block] * block + j % block) * step;
      double score = 0;
      for (int64_t i = 0; i < dim; ++i) score += (double)query[i] * key[at + i];
      score *= scale;
      if (score == -INFINITY) continue;
      if (score > top) {  /* all before counts for less */
        const double less = exp(top - score);
        for (int64_t i = 0; i < n; ++i) parts[i] *= less;
        sum *= less, top = score;
      }
      const double weight = exp(score - top);
      sum += weight;
      for (int64_t i = 0; i < n; ++i) parts[i] += weight * value[at + part + i];
    }
    for (int64_t i = 0; i < n; ++i)
      out[part + i] = sum == 0 ? 0 : (float)(parts[i] / sum);
  }
})",
     "@rows_out@",
     "const int64_t dim = @last_query@, heads = @second_query@, kv_heads = @second_key@;\n"
     "  const int64_t group = kv_heads > 0 ? heads / kv_heads : 1;\n"
     "  const int64_t blocks = @last_block_table@;",
     "@data_out@ + r * dim, @data_query@ + r * dim, @data_key@ + r % heads / group * dim,\n"
     "          @data_value@ + r % heads / group * dim, @index_block_table@ + r / heads * blocks,\n"
     "          @index_lengths@[r / heads], @third_key@, kv_heads * dim, dim,\n"
     "          scale != 0 ? scale : 1 / sqrt((double)dim)"},
    {"topk_softmax", "x:F32 compact",
     R"(int precedes(float a, int64_t i, float b, int64_t j) {  /* a NaN comes first */
  if ((a != a) != (b != b)) return a != a;
  return a == b || a != a ? i < j : a > b;
}
static void row(float* weights, int32_t* ids, const float* x, int64_t k, int64_t n,
                int renormalize) {
  double all = 0, kept = 0;
  for (int64_t j = 0; j < k; ++j) {
    int64_t best = -1, last = j > 0 ? ids[j - 1] : -1;
    for (int64_t i = 0; i < n; ++i)
      if ((last < 0 || precedes(x[last], last, x[i], i)) &&
          (best < 0 || precedes(x[i], i, x[best], best)))
        best = i;
    ids[j] = (int32_t)best;
    kept += exp((double)x[best] - x[ids[0]]);
  }
  for (int64_t i = 0; k > 0 && i < n; ++i) all += exp((double)x[i] - x[ids[0]]);
  for (int64_t j = 0; j < k; ++j)
    weights[j] = (float)(exp((double)x[ids[j]] - x[ids[0]]) / (renormalize ? kept : all));
})",
     "@rows_weights@", "const int64_t k = @last_weights@, n = @last_x@;",
     "@data_weights@ + r * k, (int32_t*)(void*)@data_ids@ + r * k, @data_x@ + r * n, k, n,\n"
     "          renormalize"},
    {"argmax", "out:I64 x:F32 compact",
     R"(void row(int64_t* out, const float* x, int64_t n) {
  *out = 0;
  for (int64_t i = 1; i < n && x[*out] == x[*out]; ++i)  /* a NaN is larger than all numbers */
    if (x[i] != x[i] || x[i] > x[*out]) *out = i;
})",
     "@rows_x@", "const int64_t n = @last_x@;",
     "(int64_t*)(void*)@data_out@ + r, @data_x@ + r * n, n"},
    {"sample", "out:I64 x:F32 compact",
     R"(uint32_t key_of(float v) { /* grows with v; of both zeros the same */
  const union {
    float number;
    uint32_t bits;
  } u = {v + 0.0f};
  return u.bits >> 31 ? ~u.bits : u.bits | 0x80000000u;
}

static double weight_of(float v, float largest, double temperature) { /* temperature 0: all are 1 */
  return temperature == 0 || v == largest ? 1 : exp(((double)v - largest) / temperature);
}

/* Elements are ordered by value, largest first, of equal ones the lower index first. These are the first of them. */
struct first_elements {
  uint32_t key; /* those beyond it, */
  int64_t equal; /* and so many that lie on it */
};

/* The sum of their weights. *chosen is the index at which it exceeds `target`. */
static double sum_of(const float* x, int64_t n, float largest, double temperature, struct first_elements of,
                     double target, int64_t* chosen) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t key = key_of(x[i]);
    if (key < of.key || (key == of.key && of.equal-- <= 0)) continue;
    const double weight = weight_of(x[i], largest, temperature);
    if (weight > 0 && sum <= target) *chosen = i;
    sum += weight;
  }
  return sum;
}

/* The fewest of them whose sum is at least `needed`. */
static struct first_elements fewest_of(const float* x, int64_t n, float largest, double temperature,
                                       struct first_elements of, double needed) {
  struct first_elements to = {of.key, 0};
  uint32_t high = 0xffffffffu;
  int64_t chosen;
  while (high - to.key > 1) {
    const struct first_elements tried = {to.key + (high - to.key) / 2, n};
    if (sum_of(x, n, largest, temperature, tried, 0, &chosen) >= needed)
      to.key = tried.key;
    else
      high = tried.key;
  }
  const int64_t most = to.key == of.key ? of.equal : n;
  double sum = sum_of(x, n, largest, temperature, to, 0, &chosen), each = 0;
  for (int64_t i = 0; i < n; ++i)
    if (key_of(x[i]) == to.key) each = weight_of(x[i], largest, temperature);
  for (; sum < needed && to.equal < most; ++to.equal) sum += each;
  return to;
}

static void row(int64_t* out, const float* x, int64_t n, double temperature, int64_t top_k, double top_p,
                uint64_t z) {
  int64_t best = 0;
  for (int64_t i = 1; i < n && x[best] == x[best]; ++i)  /* a NaN is larger than all numbers */
    if (x[i] != x[i] || x[i] > x[best]) best = i;
  *out = best;
  if (temperature == 0 || x[best] != x[best]) return;

  struct first_elements kept = {0, 0}; /* all */
  if (top_k > 0 && top_k < n) kept = fewest_of(x, n, x[best], 0, kept, (double)top_k);
  if (top_p < 1) {
    const double needed = top_p * sum_of(x, n, x[best], temperature, kept, 0, out);
    kept = fewest_of(x, n, x[best], temperature, kept, needed > 0 ? needed : 1e-300);
  }

  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u; /* SplitMix64 */
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z = z ^ (z >> 31);
  const double random = (double)(z >> 11) / 9007199254740992.0;
  const double target = random * sum_of(x, n, x[best], temperature, kept, 0, out);
  sum_of(x, n, x[best], temperature, kept, target, out);
})",
     "@rows_x@", "const int64_t n = @last_x@;",
     "(int64_t*)(void*)@data_out@ + r, @data_x@ + r * n, n, temperature, top_k, top_p,\n"
     "          (uint64_t)seed + ((uint64_t)r + 1) * 0x9e3779b97f4a7c15u"},
};
#undef YARD_ATTENTION

}  // namespace

const KernelText* kernel_text(std::string_view op) {
  const auto* const at = std::find_if(std::begin(kTexts), std::end(kTexts),
                                      [&](const KernelText& t) { return op == t.op; });
  return at == std::end(kTexts) ? nullptr : at;
}

}  // namespace yard::tool
