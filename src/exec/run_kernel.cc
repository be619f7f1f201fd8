// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <new>

#include "base/float_state.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "exec/executor.h"
#include "exec/mapped_call.h"
#include "exec/states.h"

namespace yard::exec {
namespace {

constexpr int kThreadLocal = 1;  // index in ThreadRecord::locals
constexpr size_t kAlign = 64;
constexpr uint64_t kMostBytes = uint64_t{1} << 46;

void* allocate(uint64_t bytes) noexcept {
  if (bytes > kMostBytes) return nullptr;
  return std::aligned_alloc(kAlign, (bytes + kAlign - 1) / kAlign * kAlign);
}

// The headers of scratch memory form a list that starts at the call's host_data.
struct Scratch {
  Scratch* next;
};

struct Free {
  void operator()(void* memory) const noexcept { std::free(memory); }
};
struct Workspace {
  std::unique_ptr<void, Free> memory;
  uint64_t size = 0;
};
// A thread keeps one workspace for each depth of nested calls, for later calls.
using Workspaces = std::vector<Workspace>;

void* workspace(base::ThreadRecord& thread, uint64_t bytes) {
  if (thread.locals[kThreadLocal] == nullptr) {
    thread.locals[kThreadLocal] = new Workspaces;
    base::set_thread_exit_hook(kThreadLocal, [](void* w) { delete static_cast<Workspaces*>(w); });
  }
  auto& by_depth = *static_cast<Workspaces*>(thread.locals[kThreadLocal]);
  if (by_depth.size() <= thread.depth) by_depth.resize(thread.depth + 1);
  Workspace& w = by_depth[thread.depth];
  if (w.size < bytes || w.memory == nullptr) {
    w.memory.reset();  // first, so that both do not exist at once
    w.memory.reset(allocate(bytes > 0 ? bytes : kAlign));
    w.size = w.memory != nullptr ? bytes : 0;
  }
  return w.memory.get();
}

// One run of one kernel. `mapped` is null for kernels that take the op's parameters.
struct KernelRun {
  base::ThreadRecord& thread;
  const registry::Kernel& kernel;
  CallFrame& frame;
  const Request& r;
  MappedCall* const mapped = nullptr;
  const std::span<const yard_value_t> args =
      mapped != nullptr ? std::span(mapped->args(), mapped->count()) : std::span(r.args, r.count);
  const uint32_t count = static_cast<uint32_t>(args.size());

  int32_t run() {
    const base::FloatState before;
    std::shared_ptr<void> state;  // kept while the kernel runs
    const int32_t code = detail::call_kernel(frame.call, [&]() -> int32_t {
      if (!r.trace)
        if (const int32_t failed = prepare(); failed != YARD_OK) return failed;
      if (kernel.d.create != nullptr) {
        if (r.states == nullptr)
          return frame.fail(YARD_DECLINED, "it has state, which this call does not support");
        const int32_t failed = r.states->find({kernel, *r.program, frame, r.args, args}, state);
        if (failed != YARD_OK) return failed;
        frame.call.state = state.get();
      }
      if (r.trace) return kernel.d.trace(&frame.call, args.data(), count);
      if (mapped == nullptr)
        return kernel.d.run(&frame.call, r.given != nullptr ? r.given : r.args, count);
      if (r.given != nullptr) mapped->pass_on(r.given);
      return kernel.d.run(&frame.call, args.data(), count);
    });
    frame.changed_float_state = before.restore();
    if (mapped == nullptr) return code;
    frame.wrote_buffers_only = mapped->buffers_outputs();
    if (code == YARD_OK && !r.trace)
      timed(&ResultRecord::post_ns, [&] { mapped->copy_out(r.host); });
    return code;
  }

  // Buffers and workspace are one block of memory.
  int32_t prepare() {
    if (mapped != nullptr && !mapped->possible())
      return frame.fail(YARD_DECLINED, "its arguments cannot be transformed as it requires");
    const uint64_t buffers = mapped != nullptr ? mapped->bytes() : 0;
    std::byte* memory = nullptr;
    const int32_t code =
        give_workspace(thread, kernel, frame.call, args.data(), count, buffers, &memory);
    if (code != YARD_OK || mapped == nullptr) return code;
    mapped->place(memory);
    if (memory != nullptr) timed(&ResultRecord::pre_ns, [&] { mapped->copy_in(r.host); });
    return YARD_OK;
  }

  template <class F>
  void timed(int64_t ResultRecord::*to, const F& copy) {
    if (frame.record == nullptr || !mapped->transforms()) return copy();
    const int64_t start = base::steady_ns();
    copy();
    frame.record->*to += base::steady_ns() - start;
  }
};

// A separate function, because a MappedCall takes kilobytes of stack.
[[gnu::noinline]] int32_t run_mapped(base::ThreadRecord& thread, const registry::Kernel& kernel,
                                     CallFrame& frame, const Request& request) {
  MappedCall mapped(*kernel.map, request.args);
  return KernelRun{thread, kernel, frame, request, &mapped}.run();
}

}  // namespace

int32_t give_workspace(base::ThreadRecord& thread, const registry::Kernel& kernel,
                       yard_call_t& call, const yard_value_t* args, uint32_t count, uint64_t more,
                       std::byte** before) {
  if (kernel.d.workspace == nullptr && more == 0) return YARD_OK;
  int64_t bytes = 0;
  if (kernel.d.workspace != nullptr) {
    const base::FloatState restored;
    bytes = kernel.d.workspace(kernel.d.self, args, count);
  }
  if (bytes < 0) {
    std::snprintf(call.error, call.error_size, "it returned a negative workspace size");
    return YARD_FAULT;
  }
  uint64_t all;
  auto* const memory = __builtin_add_overflow(more, static_cast<uint64_t>(bytes), &all)
                           ? nullptr
                           : static_cast<std::byte*>(workspace(thread, all));
  if (memory == nullptr) {
    std::snprintf(call.error, call.error_size, "no memory for %s of %llu bytes",
                  more == 0 ? "a workspace" : "buffers and workspace",
                  static_cast<unsigned long long>(all));
    return YARD_TRANSIENT;
  }
  if (before != nullptr) *before = memory;
  if (kernel.d.workspace == nullptr) return YARD_OK;
  call.workspace = memory + more;
  call.workspace_size = static_cast<uint64_t>(bytes);
  return YARD_OK;
}

void* allocate_scratch(yard_call_t& call, uint64_t bytes) noexcept {
  if (bytes > kMostBytes) return nullptr;
  auto* memory = static_cast<char*>(allocate(bytes + kAlign));
  if (memory == nullptr) return nullptr;
  call.host_data = new (memory) Scratch{static_cast<Scratch*>(call.host_data)};
  return memory + kAlign;
}

int32_t run_kernel(base::ThreadRecord& thread, const registry::Kernel& kernel, CallFrame& frame,
                   const Request& request) {
  if (request.trace && kernel.d.trace == nullptr) return YARD_OK;
  if (kernel.map != nullptr) return run_mapped(thread, kernel, frame, request);
  return KernelRun{thread, kernel, frame, request}.run();
}

}  // namespace yard::exec

namespace yard::detail {

void free_call_scratch(yard_call_t* call) noexcept {
  while (call->host_data != nullptr) {
    auto* head = static_cast<exec::Scratch*>(call->host_data);
    call->host_data = head->next;
    std::free(head);
  }
}

void note_exception(yard_call_t* call) {
  if (thread_is_unwinding()) {
    free_call_scratch(call);
    throw;
  }
  std::snprintf(call->error, call->error_size, "%s", base::current_exception_text().c_str());
}

}  // namespace yard::detail
