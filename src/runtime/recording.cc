// SPDX-License-Identifier: Apache-2.0
// What distinguishes calls while they are counted, the table of counts, its thread and its file.
#include "runtime/recording.h"

#include <fmt/format.h>
#include <unistd.h>
#include <yard/runtime.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/results.h"
#include "dispatch/core.h"
#include "dispatch/policy_changes.h"
#include "op/call.h"
#include "runtime/observed_text.h"

namespace yard::runtime {
namespace {

constexpr auto kBetweenWrites = std::chrono::seconds(2);

constexpr std::string_view kReaders = ": yard bake and yard config simulate read this";

// By its first line.
constexpr base::OwnFile kRecordingFile{
    "a recording", [](std::string_view start) noexcept {
      return start.starts_with("# ") && start.substr(0, start.find('\n')).ends_with(kReaders);
    }};

std::string file_of(std::string path) {
  const std::string pid = std::to_string(::getpid());
  for (size_t at = path.find("%p"); at != std::string::npos; at = path.find("%p", at + pid.size()))
    path.replace(at, 2, pid);
  return path;
}

}  // namespace

struct Recording::Table {
  struct Counted {
    std::string text;
    uint64_t count = 0;
  };

  // Threads that make different calls seldom share a lock.
  struct alignas(64) Shard {
    base::Mutex lock{base::Rank::kOutputShard};
    std::unordered_map<std::string, Counted, op::CallKeyHash, std::equal_to<>> calls;
  };

  explicit Table(std::string p) : path(std::move(p)) {}

  Shard& shard(std::string_view key) { return shards[op::CallKeyHash()(key) % shards.size()]; }
  void changed_now() {
    changed.store(true, std::memory_order_relaxed);
    if (!started.exchange(true, std::memory_order_relaxed)) start();
  }
  void start();
  void write_or_log();
  Status write();
  std::string text();

  const std::string path;
  std::array<Shard, 64> shards;
  std::atomic<size_t> distinct{0};
  std::atomic<uint64_t> dropped{0};
  std::atomic<bool> changed{false}, started{false};

  base::Mutex file{base::Rank::kOutput};  // one writer at a time
  Status problem;                         // under file

