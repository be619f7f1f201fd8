// SPDX-License-Identifier: Apache-2.0
// Resolves the parameters of a kernel against the schema of its op.
#include "op/argument_map.h"

#include <fmt/format.h>

#include "base/lists.h"
#include "base/text.h"
#include "op/bind.h"
#include "op/numbers.h"

namespace yard::op {
namespace {

Status wrong(const KernelParam& k, std::string_view what) {
  return Status(Code::kInvalidArgument, fmt::format("its parameter '{}': {}", k.name, what));
}

// ---- Layouts ----

// The letters for a dimension in layouts such as BSHD, by the last word of its name.
constexpr std::pair<std::string_view, std::string_view> kLetters[] = {
    {"batch", "B"}, {"dim", "D"},     {"d", "D"},         {"size", "D"},   {"heads", "H"},
    {"seq", "NS"},  {"tokens", "NS"}, {"capacity", "NS"}, {"block", "NS"}, {"len", "NS"}};

bool has_letter(std::string_view name, char letter) {
  const std::string_view last = name.substr(name.rfind('_') + 1);
  return std::ranges::any_of(kLetters, [&](const auto& known) {
    return known.first == last && known.second.find(letter) != known.second.npos;
  });
}

std::vector<std::string_view> words_of(std::string_view layout, bool letters) {
  std::vector<std::string_view> to;
  if (!letters) to = base::split(layout, ' ');
  for (size_t i = 0; letters && i < layout.size(); ++i) to.push_back(layout.substr(i, 1));
  std::erase(to, "");
  return to;
}

Status read_order(const KernelParam& k, const Param& p, const std::string& layout, AxisOrder& to) {
  if (layout == "row-major") return {};
  const size_t rank = p.trailing();
  if (layout == "column-major") {
    if (rank < 2)
      return wrong(k, fmt::format("invalid layout 'column-major': expected a tensor of two or more "
                                  "dimensions, got {}",
                                  type_text(p)));
    to.count = 2, to.axes[0] = 1, to.axes[1] = 0;
    return {};
  }
  const auto invalid = [&](const std::string& got) {
    return wrong(k, fmt::format("invalid layout '{}': expected dimensions of {}, row-major or "
                                "column-major, got {}",
                                layout, type_text(p), got));
  };
  const bool letters = layout.find_first_not_of("BDHNS") == layout.npos;
  const auto words = words_of(layout, letters);
  if (words.empty() || words.size() > rank) return invalid(fmt::format("{} names", words.size()));
  if (words.size() > AxisOrder::kMost)
    return invalid(fmt::format("more than the last {} dimensions", AxisOrder::kMost));
  const size_t first = p.dims.size() - words.size();
  for (const std::string_view word : words) {
    size_t at = 0, matches = 0;
    for (size_t i = 0; i < p.dims.size(); ++i)
      if (const Dim& d = p.dims[i];
          d.kind == Dim::Kind::kNamed && (letters ? has_letter(d.name, word[0]) : d.name == word))
        at = i, ++matches;
    if (matches != 1)
      return invalid(fmt::format("'{}', which {}", word,
                                 matches == 0 ? "is none of them" : "two of them match"));
    if (at < first) return invalid(fmt::format("'{}' without a dimension after it", word));
    const auto axis = static_cast<uint8_t>(at - first);
    if (std::find(to.axes, to.axes + to.count, axis) != to.axes + to.count)
      return invalid(fmt::format("'{}' twice", word));
    to.axes[to.count++] = axis;
  }
  if (std::is_sorted(to.axes, to.axes + to.count)) to = {};
  return {};
}

// ---- Requirements ----

void require_strides(KernelParam& k, uint32_t flags, size_t arg) {
  using Kind = Field::Kind;
  if ((flags & YARD_PARAM_STRIDED) != 0) return;
  const bool rows = (flags & YARD_PARAM_ROWS) != 0;
  const auto add = [&](const Field& f) {
    k.requirements.push_back(
        {k.order.count > 0 ? kPermute : kContiguous, {f, IntegerTest::equals(1)}});
  };
  if (k.order.count > 0)
    return add(Field::of(rows ? Kind::kRowsAs : Kind::kCompactAs, arg, k.order));
  if (!rows) return add(Field::of(Kind::kCompact, arg));
  add(Field::of(Kind::kInnerDense, arg));
  add(Field::of(Kind::kPlain, arg));
}

Status read_pad(KernelParam& k, const Param& p, int64_t pad, size_t arg) {
  if (pad < 0 || pad > 65536)
    return wrong(k, fmt::format("invalid padding: expected a multiple of 1 to 65536, got {}", pad));
  if (p.trailing() == 0)
    return wrong(
        k, fmt::format("padding needs a dimension of its own, and {} has none", type_text(p)));
  k.pad = pad;
  Field inner = Field::of(Field::Kind::kDim, arg);
  // The padded axis is the last one for the kernel, counted from the end.
  const AxisOrder& o = k.order;
  inner.sources[0].axis = o.count == 0 ? 1 : static_cast<uint8_t>(o.count - o.axes[o.count - 1]);
  k.requirements.push_back({kPad, {inner, IntegerTest::multiple_of(pad)}});
  return {};
}

// Returns the dtypes that a parameter of the op may have.
uint64_t dtypes_of(const Schema& s, const Param& p) {
  if (p.dtype != DType::invalid) return bit_of(p.dtype);
  if (const auto* dtypes = s.dtypes_of(p.variable)) return mask_of(*dtypes);
  return ~uint64_t{0};
}

Status require(KernelParam& k, const ParamText& from, const Schema& s) {
  const auto arg = static_cast<size_t>(k.source);
  const Param& p = s.params[arg];
  constexpr uint32_t kStrides = YARD_PARAM_ROWS | YARD_PARAM_STRIDED;
  const bool any = !from.layout.empty() || from.dtypes != 0 || from.align != 0 || from.pad != 0 ||
                   (from.flags & kStrides) != 0;
  if (any && p.kind != Kind::kTensor)
    return wrong(k,
                 fmt::format("layout, dtypes, alignment and padding need a tensor, and '{}' is {}",
                             p.name, type_text(p)));
  if ((from.flags & kStrides) != 0 && from.layout.empty())
    return wrong(k, "flags about strides need a layout");
  if ((from.flags & kStrides) == kStrides)
    return wrong(k, "invalid flags: expected ROWS or STRIDED, got both");
  if (!from.layout.empty()) {
    YARD_RETURN_IF_ERROR(read_order(k, p, from.layout, k.order));
    require_strides(k, from.flags, arg);
  }
  if (from.dtypes != 0) {
    k.dtypes = from.dtypes;
    if ((k.accepted() & dtypes_of(s, p)) == 0)
      return wrong(k, fmt::format("invalid dtypes: no dtype of {} can be converted to one of them",
                                  type_text(p)));
    k.requirements.push_back(
        {kCast, {Field::of(Field::Kind::kDType, arg), IntegerTest::one_of_mask(from.dtypes)}});
  }
  if (from.align != 0) {
    if (from.align < 0 || from.align > YARD_MAX_ALIGN ||
        !std::has_single_bit(static_cast<uint64_t>(from.align)))
      return wrong(k, fmt::format("invalid alignment: expected a power of two up to {}, got {}",
                                  YARD_MAX_ALIGN, from.align));
    k.requirements.push_back(
        {kAlign, {Field::of(Field::Kind::kAlignment, arg), IntegerTest::at_least(from.align)}});
  }
  return from.pad != 0 ? read_pad(k, p, from.pad, arg) : Status();
}

char letter_of(const yard_value_t& constant) {
  switch (constant.tag) {
    case YARD_TAG_INT: return 'i';
    case YARD_TAG_BOOL: return 'b';
    case YARD_TAG_FLOAT: return 'f';
    case YARD_TAG_STRING: return 'v';
    default: return 't';  // an absent tensor
  }
}

// Fails unless every parameter of the op reaches the kernel or has a value that the kernel knows.
Status check_all_taken(const Schema& s, const ArgumentMap& map,
                       std::span<const std::string> fixed) {
  for (size_t i = 0; i < s.params.size(); ++i) {
    const auto taken = std::ranges::find(map.params, static_cast<int>(i), &KernelParam::source);
    if (taken != map.params.end() || base::contains(fixed, s.params[i].name)) continue;
    return Status(
        Code::kInvalidArgument,
        fmt::format("no parameter of its own is filled from '{}' of the op: expected one, or a "
                    "limit (absent, equals) or verifier that decides on its value",
                    s.params[i].name));
  }
  return {};
}

}  // namespace

bool same(const ParamText& a, const ParamText& b) noexcept {
  if (a.constant.tag != b.constant.tag || a.text != b.text) return false;
  if (a.constant.tag != YARD_TAG_STRING && a.constant.u.i != b.constant.u.i) return false;
  return a.name == b.name && a.source == b.source && a.layout == b.layout && a.flags == b.flags &&
         a.dtypes == b.dtypes && a.align == b.align && a.pad == b.pad;
}

std::string transforms_text(uint32_t bits) {
  constexpr const char* kNames[] = {"permute", "make contiguous", "cast", "align", "pad"};
  std::vector<const char*> names;
  for (size_t i = 0; i < std::size(kNames); ++i)
    if ((bits & (1u << i)) != 0) names.push_back(kNames[i]);
  return fmt::format("{}", fmt::join(names, ", "));
}

uint32_t KernelParam::transforms(const yard_tensor_t& t) const noexcept {
  uint32_t to = 0;
  for (const Requirement& r : requirements) {
    const Field& f = r.predicate.field;
    if (!r.predicate.test.holds(detail::read_tensor(f.kind, f.sources[0], &t))) to |= r.kind;
  }
  return to;
}

DType KernelParam::dtype_for(DType dtype) const noexcept {
  return dtypes == 0 ? dtype : narrowest_for(dtype, dtypes);
}

uint64_t KernelParam::accepted() const noexcept {
  return dtypes == 0 ? ~uint64_t{0} : dtypes | convertible_to(dtypes);
}

Result<ArgumentMap> ArgumentMap::resolve(const Program& program, std::span<const ParamText> params,
                                         std::span<const std::string> fixed) {
  const Schema& s = program.schema();
  ArgumentMap map;
  map.in_order = params.size() == s.params.size();
  for (const ParamText& from : params) {
    KernelParam k;
    k.name = from.name;
    if (from.is_constant()) {
      k.constant = from.constant, k.text = from.text;
      map.signature += letter_of(k.constant);
    } else {
      const std::string& source = from.source.empty() ? from.name : from.source;
      const Param* const p = s.find(source);
      if (p == nullptr)
        return wrong(k, fmt::format("the op has no parameter '{}' to fill it from{}", source,
                                    base::did_you_mean(source, s.param_names())));
      k.source = s.index_of(source), k.read = !p->is_output(), k.written = p->is_written();
      const auto other = std::ranges::find(map.params, k.source, &KernelParam::source);
      if (other != map.params.end())
        return wrong(
            k, fmt::format("it is filled from '{}', as '{}' is already", source, other->name));
      YARD_RETURN_IF_ERROR(require(k, from, s));
      map.signature += program.signature()[static_cast<size_t>(k.source)];
    }
    map.in_order &= k.source == static_cast<int>(map.params.size()) && k.order.count == 0;
    map.params.push_back(std::move(k));
  }
  YARD_RETURN_IF_ERROR(check_all_taken(s, map, fixed));
  for (KernelParam& k : map.params)  // their texts do not move any more
    if (k.constant.tag == YARD_TAG_STRING) k.constant = scalar(k.text);
  return map;
}

}  // namespace yard::op
