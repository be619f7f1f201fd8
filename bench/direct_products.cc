// SPDX-License-Identifier: Apache-2.0
#include "direct_products.h"

#include <dlfcn.h>

#include <memory>
#include <thread>
#include <unordered_map>

#if YARD_BENCH_ONEDNN
#include <dnnl.hpp>
#endif

namespace yard::bench {
namespace {

// Operands of out[rows, n] = x[rows, k] * weight[n, k]^T. Elements of bf16 use half of the memory.
struct Operands {
  int64_t rows, n, k;
  std::vector<float> x, weight, out;
  explicit Operands(const KernelCase& c)
      : rows(c.rows),
        n(c.hidden),
        k(c.hidden),
        x(static_cast<size_t>(rows * k), 0.5f),
        weight(static_cast<size_t>(n * k), 0.25f),
        out(static_cast<size_t>(rows * n)) {}
};
using Shared = std::shared_ptr<Operands>;

#if YARD_BENCH_ONEDNN
void add_onednn(const KernelCase& c, const Shared& on, std::vector<Way>& to) {
  using dnnl::memory;
  try {
    const auto type = c.dtype == "bf16" ? memory::data_type::bf16 : memory::data_type::f32;
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    const memory::desc x({on->rows, on->k}, type, memory::dims{on->k, 1}),
        plain({on->k, on->n}, type, memory::dims{1, on->k}),
        any({on->k, on->n}, type, memory::format_tag::any),
        out({on->rows, on->n}, type, memory::dims{on->n, 1});
    const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(x, c.packed ? any : plain, out),
                                            engine);
    const dnnl::matmul product(desc);
    dnnl::stream stream(engine);
    memory weight(plain, engine, on->weight.data());
    if (desc.weights_desc() != plain) {
      memory packed(desc.weights_desc(), engine);
      dnnl::reorder(weight, packed).execute(stream, weight, packed);
      stream.wait();
      weight = packed;
    }
    const std::unordered_map<int, memory> args = {
        {DNNL_ARG_SRC, memory(x, engine, on->x.data())},
        {DNNL_ARG_WEIGHTS, weight},
        {DNNL_ARG_DST, memory(out, engine, on->out.data())}};
    to.push_back({c.packed ? "oneDNN, packed" : "oneDNN", [on, product, args, stream]() mutable {
                    product.execute(stream, args);
                    stream.wait();
                  }});
  } catch (const dnnl::error&) {
    // oneDNN does not support this product on this processor.
  }
}
#endif

using Sgemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k,
                       float alpha, const float* a, int lda, const float* b, int ldb, float beta,
                       float* c, int ldc);

void add_openblas(const Shared& on, std::vector<Way>& to) {
  void* const library = ::dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  const auto sgemm = reinterpret_cast<Sgemm>(::dlsym(library, "cblas_sgemm"));
  const auto threads = reinterpret_cast<int (*)()>(::dlsym(library, "openblas_get_num_threads"));
  const auto set_threads =
      reinterpret_cast<void (*)(int)>(::dlsym(library, "openblas_set_num_threads"));
  if (sgemm == nullptr || threads == nullptr || set_threads == nullptr) return;
  // Uses all cores for this call only, because the backend's calls depend on the setting.
  const int all = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  to.push_back({"OpenBLAS", [on, sgemm, threads, set_threads, all] {
                  constexpr int kRowMajor = 101, kNoTranspose = 111, kTranspose = 112;
                  const int m = static_cast<int>(on->rows), n = static_cast<int>(on->n),
                            k = static_cast<int>(on->k), before = threads();
                  set_threads(all);
                  sgemm(kRowMajor, kNoTranspose, kTranspose, m, n, k, 1, on->x.data(), k,
                        on->weight.data(), k, 0, on->out.data(), n);
                  set_threads(before);
                }});
}

}  // namespace

std::vector<Way> direct_ways(const KernelCase& c) {
  if (c.op != "linear") return {};
  const auto on = std::make_shared<Operands>(c);
  std::vector<Way> to;
#if YARD_BENCH_ONEDNN
  add_onednn(c, on, to);
#endif
  if (c.dtype == "f32") add_openblas(on, to);
  return to;
}

}  // namespace yard::bench
