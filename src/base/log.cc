// SPDX-License-Identifier: Apache-2.0
// Messages: counted in a bounded table, handed to the sink once.
#include "base/log.h"

#include <pthread.h>

#include <cerrno>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/per_process.h"

namespace yard::base {
namespace {

// A message's identity; the text is borrowed.
struct Key {
  LogLevel level;
  uint32_t slot;
  std::string_view text;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  size_t operator()(const Key& k) const noexcept {
    return std::hash<std::string_view>()(k.text) * 64 + k.slot * 8 + static_cast<size_t>(k.level);
  }
};

struct Entry {
  LogLevel level;
  uint32_t slot;
  std::string text;
  uint64_t count = 0;
  bool written = false;
};

// The messages of one process. A forked child restarts: its parent's lock may be held for ever.
struct Table {
  std::mutex mutex;
  std::list<Entry> entries;  // the longest unheard first
  std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> index;

  Entry& heard(LogLevel level, uint32_t slot, std::string&& text) {
    if (const auto it = index.find({level, slot, text}); it != index.end()) {
      entries.splice(entries.end(), entries, it->second);
      return *it->second;
    }
    if (entries.size() >= kMostMessages) {
      const Entry& oldest = entries.front();
      index.erase({oldest.level, oldest.slot, oldest.text});
      entries.pop_front();
    }
    entries.push_back({level, slot, std::move(text)});
    Entry& e = entries.back();
    try {
      index.emplace(Key{level, slot, e.text}, std::prev(entries.end()));
    } catch (...) {
      entries.pop_back();  // what the index does not know would never be found again
      throw;
    }
    return e;
  }
};
constinit PerProcess<Table> g_table;

// The program's sink, null for the default. Changed and read under the table's lock; the old holder is
// freed after the new one is in place, so a forked child finds a whole one at any moment.
struct Holder {
  std::shared_ptr<const LogSink> sink;
};
constinit std::atomic<Holder*> g_sink{nullptr};

// Where in here the thread is: it may come back through a sink, or through an allocator that logs.
enum class Where : char { kOutside, kTable, kSink };
thread_local constinit Where t_where = Where::kOutside;

class Inside {
 public:
  explicit Inside(Where where) noexcept : before_(t_where) { t_where = where; }
  ~Inside() { t_where = before_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Where before_;
};

// Logging leaves no trace in the thread: errno stays, and a cancelled thread ends somewhere else than in
// the middle of a message.
class Unnoticed {
 public:
  Unnoticed() noexcept : errno_(errno) { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state_); }
  ~Unnoticed() {
    pthread_setcancelstate(state_, nullptr);
    errno = errno_;
  }
  Unnoticed(const Unnoticed&) = delete;
  Unnoticed& operator=(const Unnoticed&) = delete;

 private:
  int errno_, state_ = 0;
};

void cut(std::string& text) {
  while (text.ends_with('\n')) text.pop_back();
  if (text.size() <= kLongestText) return;
  size_t keep = kLongestText;
  while (keep > 0 && (text[keep] & 0xc0) == 0x80) --keep;  // not inside a character
  const std::string more = " ... " + std::to_string(text.size() - keep) + " bytes more";
  text.resize(keep);
  text += more;
}

void count_and_write(LogLevel level, Logger logger, std::string text, bool again) {
  cut(text);
  std::string own = text;  // the table may forget its copy while the sink reads
  LogMessage message{level, logger.name(), own, 0};
  std::shared_ptr<const LogSink> sink;
  {
    const bool from_sink = t_where == Where::kSink;
    const Inside inside(Where::kTable);
    Table& t = g_table.get();
    std::lock_guard lock(t.mutex);
    Entry& e = t.heard(level, logger.slot(), std::move(text));
    message.repeated = again ? 0 : e.count;
    ++e.count;
    if ((e.written && !again) || from_sink) return;
    e.written = true;
    if (const Holder* h = g_sink.load(std::memory_order_acquire)) sink = h->sink;
  }
  const Inside inside(Where::kSink);
  if (sink != nullptr)
    (*sink)(message);
  else
    write_to_stderr(message);
}

void try_to_log(LogLevel level, Logger logger, std::string text, bool again) noexcept {
  if (!log_enabled(logger, level) || t_where == Where::kTable) return;
  const Unnoticed unnoticed;
  try {
    count_and_write(level, logger, std::move(text), again);
  } catch (...) {
    // What a sink throws has nowhere to go, and a message is not worth the program.
  }
}

}  // namespace

void log(LogLevel level, Logger logger, std::string text) noexcept {
  try_to_log(level, logger, std::move(text), false);
}
void log_event(LogLevel level, Logger logger, std::string text) noexcept {
  try_to_log(level, logger, std::move(text), true);
}

}  // namespace yard::base

namespace yard {

void set_log_sink(LogSink sink) {
  auto* next = sink ? new base::Holder{std::make_shared<const LogSink>(std::move(sink))} : nullptr;
  base::Holder* old;
  {
    const base::Inside inside(base::Where::kTable);
    std::lock_guard lock(base::g_table.get().mutex);
    old = base::g_sink.exchange(next, std::memory_order_acq_rel);
  }
  delete old;  // outside the lock: what the sink holds may log when it goes
}

std::vector<LogCount> log_counts() {
  const base::Inside inside(base::Where::kTable);
  base::Table& t = base::g_table.get();
  std::lock_guard lock(t.mutex);
  std::vector<LogCount> counts;
  counts.reserve(t.entries.size());
  for (const base::Entry& e : t.entries)
    counts.push_back({e.level, std::string(base::kLoggers[e.slot - 1]), e.text, e.count});
  return counts;
}

}  // namespace yard
