// SPDX-License-Identifier: Apache-2.0
// The descriptor of backend `template`: when the backend can be used, and what its kernels accept.
#include "driver.h"
#include "kernels.h"

namespace yard::vendor_template {
namespace {

// The reasons of the probe. {0} and {1} are the figures of the verdict.
const char* const kReasons[] = {
    "the vendor's driver is missing",
    "the driver has version {0}, and {1} is the oldest that works",
};

// The host asks before the first choice that could use the backend, and again on request. The probe
// must be quick and free of side effects, because machines without the vendor's unit run it too.
int32_t probe(void*, const yard_host_t*, yard_device_t, yard_verdict_t* why) {
  const int64_t version = driver_version();
  if (version >= kOldestDriver) return YARD_OK;
  *why = {version == 0 ? YARD_REASON_OWN : YARD_REASON_OWN + 1, 0, {version, kOldestDriver, 0}};
  return YARD_DECLINED;
}

plugin::Plugin make() {
  using namespace plugin;
  static const yard_limit_t limits[] = {dtypes({YARD_F32}), compact()};
  return Plugin(YARD_PLUGIN_NAME, YARD_PLUGIN_VERSION)
      .add(Backend("template")
               .vendor("template")
               .summary("A backend to copy")
               .probe(probe)
               .reasons(kReasons))
      .add(Kernel::of<silu_and_mul>("silu_and_mul", "vendor.template")
               .summary("What fits into the unit, in double")
               .kind(YARD_KIND_VENDOR)
               .flags(YARD_KERNEL_DETERMINISTIC | YARD_KERNEL_FAILS_BEFORE_WRITING)
               .limits(limits)
               .verify(fits, kFitsReads)
               .reasons(kFitsReasons)
               .cost(silu_cost, kCostReads));
}

}  // namespace
}  // namespace yard::vendor_template

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t*) {
  return yard::plugin::made_once<yard::vendor_template::make>();
}
