// A part of the double of ESP-IDF: double.c.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stdint.h>
typedef int BaseType_t;
typedef unsigned int UBaseType_t;
typedef uint32_t TickType_t;
typedef uint8_t StackType_t;
typedef struct {
    void *pxDummy1;
} StaticTask_t;
typedef struct {
    int unused;
} portMUX_TYPE;
#define pdTRUE 1
#define portMAX_DELAY 0xffffffffu
#define pdMS_TO_TICKS(ms) (ms)
#define portMUX_INITIALIZER_UNLOCKED {0}
void double_enter_critical(portMUX_TYPE *lock);
void double_exit_critical(portMUX_TYPE *lock);
#define portENTER_CRITICAL(lock) double_enter_critical(lock)
#define portEXIT_CRITICAL(lock) double_exit_critical(lock)
BaseType_t xPortGetCoreID(void);
