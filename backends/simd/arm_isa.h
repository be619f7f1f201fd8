// SPDX-License-Identifier: Apache-2.0
// Functions that use instructions which not every Armv8 processor has. Intrinsics for these exist in clang only where a whole
// file is compiled for them; there, asm takes their place.
#pragma once

#if defined(__clang__)
#define YARD_ARM_ISA(feature) __attribute__((target(feature)))
#else
#define YARD_ARM_ISA(feature) __attribute__((target("arch=armv8.2-a+" feature)))
#endif
