// SPDX-License-Identifier: Apache-2.0
#include "runtime/observed_text.h"

#include "base/thread_record.h"

namespace yard::runtime {
namespace {

struct RecentText {
  uint64_t owner = 0;
  std::string key;
  ObservedTexts::Text* text = nullptr;
};
constexpr size_t kRecent = 64;

constexpr int kThreadLocal = 4;  // index in ThreadRecord::locals

struct ThreadTexts {
  op::CallKey key;  // keeps its memory
  std::array<RecentText, kRecent> recent;
};
ThreadTexts& thread_texts() {
  void*& texts = base::this_thread().locals[kThreadLocal];
  if (texts == nullptr) {
    texts = new ThreadTexts;
    base::set_thread_exit_hook(kThreadLocal, [](void* t) { delete static_cast<ThreadTexts*>(t); });
  }
  return *static_cast<ThreadTexts*>(texts);
}

}  // namespace

uint64_t unique_number() noexcept {
  static constinit std::atomic<uint64_t> last{0};
  return ++last;
}

ObservedTexts::Text& ObservedTexts::find(
    const registry::ObservedCall& call, std::string_view more,
    const std::function<std::string(const op::CallSpec&)>& make) {
  auto& [bytes, recent] = thread_texts();
  bytes.set(call.program, call.args, call.flags);
  bytes.add(call.index), bytes.add(call.labels), bytes.add(more);
  const std::string_view key = bytes.bytes();
  const size_t hash = op::CallKeyHash()(key);
  RecentText& mine = recent[hash % kRecent];
  if (mine.owner == id_ && mine.key == key) return *mine.text;
  Shard& s = shards_[hash / kRecent % shards_.size()];
  std::unique_lock lock(s.lock);
  auto it = s.texts.find(key);
  if (it == s.texts.end()) {
    if (size() >= kMost) return rest;
    lock.unlock();
    const op::Call captured = op::Call::capture(call.program, call.args, call.flags, call.labels);
    std::string text = make(captured.to_spec(call.program));
    lock.lock();
    const auto [place, is_new] = s.texts.try_emplace(std::string(key), std::move(text));
    if (is_new) size_.fetch_add(1, std::memory_order_relaxed);
    it = place;
  }
  mine.owner = 0;  // the copy of the key may throw
  mine.key = key;
  mine.owner = id_, mine.text = &it->second;
  return it->second;
}

void ObservedTexts::clear() {
  for (Shard& s : shards_) s.texts.clear();
  size_ = 0;
  rest.count = 0;
  id_ = unique_number();  // threads forget their recent texts
}

}  // namespace yard::runtime
