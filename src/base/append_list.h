// SPDX-License-Identifier: Apache-2.0
// Lists that only grow. Threads read and append without a lock, and a fork at any moment leaves the
// lists intact.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

namespace yard::base {

// Keeps items in the order of their addition. T needs a member `T* next = nullptr`.
template <class T>
class AppendList {
 public:
  AppendList& operator=(AppendList&&) = delete;

  struct Iterator {
    T* at;
    T& operator*() const noexcept { return *at; }
    Iterator& operator++() noexcept {
      at = load(at->next);
      return *this;
    }
    bool operator==(const Iterator&) const = default;
  };
  Iterator begin() const noexcept { return {load(first_)}; }
  Iterator end() const noexcept { return {nullptr}; }

  // Returns the first item for which same(item, *made) is true. Appends `made` if there is none.
  template <class Same>
  T& find_or_append(std::unique_ptr<T> made, const Same& same) {
    for (T** at = &first_;;) {
      T* there = load(*at);
      if (there == nullptr && std::atomic_ref(*at).compare_exchange_strong(there, made.get()))
        return *made.release();
      if (same(*there, *made)) return *there;
      at = &there->next;
    }
  }
  T& append(std::unique_ptr<T> made) {
    return find_or_append(std::move(made), [](const T&, const T&) { return false; });
  }

 private:
  static T* load(T* const& link) noexcept {
    return std::atomic_ref(const_cast<T*&>(link)).load(std::memory_order_acquire);
  }
  T* first_ = nullptr;
};

template <class T>
class OwnedAppendList : public AppendList<T> {
 public:
  ~OwnedAppendList() {
    for (T* t = this->begin().at; t != nullptr;) delete std::exchange(t, t->next);
  }
};

}  // namespace yard::base
