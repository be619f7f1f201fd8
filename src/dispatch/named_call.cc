// SPDX-License-Identifier: Apache-2.0
// Calls by name. A thread remembers how the arguments of a call bind to the parameters of its op.
#include <new>

#include "base/results.h"
#include "dispatch/call.h"

namespace yard::dispatch {
namespace {

constexpr int kBindingsLocal = 3;  // this file's index in ThreadRecord::locals

// How one way to write a call binds arguments to the op's parameters. Valid while the op's version
// is `found`. Owns the names, because the op may be removed at any time.
struct Binding {
  uint64_t core = 0;  // the id of the core, or 0 if this binding is empty
  const std::atomic<uint64_t>* version = nullptr;
  uint64_t found = 0;
  Site* site = nullptr;
  std::string op;
  struct Argument {
    std::string name;  // empty for an argument by position
    uint32_t to = 0;   // index of its parameter
    uint32_t tag = 0;  // an argument with this tag needs no conversion
  };
  std::vector<Argument> arguments;
  uint32_t given = 0, count = 0, defaults = 0;  // bit n of `defaults`: parameter n is not given
  yard_value_t values[YARD_MAX_ARGS] = {};      // defaults of the parameters that are not given
};

struct Bindings {
  Binding of[64];

  Binding& find(const Core& core, std::string_view op, std::span<const Arg> args) noexcept {
    const size_t last = args.empty() ? 0 : args.back().name.size();
    uint64_t name = 0;
    if (op.size() >= 8)
      name = word_at(op.data() + op.size() - 8);
    else
      for (const char c : op) name = name << 8 | static_cast<uint8_t>(c);
    const uint64_t way = core.id << 56 ^ args.size() << 48 ^ last << 40 ^ op.size() << 24 ^ name;
    Binding* place = of + (way * 0x82bb1ee2dd4f7d61u >> 58);
    asm("" : "+r"(place));  // keeps g++ from computing the address again for every use
    return *place;
  }
};

// Names are short, so this saves about 30 instructions per call of an op over memcmp().
bool is_same(std::string_view a, const std::string& b) noexcept {
  size_t left = a.size();
  if (left != b.size()) return false;
  if (left == 0) return true;  // of arguments by position
  const char *p = a.data(), *q = b.data();
  for (; left >= 8; left -= 8, p += 8, q += 8)
    if (word_at(p) != word_at(q)) return false;
  for (; left > 0; --left)
    if (*p++ != *q++) return false;
  return true;
}

// Puts the arguments in order. Returns false if the binding is stale or is not for this call.
bool apply(const Binding& b, const Core& core, std::string_view op, std::span<const Arg> args,
           yard_value_t* values, uint32_t& views) noexcept {
  if (b.core != core.id || b.given != args.size() || !is_same(op, b.op)) return false;
  // This reads no data that the version publishes. The call itself checks what may have changed.
  if (b.version->load(kReread) != b.found) return false;
  uint32_t found = 0;
  for (uint32_t left = b.defaults; left != 0; left &= left - 1) {
    const auto i = static_cast<uint32_t>(std::countr_zero(left));
    values[i] = b.values[i];
  }
  const Binding::Argument* argument = b.arguments.data();
  for (const Arg& a : args) {
    const yard_value_t& v = a.value.cell();
    const auto& [name, to, tag] = *argument++;
    if (v.tag != tag || !is_same(a.name, name)) return false;
    if (tag != YARD_TAG_TENSOR) {
      values[to] = v;
    } else {
      values[to] = {YARD_TAG_TENSOR, 0, v.u};
      found |= uint32_t{v.count != Value::kOther} << to;
    }
  }
  views = found;
  return true;
}

// Remembers how `args` became `bound`, if that can be repeated without the schema.
void remember_binding(Binding& b, uint64_t found, const Core& core, Site* site, std::string_view op,
                      std::span<const Arg> args, const op::Arguments& bound) {
  b.core = 0;
  b.site = site, b.op = op, b.count = bound.count;
  b.version = &core.published.version(site->index.load(std::memory_order_acquire)).value();
  b.found = found;
  b.given = static_cast<uint32_t>(args.size());
  b.arguments.resize(args.size());
  uint32_t next = 0;
  b.defaults = (1u << bound.count) - 1;
  for (size_t i = 0; i < args.size(); ++i) {
    const yard_value_t& v = args[i].value.c();
    const uint32_t to = args[i].name.empty() ? next++ : bound.index_of[i];
    if (to >= bound.count) return;
    const yard_value_t& w = bound.values[to];
    if (v.tag != w.tag || v.count != w.count || v.u.i != w.u.i) return;  // it was converted
    b.arguments[i] = {std::string(args[i].name), to, v.tag};
    b.defaults &= ~(1u << to);
  }
  for (uint32_t i = 0; i < bound.count; ++i) {
    b.values[i] = bound.values[i];
    // The op owns the text of a default, so such a binding cannot be remembered.
    if ((b.defaults >> i & 1) != 0 && b.values[i].tag == YARD_TAG_STRING) return;
  }
  b.core = core.id;
}

Status bind_and_call(Core& core, std::string_view op, std::span<const Arg> args, Binding& binding) {
  // Read the version before looking at the op.
  const auto s = core.snapshot();
  const registry::OpRecord* const known = s->state->find(op);
  const uint64_t found =
      known != nullptr ? core.published.version(known->op->index).read() : MemoVersion::kNever;
  YARD_ASSIGN_OR_RETURN(const NamedCall bound, bind_named(core, op, args));
  if (found != MemoVersion::kNever && bound.site->index.load() == known->op->index)
    remember_binding(binding, found, core, bound.site, op, args, bound.arguments);
  return Status::adopt(call(bound.site, bound.cells()));
}

// Returns null if memory runs out.
Bindings* bindings_of(base::ThreadRecord& thread) noexcept {
  void*& bindings = thread.locals[kBindingsLocal];
  if (bindings == nullptr) [[unlikely]] {
    base::set_thread_exit_hook(kBindingsLocal, [](void* p) { delete static_cast<Bindings*>(p); });
    bindings = new (std::nothrow) Bindings;
  }
  return static_cast<Bindings*>(bindings);
}

}  // namespace

Result<NamedCall> bind_named(Core& core, std::string_view op, std::span<const Arg> args) {
  YARD_ASSIGN_OR_RETURN(const auto found, core.sites.find(op));
  std::vector<op::Given> given;
  for (const Arg& a : args) given.push_back({a.name, a.value.c()});
  const std::shared_ptr<const op::Program>& program = found.record->op->program;
  YARD_ASSIGN_OR_RETURN(const op::Arguments arguments, op::bind(*program, given));
  Status why;
  Site* const site = core.sites.attach(op, kPackedLetters, &why);
  if (site == nullptr) return why;
  return NamedCall{site, program, arguments};
}

Status::Rep* call_named(Core& core, std::string_view op, std::span<const Arg> args) {
  base::ThreadRecord* const thread = base::try_this_thread();
  Bindings* const bindings = thread != nullptr ? bindings_of(*thread) : nullptr;
  if (bindings == nullptr) [[unlikely]]
    return Status::out_of_memory().release();
  Binding& b = bindings->find(core, op, args);
  yard_value_t values[YARD_MAX_ARGS];
  uint32_t views = 0;
  if (apply(b, core, op, args, values, views)) [[likely]]
    return call(b.site, {values, b.count, views});
  return base::or_out_of_memory([&] { return bind_and_call(core, op, args, b); }).release();
}

}  // namespace yard::dispatch
