// SPDX-License-Identifier: Apache-2.0
// Calls by name: a thread remembers how their arguments bind to the op's parameters.
#include <cstring>
#include <new>

#include "base/results.h"
#include "dispatch/call.h"

namespace yard::dispatch {
namespace {

constexpr int kBindingsLocal = 3;  // our index in ThreadRecord::locals

inline uint64_t bytes_at(const char* p) noexcept { return word_at(p); }
inline uint64_t few_bytes_at(const char* p) noexcept {
  uint32_t w;
  std::memcpy(&w, p, sizeof w);
  return w;
}

// The first and last bytes of a name, which overlap: all of it, if it is not longer than 16.
struct Ends {
  uint64_t first = 0, last = 0;

  [[gnu::always_inline]] explicit Ends(std::string_view s) noexcept {
    const char* const end = s.data() + s.size();
    if (s.size() >= 8) {
      first = bytes_at(s.data()), last = bytes_at(end - 8);
    } else if (s.size() >= 4) {
      first = few_bytes_at(s.data()), last = few_bytes_at(end - 4);
    } else if (!s.empty()) {
      first = static_cast<uint8_t>(s[0]) |
              static_cast<uint64_t>(static_cast<uint8_t>(s[s.size() / 2])) << 8;
      last = static_cast<uint8_t>(s.back());
    }
  }
};

// A name of bounded length, by value. Compared without a call: callers keep everything in registers.
class Name {
 public:
  static constexpr size_t kMost = 32;
  bool set(std::string_view s) noexcept {
    if (s.size() > kMost) return false;
    size_ = s.size(), ends_ = Ends(s);
    if (s.size() > 16)
      second_ = bytes_at(s.data() + 8), third_ = bytes_at(s.data() + s.size() - 16);
    return true;
  }
  // `e`: the ends of `s`.
  [[gnu::always_inline]] bool is(std::string_view s, const Ends& e) const noexcept {
    return ((s.size() ^ size_) | (e.first ^ ends_.first) | (e.last ^ ends_.last)) == 0 &&
           (size_ <= 16 ||
            (bytes_at(s.data() + 8) == second_ && bytes_at(s.data() + s.size() - 16) == third_));
  }

 private:
  size_t size_ = 0;
  Ends ends_{{}};
  uint64_t second_ = 0,
           third_ = 0;  // of one longer than 16: the bytes after the first 8 and before the last
};

// Where an argument goes, and the tag with which it is not converted.
struct Parameter {
  uint32_t to = 0, tag = 0;
  Name name;
};

// How the arguments of one way to write a call bind to the op's parameters. Valid while the op's version is; owns what it
// compares with, since the op may be removed at any time.
struct Binding {
  uint64_t core = 0;  // its id; 0: empty
  const std::atomic<uint64_t>* version = nullptr;
  uint64_t found = 0;
  Site* site = nullptr;
  Name op;
  uint32_t given = 0, count = 0;
  size_t in_order = 0;  // the arguments by position that come first: the n-th is for parameter n
  Parameter parameters[YARD_MAX_ARGS];  // of each argument
  uint32_t defaults = 0;                // bit n: parameter n is not given
  yard_value_t values[YARD_MAX_ARGS] = {};
};

struct Bindings {
  static constexpr uint32_t kCount = 64;
  Binding of[kCount];
};

// What a call needs if it is no hit: in memory, instead of registers that every call would have to save.
struct NamedCall {
  Core& core;
  std::string_view op;
  std::span<const Arg> args;
  Binding& binding;  // of the op and the way in which the call is written, or of another
};

// Binds the arguments as `b` does; false if it is for another op or another way to write the call. `ends` are those of the
// op's name. Tags are not compared: those of the expected form are right, and other calls go through call_bound_so().
[[gnu::always_inline]] inline bool apply(const Binding& b, const Core& core, std::string_view op,
                                         const Ends& ends, std::span<const Arg> args,
                                         yard_value_t* values) noexcept {
  if (b.core != core.id || b.given != args.size() || !b.op.is(op, ends)) return false;
  // Nothing is read that the version would publish: the call itself looks at what may have changed.
  if (b.version->load(kReread) != b.found) return false;
  const Arg *a = args.data(), *const end = a + args.size();
  for (const Arg* const named = a + b.in_order; a != named; ++a) {
    if (!a->name.empty()) return false;
    *values++ = a->value.cell();
  }
  values -= b.in_order;
  for (const Parameter* p = b.parameters + b.in_order; a != end; ++a, ++p) {
    if (!p->name.is(a->name, Ends(a->name))) return false;
    values[p->to] = a->value.cell();
  }
  for (uint32_t left = b.defaults; left != 0; left &= left - 1) {
    const auto i = static_cast<uint32_t>(std::countr_zero(left));
    values[i] = b.values[i];
  }
  return true;
}

// Remembers how `args` became `bound`, if that can be repeated without the schema.
void remember_binding(Binding& b, uint64_t found, const Core& core, Site* site, std::string_view op,
                      std::span<const Arg> args, const op::Arguments& bound) {
  b.core = 0;
  if (found == MemoVersion::kNever || !b.op.set(op)) return;
  b.site = site;
  b.version = &core.published.version(site->index.load(std::memory_order_acquire)).value(),
  b.found = found;
  b.in_order = 0;
  b.given = static_cast<uint32_t>(args.size()), b.count = bound.count;
  b.defaults = (bound.count < 32 ? uint32_t{1} << bound.count : 0) - 1;
  for (uint32_t i = 0; i < bound.count; ++i) b.values[i] = bound.values[i];
  const auto is = [](const yard_value_t& v, const yard_value_t& w) {
    return v.tag == w.tag && v.count == w.count && v.u.i == w.u.i;
  };
  uint32_t next = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    const yard_value_t& v = args[i].value.c();
    uint32_t at = next;
    if (args[i].name.empty()) {
      ++next;
    } else {
      at = bound.index_of[i];
    }
    if (at >= bound.count || !is(v, bound.values[at]) || !b.parameters[i].name.set(args[i].name))
      return;
    b.parameters[i].to = at, b.parameters[i].tag = v.tag;
    if (args[i].name.empty() && b.in_order == i) ++b.in_order;
    b.defaults &= ~(uint32_t{1} << at);
  }
  // The text of a default lives in the op.
  for (uint32_t i = 0; i < bound.count; ++i)
    if ((b.defaults >> i & 1) != 0 && b.values[i].tag == YARD_TAG_STRING) return;
  b.core = core.id;
}

}  // namespace

