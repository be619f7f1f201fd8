// SPDX-License-Identifier: Apache-2.0
// Lists that only grow, and what is made of them. No lock: any number of threads read and append at once, and a forked child
// finds them whole at any moment.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace yard::base {

// Items in the order in which they were added. Each has a member `T* next = nullptr`. They are never freed.
template <class T>
class AppendList {
 public:
  constexpr AppendList() noexcept = default;
  AppendList(const AppendList&) = delete;
  AppendList& operator=(const AppendList&) = delete;

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
  bool empty() const noexcept { return begin() == end(); }

  // The first item that is the `same`, else `made` as the last one. Asks same(item, *made) of each item before that.
  template <class Same>
  T& find_or_append(std::unique_ptr<T> made, const Same& same) {
    for (T** at = &first_;;) {
      T* there = load(*at);
      if (there == nullptr && std::atomic_ref(*at).compare_exchange_strong(
                                  there, made.get(), std::memory_order_acq_rel))
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

// The same for a member of an object: freed with it.
template <class T>
class OwnedAppendList : public AppendList<T> {
 public:
  OwnedAppendList() = default;
  ~OwnedAppendList() {
    for (T* t = this->begin().at; t != nullptr;) delete std::exchange(t, t->next);
  }
};

// Pointers to objects that come and go.
template <class T>
class ForkSafeList {
 public:
  constexpr ForkSafeList() noexcept = default;
  void add(T* item) {
    for (Node& n : nodes_) {
      T* expected = nullptr;
      if (n.item.compare_exchange_strong(expected, item, std::memory_order_acq_rel)) return;
    }
    nodes_.append(std::make_unique<Node>(item));
  }
  void remove(const T* item) noexcept {
    for (Node& n : nodes_)
      if (n.item.load(std::memory_order_relaxed) == item)
        n.item.store(nullptr, std::memory_order_release);
  }
  template <class F>
  void for_each(const F& f) const {
    for (const Node& n : nodes_)
      if (T* item = n.item.load(std::memory_order_acquire)) f(*item);
  }

 private:
  struct Node {
    explicit Node(T* i) noexcept : item(i) {}
    std::atomic<T*> item;  // null: free for another
    Node* next = nullptr;
  };
  AppendList<Node> nodes_;
};

// Texts with numbers, each once. Linear search: for rare use.
class InternedTexts {
 public:
  struct Item {
    std::string text;
    uint32_t number = 0;  // from 0
    Item* next = nullptr;
  };

  // Finds or adds a text; null if there are `most` others.
  const Item* intern(std::string_view text, uint32_t most = UINT32_MAX) {
    uint32_t count = 0;
    for (const Item& i : items_) {
      if (i.text == text) return &i;
      ++count;
    }
    if (count >= most) return nullptr;
    return &items_.find_or_append(std::unique_ptr<Item>(new Item{std::string(text)}),
                                  [](const Item& i, Item& made) {
                                    made.number = i.number + 1;
                                    return i.text == made.text;
                                  });
  }

  // Empty if there is none.
  std::string_view text(uint32_t number) const noexcept {
    for (const Item& i : items_)
      if (i.number == number) return i.text;
    return {};
  }

 private:
  AppendList<Item> items_;
};

}  // namespace yard::base
