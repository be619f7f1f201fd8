// SPDX-License-Identifier: Apache-2.0
// Includes all of Switchyard's C++ interface for programs, except plugin.hpp, plugin_function.hpp,
// c.h, and metrics.h, which needs the library Switchyard::metrics.
#pragma once

#include <yard/bound.h>
#include <yard/call_spec.h>
#include <yard/config.h>
#include <yard/explain.h>
#include <yard/function.h>
#include <yard/health.h>
#include <yard/inspect.h>
#include <yard/log.h>
#include <yard/op.h>
#include <yard/options.h>
#include <yard/plugins.h>
#include <yard/policy.h>
#include <yard/registry.h>
#include <yard/runtime.h>
#include <yard/stats.h>
#include <yard/status.h>
#include <yard/tensor.h>
#include <yard/trace.h>
#include <yard/verdict.h>
#include <yard/verify.h>
#include <yard/version.h>
