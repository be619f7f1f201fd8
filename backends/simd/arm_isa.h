// SPDX-License-Identifier: Apache-2.0
// Attributes of functions that use instructions which some Armv8 processors lack. clang offers
// their intrinsics only where the whole file is compiled for them, so there asm takes their place.
#pragma once

#if defined(__clang__)
#define YARD_ARM_ISA(feature) __attribute__((target(feature)))
#else
#define YARD_ARM_ISA(feature) __attribute__((target("arch=armv8.2-a+" feature)))
#endif