Result<Site*> bind_named(Core& core, std::string_view op, std::span<const Arg> args,
                         op::Arguments& to) {
  const auto found = core.sites.find(op);
  if (!found.ok()) return found.status();
  std::vector<op::Given> given;
  for (const Arg& a : args) given.push_back({a.name, a.value.c()});
  auto bound = op::bind(*found->record->op->program, given);
  if (!bound.ok()) return std::move(bound).status();
  to = *bound;
  Status why;
  Site* const site = core.sites.attach(op, kPackedLetters, &why);
  if (site == nullptr) return why;
  return site;
}

namespace {

// The thread's first call by name.
[[gnu::noinline]] Status::Rep* make_bindings_and_call(Core& core, std::string_view op,
                                                      std::span<const Arg> args) {
  base::ThreadRecord* const thread = base::try_this_thread();
  if (thread == nullptr) return Status::out_of_memory().release();
  base::set_thread_exit_hook(kBindingsLocal, [](void* p) { delete static_cast<Bindings*>(p); });
  void*& bindings = thread->locals[kBindingsLocal];
  if (bindings == nullptr) bindings = new (std::nothrow) Bindings;
  return bindings != nullptr ? call_named(core, op, args) : Status::out_of_memory().release();
}

// A call whose arguments are not bound yet, or in another way.
Status bind_and_call_packed(const NamedCall& call) {
  Core& core = call.core;
  // Read before the op is looked at.
  const auto s = core.snapshot();
  const registry::OpRecord* op_record = s->state->find(call.op);
  const uint64_t found = op_record != nullptr ? core.published.version(op_record->op->index).read()
                                              : MemoVersion::kNever;
  op::Arguments bound;
  auto site = bind_named(core, call.op, call.args, bound);
  if (!site.ok()) return std::move(site).status();
  const bool same = op_record != nullptr && (*site)->index.load() == op_record->op->index;
  remember_binding(call.binding, same ? found : MemoVersion::kNever, core, *site, call.op,
                   call.args, bound);
  return Status::adopt(call_packed(*site, bound.values, bound.count));
}
[[gnu::noinline]] Status::Rep* bind_and_call(const NamedCall& call) {
  return base::or_out_of_memory([&] { return bind_and_call_packed(call); }).release();
}

// A call whose arguments are `values`, if none is to be converted.
[[gnu::noinline]] Status::Rep* call_bound_so(const NamedCall& call, yard_value_t* values) {
  const Binding& b = call.binding;
  for (size_t i = 0; i < call.args.size(); ++i)
    if (call.args[i].value.cell().tag != b.parameters[i].tag) return bind_and_call(call);
  return call_views_other_way(b.site, values, b.count);
}

}  // namespace

Status::Rep* call_named(Core& core, std::string_view op, std::span<const Arg> args) {
  const ThreadHead* const thread = t_thread;
  void* const bindings =
      thread != nullptr ? static_cast<const base::ThreadRecord*>(thread)->locals[kBindingsLocal]
                        : nullptr;
  if (bindings == nullptr) [[unlikely]]
    return make_bindings_and_call(core, op, args);
  const Ends ends(op);
  // The hash of a way to write a call covers the number of arguments and the first letter and length of the last name.
  const std::string_view last = args.empty() ? std::string_view() : args.back().name;
  const uint64_t way = core.id + (args.size() << 8) + (last.size() << 16) +
                       (last.empty() ? 0 : uint64_t{static_cast<uint8_t>(last[0])} << 24);
  const uint64_t hash = ends.first ^ std::rotl(ends.last, 29) ^ op.size() ^ way << 20;
  Binding* b = static_cast<Bindings*>(bindings)->of + (hash * thread->hash_factor >> 58);
  asm("" : "+r"(b));  // or g++ computes the address again for every use
  const NamedCall call{core, op, args, *b};
  asm volatile("" : : "m"(call));
  yard_value_t values[YARD_MAX_ARGS];
  if (!apply(*b, core, op, ends, args, values)) [[unlikely]]
    return bind_and_call(call);
  Status::Rep* failed;
  if (run_if_expected<ViewTensor>(b->site, values, b->count, failed)) [[likely]]
    return failed;
  return call_bound_so(call, values);
}

}  // namespace yard::dispatch
