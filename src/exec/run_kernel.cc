// SPDX-License-Identifier: Apache-2.0
// Running one kernel: workspaces, scratch, transforms of arguments, and exceptions.
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

#include "base/float_state.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "exec/executor.h"
#include "exec/mapped_call.h"
#include "exec/states.h"

namespace yard::exec {
namespace {

constexpr int kThreadLocal = 1;  // the index in ThreadRecord::locals
constexpr size_t kAlign = 64;

void* allocate(uint64_t bytes) noexcept {
  if (bytes > (uint64_t{1} << 46)) return nullptr;
  return std::aligned_alloc(kAlign, (bytes + kAlign - 1) / kAlign * kAlign);
}

// The header of memory from allocate_scratch(): a chain at the call's host_data.
struct Scratch {
  Scratch* next;
};

// A thread's workspaces, one for each depth of nested calls, kept for the next call.
struct Workspaces {
  struct Buffer {
    void* memory = nullptr;
    uint64_t size = 0;
  };
  std::vector<Buffer> by_depth;
  ~Workspaces() {
    for (const Buffer& b : by_depth) std::free(b.memory);
  }
};

void* workspace(base::ThreadRecord& thread, uint64_t bytes) {
  if (thread.locals[kThreadLocal] == nullptr) {
    thread.locals[kThreadLocal] = new Workspaces;
    base::set_thread_exit_hook(kThreadLocal, [](void* w) { delete static_cast<Workspaces*>(w); });
  }
  auto& buffers = static_cast<Workspaces*>(thread.locals[kThreadLocal])->by_depth;
  if (buffers.size() <= thread.depth) buffers.resize(thread.depth + 1);
  Workspaces::Buffer& b = buffers[thread.depth];
  if (b.size < bytes || b.memory == nullptr) {
    std::free(b.memory);
    b.memory = allocate(bytes > 0 ? bytes : kAlign);
    b.size = b.memory != nullptr ? bytes : 0;
  }
  return b.memory;
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
  if (bytes > (uint64_t{1} << 46)) return nullptr;
  auto* memory = static_cast<char*>(allocate(bytes + kAlign));
  if (memory == nullptr) return nullptr;
  call.host_data = new (memory) Scratch{static_cast<Scratch*>(call.host_data)};
  return memory + kAlign;
}

void free_scratch(yard_call_t& call) noexcept {
  while (call.host_data != nullptr) {
    auto* head = static_cast<Scratch*>(call.host_data);
    call.host_data = head->next;
    std::free(head);
  }
}

namespace {

// One run of one kernel.
class KernelRun {
 public:
  // `mapped` is null for kernels that take the op's parameters.
  KernelRun(base::ThreadRecord& thread, const registry::Kernel& kernel, CallFrame& frame,
            const Request& request, MappedCall* mapped)
      : thread_(thread), kernel_(kernel), frame_(frame), r_(request), mapped_(mapped) {}

  int32_t run() {
    const base::FloatState before;
    std::shared_ptr<State> state;  // kept while the kernel runs
    const int32_t code = detail::call_kernel(frame_.call, [&]() -> int32_t {
      if (!r_.trace)
        if (const int32_t failed = prepare(); failed != YARD_OK) return failed;
      if (kernel_.d.create != nullptr)
        if (const int32_t failed = find_state(state); failed != YARD_OK) return failed;
      if (r_.trace) return kernel_.d.trace(&frame_.call, args().data(), count());
      if (mapped_ == nullptr)
        return kernel_.d.run(&frame_.call, r_.given != nullptr ? r_.given : r_.args, r_.count);
      if (r_.given != nullptr) mapped_->pass_on(r_.given);
      return kernel_.d.run(&frame_.call, args().data(), count());
    });
    frame_.changed_float_state = before.restore();
    if (mapped_ != nullptr) finish(code == YARD_OK);
    return code;
  }

 private:
  // In the kernel's order.
  std::span<const yard_value_t> args() const noexcept {
    if (mapped_ == nullptr) return {r_.args, r_.count};
    return {mapped_->args(), mapped_->count()};
  }
  uint32_t count() const noexcept { return static_cast<uint32_t>(args().size()); }

  int32_t fail(int32_t code, const char* text) {
    std::snprintf(frame_.error, sizeof frame_.error, "%s", text);
    return code;
  }

  // Memory for buffers and workspace, in one piece; and arguments in the buffers.
  int32_t prepare() {
    if (mapped_ != nullptr && !mapped_->possible())
      return fail(YARD_DECLINED, "its arguments cannot be transformed as it requires");
    const uint64_t buffers = mapped_ != nullptr ? mapped_->bytes() : 0;
    std::byte* memory = nullptr;
    if (const int32_t failed =
            give_workspace(thread_, kernel_, frame_.call, args().data(), count(), buffers, &memory);
        failed != YARD_OK)
      return failed;
    if (mapped_ == nullptr) return YARD_OK;
    mapped_->place(memory);
    if (memory == nullptr) return YARD_OK;
    timed(&ResultRecord::pre_ns, [&] { mapped_->copy_in(r_.host); });
    return YARD_OK;
  }

  int32_t find_state(std::shared_ptr<State>& state) {
    if (r_.states == nullptr)
      return fail(YARD_DECLINED, "it has state, which this call does not support");
    int32_t made = YARD_OK;
    state = r_.states->find(kernel_.shared_from_this(), *r_.program, frame_, r_.args, args(), made);
    if (state == nullptr) return made;
    frame_.call.state = state->get();
    return YARD_OK;
  }

  void finish(bool succeeded) {
    frame_.wrote_buffers_only = mapped_->buffers_outputs();
    if (succeeded && !r_.trace) timed(&ResultRecord::post_ns, [&] { mapped_->copy_out(r_.host); });
  }

  template <class F>
  void timed(int64_t ResultRecord::*to, const F& copy) {
    if (frame_.record == nullptr || !mapped_->transforms()) return copy();
    auto copying = base::Stopwatch::start();
    copy();
    frame_.record->*to += copying.lap();
  }

  base::ThreadRecord& thread_;
  const registry::Kernel& kernel_;
  CallFrame& frame_;
  const Request& r_;
  MappedCall* const mapped_;
};

// Apart, since the arguments of such a kernel take kilobytes of stack.
[[gnu::noinline]] int32_t run_mapped(base::ThreadRecord& thread, const registry::Kernel& kernel,
                                     CallFrame& frame, const Request& request) {
  MappedCall mapped(*kernel.map, request.args);
  return KernelRun(thread, kernel, frame, request, &mapped).run();
}

}  // namespace

int32_t run_kernel(base::ThreadRecord& thread, const registry::Kernel& kernel, CallFrame& frame,
                   const Request& request) {
  if (request.trace && kernel.d.trace == nullptr) return YARD_OK;
  if (kernel.map != nullptr) return run_mapped(thread, kernel, frame, request);
  return KernelRun(thread, kernel, frame, request, nullptr).run();
}

}  // namespace yard::exec

namespace yard::detail {

void free_call_scratch(yard_call_t* call) noexcept { exec::free_scratch(*call); }

void note_exception(yard_call_t* call) {
  if (thread_is_unwinding()) {
    exec::free_scratch(*call);
    throw;
  }
  std::snprintf(call->error, call->error_size, "%s", base::current_exception_text().c_str());
}

}  // namespace yard::detail