  base::TaskThread thread{"yard-record", {.at_end = [this] { write_or_log(); }}};  // last
};

// With the first call, so that a program that makes none, and a child that execs, has no thread.
void Recording::Table::start() {
  const Status begun = thread.post_at(std::chrono::steady_clock::now() + kBetweenWrites, [this] {
    write_or_log();
    start();
  });
  if (!begun.ok())
    base::log(LogLevel::kError, "telemetry",
              fmt::format("{} is written only at the end: {}", path, begun.message()));
}

void Recording::Table::write_or_log() {
  const Status s = write();
  if (!s.ok()) base::log(LogLevel::kError, "telemetry", s.to_string());
}

std::string Recording::Table::text() {
  // Calls that differ only in what a text does not show are one.
  std::map<std::string, uint64_t> by_text;
  for (Shard& s : shards) {
    const std::lock_guard lock(s.lock);
    for (const auto& [key, c] : s.calls) by_text[c.text] += c.count;
  }
  if (by_text.empty()) return "";
  std::vector<std::pair<std::string, uint64_t>> calls(by_text.begin(), by_text.end());
  std::stable_sort(calls.begin(), calls.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  uint64_t sum = 0;
  for (const auto& c : calls) sum += c.second;
  std::string to = fmt::format("# {} calls, {} distinct{}\n", sum, calls.size(), kReaders);
  if (const uint64_t n = dropped.load(std::memory_order_relaxed); n > 0)
    to +=
        fmt::format("# {} more were dropped: only {} distinct calls are kept\n", n, kMostRecorded);
  for (const auto& [call, count] : calls) to += fmt::format("{}\t{}\n", count, call);
  return to;
}

Status Recording::Table::write() {
  const std::lock_guard lock(file);
  if (!changed.exchange(false, std::memory_order_relaxed)) return problem;
  try {
    const std::string content = text();
    if (content.empty()) return {};
    problem = base::write_own_file(path, content, kRecordingFile);
  } catch (const std::bad_alloc&) {
    problem = Status::out_of_memory();
  }
  if (!problem.ok()) changed.store(true, std::memory_order_relaxed);  // tried again
  return problem;
}

namespace {

// Recordings of this process by their files.
struct Open {
  base::Mutex lock{base::Rank::kOutputShard};
  std::map<std::string, std::weak_ptr<Recording>> by_path;

  std::shared_ptr<Recording> find(const std::string& path) {
    const std::lock_guard l(lock);
    const auto it = by_path.find(path);
    return it != by_path.end() ? it->second.lock() : nullptr;
  }
};
Open& open_recordings() {
  static constinit std::once_flag once;
  static constinit Open* made = nullptr;  // never destroyed: runtimes may end after statics
  std::call_once(once, [] { made = new Open; });
  return *made;
}

// Whether this process was the first to record: its children must not write to its files.
bool records_first() {
  static constinit std::atomic<uint64_t> first{0};
  uint64_t of = 0;
  const uint64_t here = base::forks() + 1;
  return first.compare_exchange_strong(of, here) || of == here;
}

std::string own_file(const std::string& path) {
  const std::string file = file_of(path);
  if (records_first() || path.find("%p") != std::string::npos) return file;
  return fmt::format("{}.{}", file, ::getpid());
}

}  // namespace

Result<std::shared_ptr<Recording>> Recording::open(const std::string& path) {
  if (path.empty())
    return Status(Code::kInvalidArgument, "there is no file to record to; expected a path");
  Open& all = open_recordings();
  if (auto found = all.find(path)) return found;
  YARD_RETURN_IF_ERROR(base::can_write_own_file(own_file(path), kRecordingFile));
  const std::shared_ptr<Recording> made(
      new Recording(path), [](Recording* r) { base::end_on_own_thread([r] { delete r; }); });
  const std::lock_guard lock(all.lock);
  std::weak_ptr<Recording>& place = all.by_path[path];
  if (auto another = place.lock()) return another;
  place = made;
  return made;
}

Recording::Recording(std::string path)
    : path_(std::move(path)), state_(new Table(own_file(path_))) {}

Recording::~Recording() {
  Table& b = table();
  b.thread.stop();
  b.write_or_log();
  delete &b;
}

Recording::Table& Recording::table() const noexcept {
  return *state_.load(std::memory_order_acquire);
}

void Recording::restart_in_child() {
  state_.store(new Table(own_file(path_)), std::memory_order_release);
}

bool Recording::count(std::string_view key) {
  Table& b = table();
  Table::Shard& s = b.shard(key);
  {
    const std::lock_guard lock(s.lock);
    const auto it = s.calls.find(key);
    if (it != s.calls.end()) {
      ++it->second.count;
      b.changed.store(true, std::memory_order_relaxed);
      return true;
    }
  }
  if (b.distinct.load(std::memory_order_relaxed) < kMostRecorded) return false;
  drop();
  return true;
}

void Recording::add(std::string_view key, std::string text) {
  Table& b = table();
  if (b.distinct.fetch_add(1, std::memory_order_relaxed) >= kMostRecorded) {
    b.distinct.fetch_sub(1, std::memory_order_relaxed);
    return drop();
  }
  Table::Shard& s = b.shard(key);
  {
    const std::lock_guard lock(s.lock);
    const auto [it, fresh] = s.calls.try_emplace(std::string(key));
    if (fresh)
      it->second.text = std::move(text);
    else
      b.distinct.fetch_sub(1, std::memory_order_relaxed);  // another thread was quicker
    ++it->second.count;
  }
  b.changed_now();
}

void Recording::drop() noexcept {
  Table& b = table();
  b.dropped.fetch_add(1, std::memory_order_relaxed);
  b.changed.store(true, std::memory_order_relaxed);
}

Status Recording::write() { return table().write(); }

RecordingStats Recording::stats() {
  Table& b = table();
  RecordingStats to;
  to.path = b.path;
  to.dropped = b.dropped.load(std::memory_order_relaxed);
  for (Table::Shard& s : b.shards) {
    const std::lock_guard lock(s.lock);
    to.distinct += s.calls.size();
    for (const auto& [key, c] : s.calls) to.calls += c.count;
  }
  const std::lock_guard lock(b.file);
  if (!b.problem.ok()) to.problem = std::string(b.problem.message());
  return to;
}

namespace {

std::atomic<uint64_t> g_last_id{0};

}  // namespace

Recorder::Recorder(std::shared_ptr<Recording> recording)
    : recording_(std::move(recording)),
      id_(g_last_id.fetch_add(1, std::memory_order_relaxed) + 1) {}

void Recorder::seen(const registry::ObservedCall& call) noexcept {
  try {
    op::CallKey& key = scratch_key();
    key.set(call.program, call.args, call.flags);
    key.add(id_), key.add(call.index), key.add(call.labels);
    if (recording_->count(key.bytes())) return;
    const op::Call captured = op::Call::capture(call.program, call.args, call.flags, call.labels);
    recording_->add(key.bytes(), op::to_string(captured.to_spec(call.program)));
  } catch (...) {  // no memory: the call goes on
    recording_->drop();
  }
}

}  // namespace yard::runtime

namespace yard {
namespace {

// The recording has ended. Without memory the file is written when the recording is freed.
Status write_last(runtime::Recording& recording) {
  Status s = recording.write();
  return s.code() == Code::kOutOfMemory ? Status() : std::move(s);
}

}  // namespace

Status Recording::to(const std::string& path) {
  return base::or_out_of_memory([&]() -> Status {
    YARD_ASSIGN_OR_RETURN(auto recording, runtime::Recording::open(path));
    const auto before = dispatch::find_observer<runtime::Recorder>(runtime_->core());
    if (before != nullptr && &before->recording() == recording.get()) return {};
    YARD_RETURN_IF_ERROR(runtime_->core().published.replace_observer(
        before, std::make_shared<runtime::Recorder>(std::move(recording))));
    return before != nullptr ? write_last(before->recording()) : Status();
  });
}

Status Recording::stop() {
  return base::or_out_of_memory([&]() -> Status {
    const auto recorder = dispatch::find_observer<runtime::Recorder>(runtime_->core());
    if (recorder == nullptr) return {};
    YARD_RETURN_IF_ERROR(runtime_->core().published.replace_observer(recorder, nullptr));
    return write_last(recorder->recording());
  });
}

RecordingStats Recording::stats() const {
  const auto recorder = dispatch::find_observer<runtime::Recorder>(runtime_->core());
  return recorder != nullptr ? recorder->recording().stats() : RecordingStats();
}

}  // namespace yard
