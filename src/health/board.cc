// SPDX-License-Identifier: Apache-2.0
// Board: the lock around its state, and how a forked child replaces both.
#include "health/board.h"

#include "health/board_state.h"

namespace yard::health {
namespace {

BreakerSettings usable(const BreakerSettings& s) {
  return validate(s).ok() ? s : BreakerSettings();
}

// The state, locked for as long as this exists.
class Locked {
 public:
  explicit Locked(const std::atomic<BoardState*>& state)
      : state_(state.load(std::memory_order_acquire)), lock_(state_->lock) {}
  BoardState* operator->() const noexcept { return state_; }

 private:
  BoardState* state_;
  std::lock_guard<std::mutex> lock_;
};

}  // namespace

Board::Board(const BreakerSettings& settings)
    : state_(new BoardState), settings_{usable(settings), {}} {}

// In a forked child the parent's state is not deleted: it may have been changing at the fork.
Board::~Board() { delete state_.load(std::memory_order_acquire); }

void Board::abandon() noexcept {
  auto* fresh = new BoardState;
  fresh->abandoned = state_.load(std::memory_order_acquire);
  state_.store(fresh, std::memory_order_release);
}

const BreakerSettings& Board::in_force() const noexcept {
  return settings_[in_force_.load(std::memory_order_acquire)];
}

BoardUpdate Board::fault(const Key& key, ErrorClass error_class, std::string_view text, Time now) {
  return Locked(state_)->fault(in_force(), key, error_class, text, now);
}

BoardUpdate Board::success(const Key& key, Time now) {
  return Locked(state_)->success(in_force(), key, now);
}

std::shared_ptr<const HealthSnapshot> Board::snapshot() const { return Locked(state_)->snapshot(); }

std::optional<Time> Board::next_change() const { return Locked(state_)->next_change(); }

bool Board::advance(Time now) { return Locked(state_)->advance(in_force(), now); }

bool Board::open(const Key& key, Extent extent, std::string_view why, Time now,
                 std::optional<std::chrono::nanoseconds> duration) {
  return Locked(state_)->open(in_force(), key, extent, why, now, duration);
}

bool Board::close(const Key& key, Extent extent, Time now) {
  return Locked(state_)->close(key, extent, now);
}

bool Board::reset(const Key& key, Extent extent, Time now) {
  return Locked(state_)->reset(key, extent, now);
}

bool Board::device_lost(Device device, std::string_view why, Time now) {
  return Locked(state_)->device_lost(device, why, now);
}

bool Board::device_back(Device device, Time now) {
  return Locked(state_)->device_back(device, now);
}

bool Board::set_settings(const BreakerSettings& settings, Time now) {
  const Locked s(state_);
  const uint32_t other = 1 - in_force_.load(std::memory_order_relaxed);
  settings_[other] = usable(settings);
  in_force_.store(other, std::memory_order_release);
  return !settings_[other].enabled && s->close_automatic(now);
}

BreakerSettings Board::settings() const {
  const Locked s(state_);
  return in_force();
}

void Board::record_success(std::string_view backend, uint64_t count) {
  const Locked s(state_);
  if (HealthCounts* to = s->external(backend)) to->successes += count;
}

void Board::record_failure(std::string_view backend, ErrorClass error_class, std::string_view text,
                           Time now) {
  if (error_class == ErrorClass::kOk) return record_success(backend);
  const Locked s(state_);
  if (HealthCounts* to = s->external(backend)) count(*to, error_class, text, now);
}

HealthReport Board::report(std::span<const Successes> successes, Time now) const {
  return Locked(state_)->report(in_force(), successes, now);
}

BreakerTotals Board::totals() const { return Locked(state_)->totals(); }

bool Board::has_events() const noexcept {
  return state_.load(std::memory_order_acquire)->has_events.load(std::memory_order_acquire);
}

std::vector<BreakerEvent> Board::take_events() { return Locked(state_)->take_events(); }

}  // namespace yard::health
