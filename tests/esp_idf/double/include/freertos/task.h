// A part of the double of ESP-IDF: double.c.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "freertos/FreeRTOS.h"

typedef struct thread *TaskHandle_t;
TaskHandle_t xTaskCreateStaticPinnedToCore(void (*code)(void *), const char *name,
                                           uint32_t stack_bytes, void *argument,
                                           UBaseType_t priority, StackType_t *stack,
                                           StaticTask_t *memory, BaseType_t core);
TaskHandle_t xTaskGetCurrentTaskHandle(void);
BaseType_t xTaskNotifyGive(TaskHandle_t task);
uint32_t ulTaskNotifyTake(BaseType_t clears, TickType_t wait);
void vTaskDelete(TaskHandle_t task);
void vTaskDelay(TickType_t ticks);
