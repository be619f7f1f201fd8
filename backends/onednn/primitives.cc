// SPDX-License-Identifier: Apache-2.0
#include "primitives.h"

#include <algorithm>

#include "process.h"
#include "rows.h"

namespace yard::onednn {
namespace {

// The capacity of the shared cache. Attention uses up to twelve primitives per thread.
constexpr size_t kKept = 512;

dnnl::memory::data_type type_of(bool bf16) {
  return bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

}  // namespace

const dnnl::engine& cpu_engine() {
  static const auto* const cpu = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *cpu;
}

dnnl::memory::desc packed_form(const Key& key) {
  using Desc = dnnl::memory::desc;
  constexpr int64_t kRows = 64;
  const ThreadCount one(nullptr, 1);
  const auto type = type_of(key.bf16);
  const Desc left({kRows, key.width}, type, {key.width, 1});
  const Desc right({key.width, key.columns}, type, dnnl::memory::format_tag::any);
  const Desc out({kRows, key.columns}, type_of(key.bf16 && !key.wide), {key.columns, 1});
  return dnnl::matmul::primitive_desc(dnnl::matmul::desc(left, right, out), cpu_engine())
      .weights_desc();
}

int64_t most_packed_bytes(const Key& key) {
  constexpr int64_t kBlock = 64;  // the largest block in either direction
  const auto padded = [](int64_t n) { return (n + kBlock - 1) / kBlock * kBlock; };
  return padded(key.width) * padded(key.columns) * (key.bf16 ? 2 : 4);
}

bool is_blocked(const dnnl::memory::desc& form) {
  return form.data.format_kind == dnnl_blocked && form.data.format_desc.blocking.inner_nblks > 0;
}

Primitive::Primitive(const Key& key) : key_(key), stream_(cpu_engine()) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.kind == Kind::kProduct || key.kind == Kind::kPack) {
    key.kind == Kind::kProduct ? prepare_product(attributes) : prepare_pack(attributes);
    return;
  }
  const dnnl::memory::desc form({key.rows, key.width}, dnnl::memory::data_type::f32,
                                dnnl::memory::format_tag::ab);
  add(DNNL_ARG_DST, form);
  add(DNNL_ARG_SRC, form);
  if (key.kind == Kind::kSoftmax)
    prepare_softmax(form, attributes);
  else
    prepare_layer_norm(form, attributes);
}

void Primitive::add(int argument, const dnnl::memory::desc& form) {
  memories_.push_back(dnnl::memory(form, cpu_engine(), DNNL_MEMORY_NONE));
  args_.push_back({argument, memories_.back().get()});
}

void Primitive::prepare_softmax(const dnnl::memory::desc& form,
                                const dnnl::primitive_attr& attributes) {
  const dnnl::softmax_forward::desc what(dnnl::prop_kind::forward_inference, form, 1);
  const dnnl::softmax_forward::primitive_desc how(what, attributes, cpu_engine());
  scratchpad_bytes_ = how.scratchpad_desc().get_size();
  add(DNNL_ARG_SCRATCHPAD, how.scratchpad_desc());
  primitive_ = dnnl::softmax_forward(how);
}

void Primitive::prepare_layer_norm(const dnnl::memory::desc& form,
                                   const dnnl::primitive_attr& attributes) {
  const dnnl::memory::desc row({key_.width}, dnnl::memory::data_type::f32,
                               dnnl::memory::format_tag::a);
  unsigned flags = 0;
  if (key_.scale) flags |= dnnl_use_scale;
  if (key_.shift) flags |= dnnl_use_shift;
  const dnnl::layer_normalization_forward::desc what(dnnl::prop_kind::forward_inference, form,
                                                     key_.eps, dnnl::normalization_flags(flags));
  const dnnl::layer_normalization_forward::primitive_desc how(what, attributes, cpu_engine());
  scratchpad_bytes_ = how.scratchpad_desc().get_size();
  add(DNNL_ARG_SCRATCHPAD, how.scratchpad_desc());
  if (key_.scale) add(DNNL_ARG_SCALE, row);
  if (key_.shift) add(DNNL_ARG_SHIFT, row);
  primitive_ = dnnl::layer_normalization_forward(how);
}

void Primitive::prepare_pack(const dnnl::primitive_attr& attributes) {
  const dnnl::memory::desc from({key_.width, key_.columns}, type_of(key_.bf16),
                                key_.by_column ? dnnl::memory::dims{1, key_.right_stride}
                                               : dnnl::memory::dims{key_.right_stride, 1});
  const dnnl::memory::desc to = packed_form(key_);
  if (static_cast<int64_t>(to.get_size()) > most_packed_bytes(key_))
    throw dnnl::error(dnnl_unimplemented, "a packed form that is larger than expected");
  const dnnl::reorder::primitive_desc how(cpu_engine(), from, cpu_engine(), to, attributes);
  scratchpad_bytes_ = how.scratchpad_desc().get_size();
  add(DNNL_ARG_DST, to);
  add(DNNL_ARG_SRC, from);
  add(DNNL_ARG_SCRATCHPAD, how.scratchpad_desc());
  primitive_ = dnnl::reorder(how);
}

