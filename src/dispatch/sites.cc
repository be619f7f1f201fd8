// SPDX-License-Identifier: Apache-2.0
// Finding ops, checking signatures, making sites.
#include "dispatch/sites.h"

#include <fmt/format.h>

#include "base/lists.h"
#include "base/text.h"
#include "dispatch/core.h"
#include "dispatch/memo.h"

namespace yard::dispatch {
namespace {

// What params.h calls each letter.
const char* cpp_name(char letter) {
  switch (letter) {
    case 'r': return "In";
    case 'w': return "Out";
    case 'm': return "InOut";
    case 'R': return "OptIn";
    case 'W': return "OptOut";
    case 'M': return "OptInOut";
    case 'l': return "InList";
    case 's': return "std::string_view";
    case 'f': return "a floating-point type";
    case 'n': return "an integer or enum type";
    case 'b': return "bool";
    default: return "?";
  }
}

char letter_of(const op::Param& p) {
  switch (p.kind) {
    case op::Kind::kTensor: {
      const char c = p.access == op::Access::kRead    ? 'r'
                     : p.access == op::Access::kWrite ? 'w'
                                                      : 'm';
      return p.optional ? static_cast<char>(c - 'a' + 'A') : c;
    }
    case op::Kind::kTensorList: return 'l';
    case op::Kind::kInt:
    case op::Kind::kEnum: return 'n';
    case op::Kind::kFloat: return 'f';
    case op::Kind::kBool: return 'b';
    case op::Kind::kString: return 's';
  }
  return '?';
}

// How many tensors there are, if no other parameter comes before one, none is optional and they are few; else 0.
uint8_t leading_tensors(const op::Schema& schema) {
  size_t n = 0;
  while (n < schema.params.size() && schema.params[n].is_tensor() && !schema.params[n].optional)
    ++n;
  for (size_t i = n; i < schema.params.size(); ++i)
    if (schema.params[i].is_tensor()) return 0;
  return n <= kAllPairs ? static_cast<uint8_t>(n) : 0;
}

void aim(Site& site, uint32_t index, uint32_t count, uint8_t leading) noexcept {
  site.count.store(count, std::memory_order_relaxed);
  site.leading.store(leading, std::memory_order_relaxed);
  site.index.store(index, std::memory_order_release);
}

}  // namespace

Status check_signature(const op::Program& program, std::string_view letters) {
  const auto& params = program.schema().params;
  const auto wrong = [&](const std::string& what) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("op '{}' is declared with a C++ signature that does not fit its schema: {}\n"
                    "  schema: {}",
                    program.name(), what, op::to_string(program.schema())));
  };
  if (letters.size() != params.size())
    return wrong(fmt::format("{} parameters, the schema has {}", letters.size(), params.size()));
  for (size_t i = 0; i < letters.size(); ++i) {
    const char want = letter_of(params[i]);
    if (letters[i] != want)
      return wrong(fmt::format("parameter {} ('{}') is {}, expected {}", i + 1, params[i].name,
                               cpp_name(letters[i]), cpp_name(want)));
  }
  return {};
}

bool Sites::first_need(std::string_view op, const registry::OpRecord* op_record) const {
  registry::LazyLoader* const loader = core_.services().lazy_loader();
  if (loader == nullptr) return false;
  std::atomic<bool>* needed =
      op_record != nullptr ? &(*by_index_)[op_record->op->index].needed : nullptr;
  if (needed != nullptr && needed->load(std::memory_order_acquire)) return false;
  if (select::inside_select()) return false;  // where nothing may be published
  if (!loader->need(PluginOffer::kOp, op)) return false;
  if (needed != nullptr) needed->store(true, std::memory_order_release);
  return true;
}

bool Sites::in_use(std::string_view op) const {
  const auto s = core_.snapshot();
  const registry::OpRecord* op_record = s->state->find(op);
  return op_record != nullptr &&
         (*by_index_)[op_record->op->index].needed.load(std::memory_order_acquire);
}

void Sites::forget_needed(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) (*by_index_)[i].needed = false;
}

Status Sites::unknown_op(const registry::State& state, std::string_view name) const {
  Status s(Code::kUnknownOp, fmt::format("op '{}' is not known{}", name,
                                         base::did_you_mean(name, base::keys(state.op_records))));
  if (registry::LazyLoader* const loader = core_.services().lazy_loader())
    for (std::string& line : loader->refused_for(PluginOffer::kOp, name)) s.note(std::move(line));
  return s;
}

Result<FoundOp> Sites::find(std::string_view name) const {
  auto s = core_.snapshot();
  const registry::OpRecord* record = s->state->find(name);
  if (first_need(name, record)) {
    s = core_.snapshot();
    record = s->state->find(name);
  }
  if (record == nullptr) return unknown_op(*s->state, name);
  return FoundOp{std::move(s), record};
}

Site* Sites::attach(std::string_view name, std::string_view letters, Status* why) {
  const auto found = find(name);
  if (!found.ok()) {
    *why = found.status();
    return nullptr;
  }
  const registry::Op& op = *found->record->op;
  if (letters != kPackedLetters) {
    *why = check_signature(*op.program, letters);
    if (!why->ok()) return nullptr;
  }
  // An index belongs to one schema for ever, a site to a name.
  std::atomic<Site*>* packed = letters == kPackedLetters ? &(*by_index_)[op.index].packed : nullptr;
  Site* site = packed != nullptr ? packed->load(std::memory_order_acquire) : nullptr;
  if (site == nullptr)
    for (Site& s : sites_)
      if (s.name == name && s.letters == letters) site = &s;
  const uint32_t count = op.program->arg_count();
  const uint8_t leading = leading_tensors(op.program->schema());
  if (site != nullptr) {
    aim(*site, op.index, count, leading);
  } else {
    // Two threads may make one each; both serve.
    static std::atomic<uint64_t> last_id{0};
    site = &sites_.append(
        std::unique_ptr<Site>(new Site{&core_,
                                       last_id.fetch_add(1, std::memory_order_relaxed) + 1,
                                       {op.index},
                                       {count},
                                       {leading},
                                       letters != kPackedLetters,
                                       std::string(name),
                                       std::string(letters)}));
  }
  if (packed != nullptr) packed->store(site, std::memory_order_release);
  return site;
}

Status Sites::attach_again(Site& site) {
  Status why;
  const Site* again = attach(site.name, site.letters, &why);
  if (again == nullptr) return why;
  if (again != &site)
    aim(site, again->index.load(std::memory_order_acquire),
        again->count.load(std::memory_order_relaxed),
        again->leading.load(std::memory_order_relaxed));
  return {};
}

}  // namespace yard::dispatch
