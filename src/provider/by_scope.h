// SPDX-License-Identifier: Apache-2.0
// What calls read inside scopes whose policy concerns hooks or functions, by ScopeState::providers.
//
// Immutable, behind one pointer: replaced when a scope is added, withdrawn when anything changes. Calls that hold a
// hazard slot on it may use its values, and move the slot on to what they keep.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/reclaimer.h"

namespace yard::provider {

template <class T>
class ByScope {
 public:
  struct Entry {
    uint64_t scope;
    std::shared_ptr<const T> value;  // may be null
  };
  const Entry* find(uint64_t scope) const noexcept {
    for (const Entry& e : entries_)
      if (e.scope == scope) return &e;
    return nullptr;
  }
  const std::vector<Entry>& entries() const noexcept { return entries_; }

  // Writers hold a lock. D derives from this class; `scope` has no entry.
  template <class D>
  static void add(std::atomic<const D*>& at, uint64_t scope, std::shared_ptr<const T> value) {
    auto next = std::make_unique<D>();
    if (const D* now = at.load(std::memory_order_acquire))
      if (now->entries_.size() < kMost) next->entries_ = now->entries_;
    next->entries_.push_back({scope, std::move(value)});
    exchange(at, next.release());
  }
  template <class D>
  static void withdraw(std::atomic<const D*>& at) {
    exchange(at, static_cast<const D*>(nullptr));
  }

 private:
  static constexpr size_t kMost = 64;  // beyond that all are made again

  template <class D>
  static void exchange(std::atomic<const D*>& at, const D* next) {
    if (const D* old = at.exchange(next, std::memory_order_acq_rel))
      base::reclaimer().retire(const_cast<D*>(old), [](void* p) { delete static_cast<D*>(p); },
                               {old});
  }
  std::vector<Entry> entries_;
};

}  // namespace yard::provider
