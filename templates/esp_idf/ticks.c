// Ticks: the cycles of the core that runs the tasks, extended to 64 bits.
//
// SPDX-License-Identifier: Apache-2.0

#include "app_config.h"
#include "port.h"

#include "esp_cpu.h"
#include "esp_err.h"
#include "esp_timer.h"
#include "freertos/FreeRTOS.h"

static portMUX_TYPE lock = portMUX_INITIALIZER_UNLOCKED;
static uint64_t count;
static uint32_t last;

uint64_t ticks_now(void *context) {
    (void)context;
    portENTER_CRITICAL(&lock);
    const uint32_t now = (uint32_t)esp_cpu_get_cycle_count();
    count += (uint32_t)(now - last);
    last = now;
    const uint64_t so_far = count;
    portEXIT_CRITICAL(&lock);
    return so_far;
}

static void look(void *unused) {
    (void)ticks_now(unused);
}

// A counter that wraps must be looked at before it does so twice, however long a
// task runs.
void ticks_start(void) {
    const esp_timer_create_args_t looks = {.callback = look, .name = "ticks"};
    const uint64_t wrap_us = (uint64_t)UINT32_MAX * 1000000u / UTVM_CPU_HZ;
    static esp_timer_handle_t timer;
    last = (uint32_t)esp_cpu_get_cycle_count();
    ESP_ERROR_CHECK(esp_timer_create(&looks, &timer));
    ESP_ERROR_CHECK(esp_timer_start_periodic(timer, wrap_us / 4u));
}
