// A part of the double of ESP-IDF: double.c.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once
#define IRAM_ATTR
#define __NOINIT_ATTR __attribute__((section("noinit")))
