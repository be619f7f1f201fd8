// SPDX-License-Identifier: Apache-2.0
// Interned texts with numbers, never freed. Takes no lock; any thread, also in a forked child.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace yard::base {

class InternedTexts {
 public:
  struct Item {
    std::string text;
    uint32_t number = 0;  // from 0
    Item* next = nullptr;
  };

  // Finds or adds a text; null beyond `most`. Linear search: for rare use.
  const Item* intern(std::string_view text, uint32_t most = UINT32_MAX) noexcept {
    Item* made = nullptr;
    const Item* seen = nullptr;
    for (;;) {
      Item* head = items_.load(std::memory_order_acquire);
      for (Item* i = head; i != seen; i = i->next)
        if (i->text == text) {
          delete made;
          return i;
        }
      seen = head;
      const uint32_t number = head != nullptr ? head->number + 1 : 0;
      if (number >= most) {
        delete made;
        return nullptr;
      }
      if (made == nullptr) made = new Item{std::string(text), 0, nullptr};
      made->number = number, made->next = head;
      if (items_.compare_exchange_strong(head, made, std::memory_order_acq_rel)) return made;
    }
  }

  // Empty if there is none.
  std::string_view text(uint32_t number) const noexcept {
    for (const Item* i = items_.load(std::memory_order_acquire); i != nullptr; i = i->next)
      if (i->number == number) return i->text;
    return {};
  }

 private:
  std::atomic<Item*> items_{nullptr};
};

}  // namespace yard::base
