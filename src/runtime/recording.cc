// SPDX-License-Identifier: Apache-2.0
#include "runtime/recording.h"

#include <fmt/format.h>
#include <unistd.h>
#include <yard/runtime.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/results.h"
#include "dispatch/policy_changes.h"

namespace yard::runtime {
namespace {

constexpr auto kBetweenWrites = std::chrono::seconds(2);

constexpr std::string_view kReaders = ": yard bake and yard config simulate read this";

constexpr base::OwnFile kRecordingFile{
    "a recording", [](std::string_view start) noexcept {
      return start.starts_with("# ") && start.substr(0, start.find('\n')).ends_with(kReaders);
    }};

struct Open {
  base::Mutex lock{base::Rank::kOutputShard};
  std::map<std::string, std::weak_ptr<Recording>> by_path;
};

// Children of the first process that records must not write to its files.
bool records_first() {
  static constinit std::atomic<uint64_t> first{0};
  uint64_t of = 0;
  const uint64_t here = base::forks() + 1;
  return first.compare_exchange_strong(of, here) || of == here;
}

std::string own_file(std::string path) {
  const std::string pid = std::to_string(::getpid());
  const bool first = records_first();
  size_t at = path.find("%p");
  if (at == path.npos) return first ? path : path + "." + pid;
  for (; at != path.npos; at = path.find("%p", at + pid.size())) path.replace(at, 2, pid);
  return path;
}

}  // namespace

Result<std::shared_ptr<Recording>> Recording::open(const std::string& path) {
  if (path.empty())
    return Status(Code::kInvalidArgument, "the path is empty; expected a path to record to");
  Open& all = base::process_wide<Open>();
  const auto find_or_add = [&](const std::shared_ptr<Recording>& made) {
    const std::lock_guard lock(all.lock);
    std::weak_ptr<Recording>& place = all.by_path[path];
    if (auto another = place.lock()) return another;
    place = made;
    return made;
  };
  if (auto found = find_or_add(nullptr)) return found;
  YARD_RETURN_IF_ERROR(base::can_write_own_file(own_file(path), kRecordingFile));
  return find_or_add(std::shared_ptr<Recording>(
      new Recording(path), [](Recording* r) { base::end_on_own_thread([r] { delete r; }); }));
}

Recording::Recording(std::string path) : path_(std::move(path)), file_(own_file(path_)) {}

Recording::~Recording() {
  thread_.stop();
  write_or_log();
}

void Recording::restart_in_child() {
  file_.clear();
  texts.clear();
  changed_ = false, started_ = false;
  std::construct_at(&problem_);  // another thread may have been changing it
}

// Called at the first call. A program without calls, or a child that execs, gets no thread.
void Recording::start() {
  const auto next = [] { return std::chrono::steady_clock::now() + kBetweenWrites; };
  const Status begun = thread_.post_at(next(), [this, next] {
    thread_.repeat_at(next());
    write_or_log();
  });
  if (!begun.ok())
    base::log(LogLevel::kError, "telemetry",
              fmt::format("{} is written only at the end: {}", path_, begun.message()));
}

void Recording::write_or_log() {
  if (const Status s = write(); !s.ok()) base::log(LogLevel::kError, "telemetry", s.message());
}

std::string Recording::text() {
  // Calls that differ only in facts that the text does not show are counted as one.
  std::map<std::string, uint64_t> by_text;
  uint64_t sum = 0;
  texts.for_each([&](const ObservedTexts::Text& t) {
    by_text[t.text] += t.count;
    sum += t.count;
  });
  if (by_text.empty()) return "";
  std::vector<std::pair<std::string, uint64_t>> calls(by_text.begin(), by_text.end());
  std::ranges::stable_sort(calls, std::greater<>(), &decltype(calls)::value_type::second);
  std::string to = fmt::format("# {} calls, {} distinct{}\n", sum, calls.size(), kReaders);
  if (const uint64_t n = texts.rest.count; n > 0)
    to += fmt::format("# {} more were dropped: only {} distinct calls are kept\n", n,
                      ObservedTexts::kMost);
  for (const auto& [call, count] : calls) to += fmt::format("{}\t{}\n", count, call);
  return to;
}

Status Recording::write() {
  const std::lock_guard lock(writing_);
  if (!changed_.exchange(false, std::memory_order_relaxed)) return problem_;
  problem_ = base::or_out_of_memory([&] {
    if (file_.empty()) file_ = own_file(path_);
    const std::string content = text();
    return content.empty() ? Status() : base::write_own_file(file_, content, kRecordingFile);
  });
  if (!problem_.ok()) changed_.store(true, std::memory_order_relaxed);  // try again
  return problem_;
}

void Recording::count(ObservedTexts::Text& text) noexcept {
  text.count.fetch_add(1, std::memory_order_relaxed);
  changed_.store(true, std::memory_order_relaxed);
  if (!started_.load(std::memory_order_relaxed) && !started_.exchange(true))
    base::or_out_of_memory([this] { start(); }).ignore();
}

yard::Recording::Stats Recording::stats() {
  yard::Recording::Stats to;
  to.dropped = texts.rest.count;
  to.distinct = texts.size();
  texts.for_each([&](const ObservedTexts::Text& t) { to.calls += t.count; });
  const std::lock_guard lock(writing_);
  if (file_.empty()) file_ = own_file(path_);
  to.path = file_;
  if (!problem_.ok()) to.problem = std::string(problem_.message());
  return to;
}

Recorder::Recorder(std::shared_ptr<Recording> recording)
    : recording_(std::move(recording)), id_(std::to_string(unique_number())) {}

void Recorder::seen(const registry::ObservedCall& call) noexcept {
  const Status counted = base::or_out_of_memory([&] {
    recording_->count(recording_->texts.find(
        call, id_, [](const op::CallSpec& spec) { return op::to_string(spec); }));
  });
  if (!counted.ok()) recording_->count(recording_->texts.rest);
}

Status record(detail::Core& core, const std::string* path) {
  const auto before = dispatch::find_observer<Recorder>(core);
  std::shared_ptr<Recorder> next;
  if (path != nullptr) {
    YARD_ASSIGN_OR_RETURN(auto recording, Recording::open(*path));
    if (before != nullptr && &before->recording() == recording.get()) return {};
    next = std::make_shared<Recorder>(std::move(recording));
  }
  if (before == next) return {};
  YARD_RETURN_IF_ERROR(core.published.replace_observer(before, next));
  if (before == nullptr) return {};
  // If memory runs out, the file is written when the recording is freed.
  const Status s = before->recording().write();
  return s.code() == Code::kOutOfMemory ? Status() : s;
}

}  // namespace yard::runtime

namespace yard {

Status Recording::to(const std::string& path) {
  return base::or_out_of_memory([&] { return runtime::record(runtime_->core(), &path); });
}

Status Recording::stop() {
  return base::or_out_of_memory([&] { return runtime::record(runtime_->core(), nullptr); });
}

yard::Recording::Stats Recording::stats() const {
  const auto recorder = dispatch::find_observer<runtime::Recorder>(runtime_->core());
  return recorder != nullptr ? recorder->recording().stats() : yard::Recording::Stats();
}

}  // namespace yard
