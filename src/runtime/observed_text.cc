// SPDX-License-Identifier: Apache-2.0
#include "runtime/observed_text.h"

#include <memory>

namespace yard::runtime {
namespace {

const std::string kTooMany = "(one of too many different calls)";

std::atomic<uint64_t> g_last_id{0};

// What a thread looked up lately.
struct RecentText {
  uint64_t owner = 0;
  std::string key;
  const std::string* text = nullptr;
};
constexpr size_t kRecent = 64;

// On the heap: thread-local storage of a library that programs open must be small.
struct ThreadTexts {
  op::CallKey key;
  std::array<RecentText, kRecent> recent;
};
ThreadTexts& thread_texts() {
  thread_local std::unique_ptr<ThreadTexts> texts;
  if (texts == nullptr) texts = std::make_unique<ThreadTexts>();
  return *texts;
}

}  // namespace

op::CallKey& scratch_key() { return thread_texts().key; }

ObservedTexts::ObservedTexts() : id_(++g_last_id) {}

const std::string& ObservedTexts::find(std::string_view key,
                                       const std::function<std::string()>& make) {
  const size_t hash = op::CallKeyHash()(key);
  RecentText& mine = thread_texts().recent[hash % kRecent];
  if (mine.owner == id_ && mine.key == key) return *mine.text;
  Shard& s = shards_[hash / kRecent % shards_.size()];
  std::unique_lock lock(s.lock);
  auto it = s.texts.find(key);
  if (it == s.texts.end()) {
    if (s.texts.size() >= kMost / shards_.size()) return kTooMany;
    lock.unlock();
    std::string text = make();
    lock.lock();
    it = s.texts.try_emplace(std::string(key), std::move(text)).first;
  }
  mine.owner = 0;  // in case that there is no memory for the key
  mine.key = key;
  mine.owner = id_, mine.text = &it->second;
  return it->second;
}

}  // namespace yard::runtime
