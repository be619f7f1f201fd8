// SPDX-License-Identifier: Apache-2.0
// A plugin that describes itself correctly and then behaves, or misbehaves, as the build selects.
// This file is compiled once, and behave_case.cc selects when it does what.
//
// The plugin adds an op with its reference kernel and another kernel, which misbehaves.
#include "behave.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yard/plugin.h>

#include <atomic>
#include <cfenv>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string_view>
#include <thread>

#ifndef NAME
#define NAME "behave"
#endif

namespace acts {

void nothing(char*) {}
void crash(char*) { ::raise(SIGSEGV); }
void null(char*) {
  volatile uintptr_t nowhere = 0;  // volatile, because compilers would turn the access into a trap
  *reinterpret_cast<volatile char*>(nowhere) = 1;
}
void divide(char*) { ::raise(SIGFPE); }
void illegal(char*) { ::raise(SIGILL); }
void stop_short(char*) { std::abort(); }
void kill_itself(char*) { ::raise(SIGKILL); }
void hang(char*) {
  for (;;) ::usleep(1000);
}
void spin(char*) {
  for (;;) __asm__ volatile("");
}
// Waits while the file exists. It makes the file read-only to show that it waits.
void wait(char*) {
  const char* const file = std::getenv("PLUGIN_WAITS");
  while (file != nullptr && ::access(file, F_OK) == 0) {
    ::chmod(file, 0444);
    ::usleep(1000);
  }
}
void leave(char*) { std::exit(3); }
void leave_well(char*) { ::_exit(0); }
void fall_silent(char*) {  // its end is never reported
  for (int fd = 0; fd < 64; ++fd) ::close(fd);
  ::_exit(0);
}
void leave_a_child(char*) {
  if (::fork() == 0) hang(nullptr);
  ::raise(SIGSEGV);
}
void redirect(char*) {
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ::dup2(nowhere, STDOUT_FILENO), ::close(nowhere);
  std::puts("a line for stdout");
}
void recurse(char* p) {
  volatile char room[4096] = {};
  if (p != room) recurse(const_cast<char*>(room));
  room[1] = 2;
}
void free_twice(char*) {
  void* volatile p = std::malloc(40);
  std::free(p);
  std::free(p);
}
void eat_memory(char*) {
  for (;;) {
    if (std::malloc(64 << 20) == nullptr) std::abort();
  }
}
// Rounds upward and flushes denormal numbers to zero. Libraries linked with -ffast-math flush as
// well when they are opened.
void change_float_state(char*) {
  std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#else
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  __asm__ volatile("msr fpcr, %0" : : "r"(control | uint64_t{1} << 24));
#endif
}
void end_thread(char*) { ::pthread_exit(nullptr); }
void throws(char*) { throw std::runtime_error("thrown through C"); }
std::atomic<const yard_host_t*> g_host{nullptr};
void end_thread_in_loop(char*) {
  const yard_host_t* const host = g_host;
  host->parallel_for(
      host->self, 1000, 1, [](void*, int64_t, int64_t) { ::pthread_exit(nullptr); }, nullptr);
}
// These write relative to the end of an output.
void write_behind(char* end) { *end = 1; }
void write_far_behind(char* end) { end[100] = 1; }
void be_wrong(char* end) { end[-8] ^= 1; }

}  // namespace acts

namespace {

void now(std::string_view when, char* end = nullptr) {
  if (when == g_when) g_act(end);
}

__attribute__((constructor)) void opened() { now("load"); }
__attribute__((destructor)) void closed() { now("close"); }

char* data(const yard_value_t& v) {
  return static_cast<char*>(v.u.tensor->data) + v.u.tensor->byte_offset;
}

void copy(const yard_value_t* args) {
  const yard_tensor_t &out = *args[0].u.tensor, &x = *args[1].u.tensor;
  const int64_t to = out.strides != nullptr ? out.strides[0] : 1;
  const int64_t from = x.strides != nullptr ? x.strides[0] : 1;
  for (int64_t i = 0; i < out.shape[0]; ++i)
    std::memcpy(data(args[0]) + 8 * i * to, data(args[1]) + 8 * i * from, 8);
}

int32_t reference(yard_call_t*, const yard_value_t* args, uint32_t) { return copy(args), YARD_OK; }

int32_t run(yard_call_t* call, const yard_value_t* args, uint32_t) {
  acts::g_host = call->host;
  copy(args);
  const yard_tensor_t& out = *args[0].u.tensor;
  if (out.shape[0] > 0 && (out.strides == nullptr || out.strides[0] == 1))
    now("run", data(args[0]) + 8 * out.shape[0]);
  return YARD_OK;
}

int32_t start(const yard_host_t*, char*, uint64_t) { return now("start"), YARD_OK; }
void stop() { now("stop"); }
int32_t create(yard_call_t*, const yard_named_value_t*, uint32_t, void** state) {
  static char made;
  return *state = &made, YARD_OK;
}
void destroy(void*, void*) { now("destroy"); }

yard_plugin_t g_plugin{};

}  // namespace

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t*) {
  static yard_backend_t backend{};
  static yard_op_t op{};
  static yard_kernel_t kernels[2]{};
  static const yard_backend_t* const backends[] = {&backend};
  static const yard_op_t* const ops[] = {&op};
  static const yard_kernel_t* const listed[] = {&kernels[0], &kernels[1]};
  now("query");
  backend.size = sizeof backend, backend.name = NAME;
  op.size = sizeof op, op.schema = NAME "(out!: i64[n], x: i64[n])";
  for (yard_kernel_t& k : kernels) k.size = sizeof k, k.op = NAME;
  kernels[0].id = "reference." NAME, kernels[0].kind = YARD_KIND_REFERENCE;
  kernels[0].run = reference;
  kernels[1].id = "default." NAME, kernels[1].kind = YARD_KIND_DEFAULT, kernels[1].run = run;
  if (std::string_view(g_when) == "destroy")
    kernels[1].create = create, kernels[1].destroy = destroy;
  g_plugin.size = sizeof g_plugin, g_plugin.abi = YARD_ABI_VERSION;
  g_plugin.name = NAME, g_plugin.version = "1.0";
  g_plugin.backends = backends, g_plugin.backend_count = 1;
  g_plugin.ops = ops, g_plugin.op_count = 1;
  g_plugin.kernels = listed, g_plugin.kernel_count = 2;
  g_plugin.start = start, g_plugin.stop = stop;
  return &g_plugin;
}

YARD_MANIFEST(NAME, "1.0", YARD_MANIFEST_OPS(NAME));
