// SPDX-License-Identifier: Apache-2.0
// All of Switchyard's C++ interface. Each header can also be included by itself.
#pragma once

#include <yard/bound.h>
#include <yard/breaker.h>
#include <yard/call_spec.h>
#include <yard/call_tensors.h>
#include <yard/canary.h>
#include <yard/canary_dump.h>
#include <yard/config.h>
#include <yard/explain.h>
#include <yard/health.h>
#include <yard/hook.h>
#include <yard/hooks.h>
#include <yard/instance.h>
#include <yard/mode.h>
#include <yard/op.h>
#include <yard/options.h>
#include <yard/plugins.h>
#include <yard/policy.h>
#include <yard/record.h>
#include <yard/registry.h>
#include <yard/reload.h>
#include <yard/runtime.h>
#include <yard/sample_calls.h>
#include <yard/scope.h>
#include <yard/static_map.h>
#include <yard/status.h>
#include <yard/tensor.h>
#include <yard/trace.h>
#include <yard/value.h>
#include <yard/verify.h>
#include <yard/version.h>
