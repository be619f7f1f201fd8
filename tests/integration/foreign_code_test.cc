// SPDX-License-Identifier: Apache-2.0
// Foreign code never runs under a lock of the library; debug builds assert this wherever foreign
// code begins. These tests also let each kind of foreign code wait for another thread that changes
// the runtime and queries it.
#include <future>
#include <map>
#include <mutex>

#include "base/testing_files.h"
#include "plugin_files.h"
#include "testing.h"

namespace yard::testing {
namespace {

using base::eventually;

Runtime* g_runtime = nullptr;
std::mutex g_lock;
std::map<std::string, int> g_ran;

void use_from_another_thread(const std::string& what) {
  {
    const std::lock_guard lock(g_lock);
    if (g_ran[what]++ > 0 || g_runtime == nullptr) return;
  }
  const auto done = std::async(std::launch::async, [] {
    g_runtime->set_policy({}).or_throw();
    EXPECT_NE(g_runtime->list().find_op("copy"), nullptr);
    g_runtime->stats();
  });
  EXPECT_EQ(done.wait_for(std::chrono::seconds(60)), std::future_status::ready) << what;
}
bool has_run(const std::string& what) {
  const std::lock_guard lock(g_lock);
  return g_ran[what] > 0;
}

int32_t probe(void*, const yard_host_t*, yard_device_t, yard_verdict_t*) {
  use_from_another_thread("probe");
  return YARD_OK;
}
int32_t verify(const yard_query_t*, yard_verdict_t*) {
  use_from_another_thread("verify");
  return YARD_OK;
}
const char* const kFields[] = {"n", nullptr};
double cost(void* self, const int64_t*, uint32_t) {
  use_from_another_thread("cost");
  return static_cast<double>(reinterpret_cast<intptr_t>(self));
}
int32_t create(yard_call_t*, const yard_named_value_t*, uint32_t, void** state) {
  use_from_another_thread("create");
  *state = &g_runtime;
  return YARD_OK;
}
void destroy(void*, void*) { use_from_another_thread("destroy"); }

TEST(ForeignCode, RunsUnderNoLock) {
  Bare bare;
  Runtime& runtime = bare.runtime;
  g_runtime = &runtime;
  set_log_sink([](const LogMessage&) { use_from_another_thread("log sink"); });
  set_log_level(LogLevel::kInfo);
  runtime.rules().add_validator([](const Config&) {
    use_from_another_thread("validator");
    return Status();
  });
  runtime.rules().on_change([](const ConfigEvent&) { use_from_another_thread("listener"); });

  yard_backend_t backend = backend_of("acme");
  backend.probe = probe;
  yard_kernel_t kernel = kernel_of("copy", "default.a", 1),
                other = kernel_of("copy", "default.b", 2);
  kernel.backend = "acme", kernel.verify = verify;
  kernel.create = create, kernel.destroy = destroy;
  kernel.cost = other.cost = cost, kernel.cost_reads = other.cost_reads = kFields;
  Changes c;
  c.add_backend(backend).add_kernel(kernel).add_kernel(other);
  runtime.apply(std::move(c)).status().or_throw();
  Floats out(4), x(4);
  runtime.call("copy", {out.view, x.view}).or_throw();
  runtime.rules().set(Config()).or_throw();
  // The library's assertions check constructors, start and stop of a plugin.
  Folder folder;
  runtime.plugins().load(folder.put("answer")).or_throw();
  runtime.plugins().unload("answer").status().or_throw();
  bare.remove("copy", "default.a").or_throw();

  for (const char* const what :
       {"probe", "verify", "cost", "create", "destroy", "validator", "listener", "log sink"})
    EXPECT_TRUE(eventually([&] {
      runtime.set_policy({}).or_throw();  // frees unused objects
      return has_run(what);
    })) << what;
  set_log_sink(nullptr);
  set_log_level(LogLevel::kWarn);
  g_runtime = nullptr;
}

}  // namespace
}  // namespace yard::testing
