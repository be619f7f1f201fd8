// SPDX-License-Identifier: Apache-2.0
// The plugin that the demo loads while a model answers. It is built twice: the kernels of version
// 1.0 fail, and the kernels of version 2.0 give the same bits as the built-in ones. Equal bits are
// possible for embedding and argmax, because these ops do not round.
#include <cmath>
#include <stdexcept>
#include <yard/plugin.hpp>

using namespace yard::plugin;

#if ACME_BROKEN
#define ACME_VERSION "1.0"
YARD_MANIFEST("acme", ACME_VERSION, YARD_MANIFEST_OPS("argmax embedding linear"));
#else
#define ACME_VERSION "2.0"
YARD_MANIFEST("acme", ACME_VERSION, YARD_MANIFEST_OPS("argmax embedding"));
#endif

static void require_driver() {
  if (ACME_BROKEN) throw std::runtime_error("acme: the driver does not answer");
}

static float f16(const uint8_t* at) {
  const int bits = at[0] | at[1] << 8, exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                   : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return bits & 0x8000 ? -size : size;
}

// Reads rows of q8_0: a scale and 32 integers. f32 holds their products exactly.
static void acme_embedding(Call, Tensor out, Tensor ids, Tensor table) {
  require_driver();
  const int64_t d = table.size(-1), blocks = d / 32;
  for (int64_t row = 0; row < ids.numel(); ++row) {
    const uint8_t* block = table.data<uint8_t>() + ids.data<int32_t>()[row] * blocks * 34;
    float* to = out.data<float>() + row * d;
    for (int64_t b = 0; b < blocks; ++b, block += 34)
      for (int i = 0; i < 32; ++i)
        *to++ = f16(block) * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  }
}

static void acme_argmax(Call, Tensor out, Tensor x) {
  require_driver();
  const int64_t d = x.size(-1);
  for (int64_t row = 0; row < out.numel(); ++row) {
    const float* from = x.data<float>() + row * d;
    int64_t best = 0;
    for (int64_t i = 1; i < d && !std::isnan(from[best]); ++i)
      if (from[i] > from[best] || std::isnan(from[i])) best = i;
    out.data<int32_t>()[row] = static_cast<int32_t>(best);
  }
}

#if ACME_BROKEN
static void acme_linear(Call, Tensor, Tensor, Tensor, Tensor, Tensor) { require_driver(); }
#endif

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t*) {
  static const yard_limit_t embedding[] = {dtypes({YARD_F32}, "out"), dtypes({YARD_I32}, "ids"),
                                           dtypes({YARD_Q8_0}, "table"), compact()};
  static const yard_limit_t argmax[] = {dtypes({YARD_I32}, "out"), dtypes({YARD_F32}, "x"),
                                        compact()};
  static const Plugin plugin = [] {
    Plugin p("acme", ACME_VERSION);
    const auto add = [&p](Kernel k) {
      p.add(k.backend("acme").kind(YARD_KIND_VENDOR).flags(YARD_KERNEL_DETERMINISTIC));
    };
    p.add(Backend("acme").vendor("acme").summary("Kernels of the demo"));
    add(Kernel::of<acme_embedding>("embedding", "vendor.acme").limits(embedding));
    add(Kernel::of<acme_argmax>("argmax", "vendor.acme").limits(argmax));
#if ACME_BROKEN
    add(Kernel::of<acme_linear>("linear", "vendor.acme"));
#endif
    return p;
  }();
  return plugin.get();
}