void Primitive::prepare_product(dnnl::primitive_attr attributes) {
  using Desc = dnnl::memory::desc;
  const auto type = type_of(key_.bf16);
  const Desc left({key_.rows, key_.width}, type, {key_.left_stride, 1});
  const Desc right = key_.packed ? packed_form(key_)
                     : key_.by_column
                         ? Desc({key_.width, key_.columns}, type, {1, key_.right_stride})
                         : Desc({key_.width, key_.columns}, type, {key_.right_stride, 1});
  const Desc out({key_.rows, key_.columns}, type_of(key_.bf16 && !key_.wide), {key_.out_stride, 1});
  if (key_.add) {
    dnnl::post_ops after;
    after.append_sum(1.0f);
    attributes.set_post_ops(after);
  }
  const Desc bias({1, key_.columns}, type, {key_.columns, 1});
  const dnnl::matmul::desc what = key_.shift ? dnnl::matmul::desc(left, right, bias, out)
                                             : dnnl::matmul::desc(left, right, out);
  const dnnl::matmul::primitive_desc how(what, attributes, cpu_engine());
  scratchpad_bytes_ = how.scratchpad_desc().get_size();
  add(DNNL_ARG_DST, out);
  add(DNNL_ARG_SRC, left);
  add(DNNL_ARG_WEIGHTS, right);
  if (key_.shift) add(DNNL_ARG_BIAS, bias);
  add(DNNL_ARG_SCRATCHPAD, how.scratchpad_desc());
  primitive_ = dnnl::matmul(how);
}

void Primitive::execute(const Operands& on, void* scratchpad) {
  for (size_t i = 0; i < args_.size(); ++i) {
    void* at = nullptr;
    switch (args_[i].arg) {
      case DNNL_ARG_DST: at = on.out; break;
      case DNNL_ARG_SRC: at = on.x; break;
      case DNNL_ARG_SCALE: at = on.scale; break;
      case DNNL_ARG_SHIFT:
      case DNNL_ARG_BIAS: at = on.shift; break;
      case DNNL_ARG_WEIGHTS: at = on.right; break;
      default: at = scratchpad; break;
    }
    memories_[i].set_data_handle(at);
  }
  dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream_.get(),
                                                 static_cast<int>(args_.size()), args_.data()),
                          "oneDNN could not run a primitive");
  stream_.wait();
}

std::unique_ptr<Primitive> PrimitiveCache::take(const Key& key) {
  {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(idle_.rbegin(), idle_.rend(), [&](const auto& p) { return p->key() == key; });
    if (found != idle_.rend()) {
      std::unique_ptr<Primitive> p = std::move(*found);
      idle_.erase(std::next(found).base());
      return p;
    }
    ++made_;
  }
  return std::make_unique<Primitive>(key);
}

void PrimitiveCache::give_back(std::unique_ptr<Primitive> primitive) {
  std::unique_ptr<Primitive> oldest;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(primitive));
  if (idle_.size() > capacity_) {
    oldest = std::move(idle_.front());
    idle_.erase(idle_.begin());
  }
}

PrimitiveCache& PrimitiveCache::shared() {
  static auto* const cache = new PrimitiveCache(kKept);
  return *cache;
}

size_t PrimitiveCache::idle() const {
  const std::lock_guard lock(mutex_);
  return idle_.size();
}

uint64_t PrimitiveCache::made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

int32_t run_primitive(plugin::Call call, Key key, const Operands& on) {
  // Waking a thread takes as long as this many elements.
  constexpr int64_t kElementsPerThread = 16384, kMostPieces = 1 << 20;
  const int64_t pieces =
      key.kind == Kind::kProduct
          ? static_cast<int64_t>(std::min<double>(
                kMostPieces, static_cast<double>(key.rows) * static_cast<double>(key.columns) *
                                 static_cast<double>(key.width) / kOperationsPerThread))
          : std::min(key.rows, key.rows * key.width / kElementsPerThread);
  const ThreadCount threads(call.c()->host, pieces);
  key.threads = threads.value();
  std::unique_ptr<Primitive> primitive = PrimitiveCache::shared().take(key);
  const auto bytes = static_cast<int64_t>(primitive->scratchpad_bytes());
  const std::span<char> scratchpad = bytes > 0 ? scratch<char>(call, bytes) : std::span<char>();
  if (static_cast<int64_t>(scratchpad.size()) != bytes)
    return call.fail(YARD_TRANSIENT, "no memory for oneDNN's scratchpad of %lld bytes",
                     static_cast<long long>(bytes));
  primitive->execute(on, scratchpad.data());
  PrimitiveCache::shared().give_back(std::move(primitive));
  return YARD_OK;
}

}  // namespace yard::onednn
