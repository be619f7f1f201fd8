// SPDX-License-Identifier: Apache-2.0
// Calls by name: a thread remembers how their arguments bind to the op's parameters.
#include <cstring>

#include "dispatch/call.h"

namespace yard::detail {
namespace {

constexpr int kThreadLocal = 3;  // our index in ThreadRecord::locals

// The first and last bytes of a name, which overlap: all of it, if it is not longer than 16.
struct Ends {
  uint64_t first = 0, last = 0;

  explicit Ends(std::string_view s) noexcept {
    const char* const end = s.data() + s.size();
    if (s.size() >= 8) {
      std::memcpy(&first, s.data(), 8);
      std::memcpy(&last, end - 8, 8);
    } else if (s.size() >= 4) {
      std::memcpy(&first, s.data(), 4);
      std::memcpy(&last, end - 4, 4);
    } else if (!s.empty()) {
      first = static_cast<uint8_t>(s[0]) |
              static_cast<uint64_t>(static_cast<uint8_t>(s[s.size() / 2])) << 8;
      last = static_cast<uint8_t>(s.back());
    }
  }
  uint64_t hash(size_t size) const noexcept {
    return (first ^ std::rotl(last, 29) ^ size) * 0x9e3779b97f4a7c15ull;
  }
  bool operator==(const Ends&) const noexcept = default;
};

// A name of bounded length, by value.
struct Name {
  static constexpr size_t kMost = 32;
  size_t size = 0;
  Ends ends{{}};
  char text[kMost];

  bool set(std::string_view s) noexcept {
    if (s.size() > kMost) return false;
    size = s.size();
    ends = Ends(s);
    if (!s.empty()) std::memcpy(text, s.data(), s.size());
    return true;
  }
  // `e`: the ends of `s`.
  bool is(std::string_view s, const Ends& e) const noexcept {
    return s.size() == size && e == ends &&
           (size <= 16 || std::memcmp(s.data() + 8, text + 8, size - 16) == 0);
  }
};

// Where an argument goes. It is not converted.
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
  uint8_t given = 0, count = 0;
  Parameter parameters[YARD_MAX_ARGS];  // of each argument
  uint32_t defaults = 0;                // bit n: parameter n is not given
  yard_value_t values[YARD_MAX_ARGS] = {};
};

struct Bindings {
  static constexpr uint32_t kCount = 32;
  Binding of[kCount];
};

// Binds the arguments as `b` does; false if it is for another op or another way to write the call. `ends` are those of the
// op's name.
[[gnu::always_inline]] inline bool apply(const Binding& b, const Core& core, std::string_view op,
                                         const Ends& ends, std::span<const Arg> args,
                                         yard_value_t* values) noexcept {
  if (b.core != core.id || b.given != args.size() || !b.op.is(op, ends)) return false;
  // Nothing is read that the version would publish: the call itself looks at what may have changed.
  if (b.version->load(kReread) != b.found) return false;
  const Parameter* p = b.parameters;
  for (const Arg& a : args) {
    const yard_value_t& v = a.value.c();
    if (v.tag != p->tag || a.name.size() != p->name.size) return false;
    if (!a.name.empty() && !p->name.is(a.name, Ends(a.name))) return false;
    values[p->to] = v;
    ++p;
  }
  for (uint32_t left = b.defaults; left != 0; left &= left - 1) {
    const auto i = static_cast<uint32_t>(std::countr_zero(left));
    values[i] = b.values[i];
  }
  return true;
}

Binding* binding_at(uint64_t hash) {
  base::ThreadRecord& thread = base::this_thread();
  auto*& bindings = reinterpret_cast<Bindings*&>(thread.locals[kThreadLocal]);
  if (bindings == nullptr) {
    base::set_thread_exit_hook(kThreadLocal, [](void* p) { delete static_cast<Bindings*>(p); });
    bindings = new Bindings;
  }
  return &bindings->of[hash >> 59];
}

// Remembers how `args` became `bound`, if that can be repeated without the schema.
void remember_binding(Binding& b, uint64_t found, const Core& core, Site* site, std::string_view op,
                      std::span<const Arg> args, const op::Arguments& bound) {
  b.core = 0;
  if (found == MemoVersion::kNever || !b.op.set(op)) return;
  b.site = site;
  b.version = &core.published.version(site->index.load(std::memory_order_acquire)).value(),
  b.found = found;
  b.given = static_cast<uint8_t>(args.size()), b.count = static_cast<uint8_t>(bound.count);
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
  Site* const site = core.sites.attach(op, kPacked, &why);
  if (site == nullptr) return why;
  return site;
}

namespace {

// A call whose arguments are not bound yet, or in another way; `b` is where that is remembered.
[[gnu::noinline]] Status::Rep* bind_and_call(Binding& b, Core& core, std::string_view op,
                                             std::span<const Arg> args) {
  // Read before the op is looked at.
  const auto s = core.snapshot();
  const registry::OpRecord* op_record = s->state->find(op);
  const uint64_t found = op_record != nullptr ? core.published.version(op_record->op->index).read()
                                              : MemoVersion::kNever;
  op::Arguments bound;
  auto site = bind_named(core, op, args, bound);
  if (!site.ok()) return std::move(site).status().release();
  const bool same = op_record != nullptr && (*site)->index.load() == op_record->op->index;
  remember_binding(b, same ? found : MemoVersion::kNever, core, *site, op, args, bound);
  return call_packed(*site, bound.values, bound.count);
}

}  // namespace

Status call_named(Core& core, std::string_view op, std::span<const Arg> args) {
  const Ends ends(op);
  // The hash of a way to write a call covers the number of arguments and the first letter and length of the last name.
  const std::string_view last = args.empty() ? std::string_view() : args.back().name;
  const uint64_t way = (core.id << 16) + (args.size() << 8) + (last.empty() ? 0 : last[0]);
  const uint64_t hash = ends.hash(op.size()) + (way + last.size()) * 0xc2b2ae3d27d4eb4full;
  Binding& b = *binding_at(hash);
  yard_value_t values[YARD_MAX_ARGS];
  if (apply(b, core, op, ends, args, values)) [[likely]]
    return Status::adopt(call_packed(b.site, values, b.count));
  return Status::adopt(bind_and_call(b, core, op, args));
}

}  // namespace yard::detail
