// SPDX-License-Identifier: Apache-2.0
// The descriptor of backend `reference`: the built-in ops and the kernels that define them.

#include "kernels.h"

namespace yard::reference {
namespace {

template <auto F>
plugin::Kernel kernel(const char* op) {
  return plugin::Kernel::of<F>(op, "reference.cpp")
      .backend("reference")
      .summary("scalar C++, sums in double, rounded once")
      .kind(YARD_KIND_REFERENCE)
      .flags(YARD_KERNEL_DETERMINISTIC | YARD_KERNEL_CAPTURE_SAFE |
             YARD_KERNEL_FAILS_BEFORE_WRITING);
}

plugin::Plugin make() {
  plugin::Plugin p("reference", "builtin");
  p.add(plugin::Backend("reference").summary("what each built-in op means, in plain C++"));
  add_ops(p);
  p.add(kernel<rms_norm>("rms_norm"));
  p.add(kernel<add_rms_norm>("add_rms_norm"));
  p.add(kernel<layer_norm>("layer_norm"));
  p.add(kernel<silu_and_mul>("silu_and_mul"));
  p.add(kernel<gelu_and_mul>("gelu_and_mul"));
  p.add(kernel<softmax>("softmax"));
  p.add(kernel<rotary_embedding>("rotary_embedding"));
  p.add(kernel<add>("add"));
  p.add(kernel<mul>("mul"));
  p.add(kernel<matmul>("matmul"));
  p.add(kernel<linear>("linear"));
  p.add(kernel<embedding>("embedding"));
  p.add(kernel<quantize_int8>("quantize_int8"));
  p.add(kernel<dequantize>("dequantize"));
  p.add(kernel<attention_full<false>>("attention.full"));
  p.add(kernel<attention_causal<false>>("attention.causal"));
  p.add(kernel<attention_sliding_window<false>>("attention.sliding_window"));
  p.add(kernel<attention_cross<false>>("attention.cross"));
  p.add(kernel<attention_decode<false>>("attention.decode"));
  p.add(kernel<attention_paged_decode<false>>("attention.paged_decode"));
  p.add(kernel<topk_softmax>("topk_softmax"));
  p.add(kernel<argmax>("argmax"));
  p.add(kernel<sample>("sample"));
  return p;
}

}  // namespace

const yard_plugin_t* descriptor() { return plugin::made_once<make>(); }

}  // namespace yard::reference

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t*) {
  return yard::reference::descriptor();
}
