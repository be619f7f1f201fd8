// SPDX-License-Identifier: Apache-2.0
// Host functions. Kernels call them through C, so no exception may leave them.
#include "runtime/host.h"

#include <fmt/format.h>
#include <yard/tensor.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/cpu_features.h"
#include "base/log.h"
#include "base/results.h"
#include "base/text.h"
#include "dispatch/call.h"
#include "exec/executor.h"

namespace yard::runtime {
namespace {

void copy_text(std::string_view text, char* error, size_t size) noexcept {
  if (error == nullptr || size == 0) return;
  const size_t n = std::min(text.size(), size - 1);
  std::memcpy(error, text.data(), n);
  error[n] = '\0';
}

}  // namespace

int32_t report(const Status& status, char* error, size_t size) {
  if (status.ok()) return YARD_OK;
  if (error != nullptr) copy_text(status.to_string(), error, size);
  return static_cast<int32_t>(status.error_class());
}

int32_t report_exception(char* error, size_t size) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    copy_text("out_of_memory: out of memory", error, size);
    return YARD_TRANSIENT;
  } catch (...) {
    copy_text("internal: an exception", error, size);  // stays if memory runs out
    base::or_out_of_memory([&] {
      copy_text("internal: " + base::current_exception_text(), error, size);
    }).ignore();
  }
  return YARD_FATAL;
}

namespace {

constexpr int32_t kCpu = 1;

void* allocate(void*, yard_device_t device, uint64_t bytes) {
  if (device.type != kCpu || bytes > (uint64_t{1} << 46)) return nullptr;
  return std::aligned_alloc(64, (bytes + 63) / 64 * 64 + (bytes == 0 ? 64 : 0));
}

void log(void*, int32_t level, const char* message) {
  if (message == nullptr) return;
  const int known = std::clamp<int>(level, YARD_LOG_DEBUG, YARD_LOG_ERROR);
  base::log(static_cast<LogLevel>(known), "backend", base::printable(message));
}

int32_t fail(void*, yard_call_t* call, int32_t code, const char* format, ...) {
  if (call != nullptr && call->error != nullptr && call->error_size > 0 && format != nullptr) {
    va_list args;
    va_start(args, format);
    std::vsnprintf(call->error, call->error_size, format, args);
    va_end(args);
  }
  return code;
}

int32_t loop(void*, int64_t count, int64_t grain, LoopBody body, void* context) {
  return body != nullptr ? parallel_for(count, grain, body, context) : int32_t{YARD_CALLER};
}

int32_t has_feature(void* self, yard_device_t device, const char* name) {
  if (name == nullptr) return -1;
  if (device.type == kCpu || device.type == 0) return base::has_cpu_feature(name);
  return static_cast<Host*>(self)->has_stated(device, name) ? 1 : 0;
}

int32_t call_op(void* self, yard_call_t* call, const char* op, const yard_value_t* args,
                uint32_t count) {
  char* const error = call != nullptr ? call->error : nullptr;
  return guarded(error, call != nullptr ? call->error_size : 0, [&] {
    const auto missing = [](const char* what) {
      return base::invalid("call_op: expected {}, got NULL", what);
    };
    if (op == nullptr) return missing("the name of an op");
    if (args == nullptr && count > 0) return missing("an array of arguments");
    Status why;
    detail::Core& core = *static_cast<Host*>(self)->core;
    detail::Site* const site = core.sites.attach(op, dispatch::kPackedLetters, &why);
    return site != nullptr ? Status::adopt(dispatch::call(site, {args, count})) : why;
  });
}

}  // namespace

Host::Host() : table{} {
  table.size = sizeof table;
  table.abi = YARD_ABI_VERSION;
  table.self = this;
  table.allocate = allocate;
  table.release = [](void*, yard_device_t device, void* memory) {
    if (device.type == kCpu) std::free(memory);
  };
  table.scratch = [](void*, yard_call_t* call, uint64_t bytes) {
    return call != nullptr ? exec::allocate_scratch(*call, bytes) : nullptr;
  };
  table.log = log;
  table.fail = fail;
  table.parallel_for = loop;
  table.concurrency = [](void*) { return concurrency(); };
  table.stream = [](void*, yard_device_t) -> void* { return nullptr; };
  table.has_feature = has_feature;
  table.call_op = call_op;
}

const registry::Feature* Host::find(Device device,
                                    const registry::FeatureName& name) const noexcept {
  for (const registry::Feature& f : stated_)
    if (f.device == device && registry::FeatureName::read(f.name).same_name(name)) return &f;
  return nullptr;
}

bool Host::has_stated(yard_device_t device, std::string_view name) const noexcept {
  const auto wanted = registry::FeatureName::read(name);
  const auto fits = [&](const registry::Feature* f) {
    return f != nullptr && registry::FeatureName::read(f->name).satisfies(wanted);
  };
  const std::lock_guard lock(lock_);
  if (device.index >= 0) {
    const auto* const own = find({device.type, device.index}, wanted);
    return fits(own != nullptr ? own : find({device.type, registry::Feature::kEvery}, wanted));
  }
  return std::ranges::any_of(stated_, [&](const registry::Feature& f) {
    return f.device.type == device.type && fits(find(f.device, wanted));
  });
}

Status Host::state(const std::vector<std::string>& features) {
  std::vector<registry::Feature> read;
  for (const std::string& text : features) {
    auto feature = registry::parse_feature(text);
    const bool good = feature.ok() && text.find(':') != text.npos &&
                      !registry::FeatureName::read(feature->name).is_range;
    if (!good || feature->of_processor())
      return base::invalid("invalid device feature {}: {}", base::excerpt(text),
                           good ? "CPU features are detected, not stated"
                                : "expected one like cuda:sm_90 or cuda:1:sm_90");
    read.push_back(*std::move(feature));
  }
  const std::lock_guard lock(lock_);
  // The latest statement comes first, so that find() returns it.
  stated_.insert(stated_.begin(), read.rbegin(), read.rend());
  return {};
}

}  // namespace yard::runtime
