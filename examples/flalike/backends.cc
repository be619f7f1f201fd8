// SPDX-License-Identifier: Apache-2.0
// Two backends of the group `kda`: `flash` for inference, `tile` for chunks of even heads.
#include <yard/plugin.hpp>

#include "ops.h"

namespace flalike {
namespace {

// These stand in for fast kernels and compute the original's numbers.
void flash(const Attention& a, float* out, Mode m) { attention_by_the_book(a, out, m); }
void tile(const Attention& a, float* out, Mode m) { attention_by_the_book(a, out, m); }
void tile_grad(const Attention& a, const float* d_out, float* d_v) {
  attention_grad_by_the_book(a, d_out, d_v);
}

// [verifier]
yard::Verdict flash_fits(const yard::FunctionQuery& q, const Attention& a, const float*, Mode m) {
  if (q.training()) return yard::Reject(YARD_REASON_INFERENCE_ONLY);
  if (a.dtype != DType::kF32) return yard::Reject("only f32 is served");
  if (a.head_dim > 128) return yard::Reject("head dimension {0} is above {1}", a.head_dim, 128);
  if (m != Mode::kChunk) return yard::Reject("only chunks are served");
  return yard::Accept();
}
// [/verifier]

yard::Verdict tile_fits(const Attention& a, const float*, Mode) {
  if (a.heads % 2 != 0) return yard::Reject("{0} heads, which is odd", a.heads);
  if (a.rows < 2) return yard::Reject("{0} rows are too few", a.rows);
  return yard::Accept();
}

// [implement]
yard::Status bring_flash(yard::Changes& c) {
  c.add_backend(yard::plugin::Backend("flash").env("FLALIKE_FLASH"));
  yard::implement(c, attention, "flash", flash, flash_fits, {.priority = 10});
  return {};
}

yard::Status bring_tile(yard::Changes& c) {
  c.add_backend(yard::plugin::Backend("tile").env("FLALIKE_TILE"));
  yard::implement(c, attention, "tile", tile, tile_fits, {.priority = 5});
  yard::implement(c, attention_grad, "tile", tile_grad);
  return {};
}
// [/implement]

}  // namespace

// [provider]
void use_backends() {
  yard::add_provider("kda", bring_flash, "flash");
  yard::add_provider("kda", bring_tile, "tile");
}
// [/provider]

}  // namespace flalike
