// SPDX-License-Identifier: Apache-2.0
#include "provider/implementation.h"

#include <fmt/format.h>

#include "base/interned.h"
#include "base/log.h"
#include "base/reclaimer.h"
#include "select/reasons.h"

namespace yard::provider {
namespace {

base::InternedTexts g_reason_texts;  // of the program's verifiers
base::InternedTexts g_backend_names;
constexpr int32_t kInterned = 1 << 20;
constexpr uint32_t kMostTexts = 4096;

bool is_interned(int32_t code) noexcept { return code >= kInterned; }

}  // namespace

Implementation::Implementation(std::shared_ptr<const registry::Hook> h) : hook(std::move(h)) {
  run = hook->d.function;
  verify = hook->d.verify;
  self = hook->d.self;
  backend = g_backend_names.intern(hook->backend)->text.c_str();
  ran = runs.id();
}

void Implementation::retire(const Implementation* i) {
  base::reclaimer().retire(const_cast<Implementation*>(i),
                           [](void* p) { delete static_cast<Implementation*>(p); },
                           {static_cast<const detail::FunctionRow*>(i)});
}

std::shared_ptr<const Implementation> Implementation::make(
    std::shared_ptr<const registry::Hook> hook) {
  return {new Implementation(std::move(hook)), &Implementation::retire};
}

bool Implementation::has_text(int32_t reason) const noexcept {
  if (is_interned(reason) || reason < YARD_REASON_OWN) return true;
  return static_cast<size_t>(reason - YARD_REASON_OWN) < hook->reasons.size();
}

std::string Implementation::text_of(int32_t reason, const int64_t figures[3]) const {
  if (is_interned(reason)) {
    const std::string_view text = g_reason_texts.text(static_cast<uint32_t>(reason - kInterned));
    return registry::fill_in(text, figures);
  }
  if (reason >= YARD_REASON_OWN) {
    if (has_text(reason))
      return registry::fill_in(hook->reasons[static_cast<size_t>(reason - YARD_REASON_OWN)],
                               figures);
    return fmt::format("reason {}, for which the backend has no text", reason);
  }
  for (const select::ReasonInfo& r : select::reasons())
    if (r.code == reason) return std::string(r.meaning);
  return fmt::format("unknown reason {}", reason);
}

const Implementation::Reason* Implementation::find(int32_t code) const noexcept {
  for (const Reason& r : reasons_) {
    const int32_t c = r.code.load(std::memory_order_acquire);
    if (c == code) return &r;
    if (c == YARD_REASON_NONE) return nullptr;
  }
  return nullptr;
}

const Implementation::Reason* Implementation::learn(int32_t code, const int64_t figures[3],
                                                    std::string text) const {
  const std::unique_lock lock(learning_, std::try_to_lock);
  if (!lock) return nullptr;
  if (const Reason* known = find(code)) return known;
  for (Reason& r : reasons_) {
    if (r.code.load(std::memory_order_relaxed) != YARD_REASON_NONE) continue;
    r.count = std::make_unique<base::Counter>();
    for (int i = 0; i < 3; ++i) r.figures[i] = figures[i];
    r.text = std::move(text);
    r.code.store(code, std::memory_order_release);
    base::log(LogLevel::kInfo, "dispatch",
              fmt::format("Backend '{}' refuses a call of function '{}/{}': {}", hook->backend,
                          hook->group, hook->name, r.text));
    return &r;
  }
  return nullptr;
}

void Implementation::refused(const yard_verdict_t& v) const {
  const int32_t reason = v.reason > YARD_REASON_NONE ? v.reason : int32_t{YARD_REASON_REFUSED};
  const Reason* r = find(reason);
  if (r == nullptr && reasons_[kReasons - 1].code.load(std::memory_order_relaxed) == 0)
    r = learn(reason, v.figures, text_of(reason, v.figures));
  detail::count(base::this_thread(), r != nullptr ? r->count->id() : others_.id());
}

void Implementation::broken(const std::string& text) const {
  const int64_t none[3] = {};
  const Reason* r = find(YARD_REASON_VERIFIER_BROKEN);
  if (r == nullptr) r = learn(YARD_REASON_VERIFIER_BROKEN, none, text);
  detail::count(base::this_thread(), r != nullptr ? r->count->id() : others_.id());
  base::log(LogLevel::kWarn, "dispatch",
            fmt::format("The verifier of backend '{}' for function '{}/{}' is broken: {}",
                        hook->backend, hook->group, hook->name, text));
}

std::vector<FunctionRefusal> Implementation::refusals() const {
  std::vector<FunctionRefusal> to;
  for (const Reason& r : reasons_) {
    const int32_t code = r.code.load(std::memory_order_acquire);
    if (code == YARD_REASON_NONE) break;
    to.push_back({std::string(select::reason_name(code)), r.text, r.count->total()});
  }
  if (const uint64_t n = others_.total(); n > 0) to.push_back({"own", "for other reasons", n});
  return to;
}

std::string thrown_text() {
  try {
    throw;
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "something that is no std::exception";
  }
}

}  // namespace yard::provider

namespace yard::detail {

using provider::Implementation;

int32_t intern_reason(const char* text) noexcept {
  const auto* item = provider::g_reason_texts.intern(text, provider::kMostTexts);
  return item != nullptr ? provider::kInterned + static_cast<int32_t>(item->number)
                         : int32_t{YARD_REASON_REFUSED};
}

void function_refused(const FunctionRow& row, const yard_verdict_t& v) {
  static_cast<const Implementation&>(row).refused(v);
}

void function_verifier_threw(const FunctionRow& row) {
  static_cast<const Implementation&>(row).broken("it threw: " + provider::thrown_text());
}

}  // namespace yard::detail
