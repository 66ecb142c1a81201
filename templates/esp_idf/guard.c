// Tasks run in a thread of their own, on a stack of its own. A passed deadline
// deletes the thread, and the runtime starts another. A fault is ESP-IDF's panic:
// it restarts the chip, and the record of it outlives that.
//
// Threads are not isolated from each other, so a task can overwrite the runtime.
// A task that keeps interrupts off is ended by the interrupt watchdog.
//
// SPDX-License-Identifier: Apache-2.0

#include <stdbool.h>

#include "app_config.h"
#include "port.h"

#include "esp_attr.h"
#include "esp_err.h"
#include "esp_private/panic_internal.h"
#include "esp_timer.h"
#include "freertos/FreeRTOS.h"
#include "freertos/task.h"

// Above the runtime's thread, which is that of app_main: a call begins at once.
#define TASK_PRIORITY 2
// A deadline that passed while no task ran passes again after this time.
#define AGAIN_US 1000u

static StackType_t task_stack[UTVM_TASK_STACK_BYTES / sizeof(StackType_t)];
static StaticTask_t task_memory;
static TaskHandle_t task, runtime;
static esp_timer_handle_t deadline;

// What the task's thread shall do, and does: only that may be ended.
static const struct utvm_call *volatile wanted, *volatile running;
static volatile enum utvm_status outcome;
static volatile bool is_expired;
static struct utvm_fault stopped;

__NOINIT_ATTR struct fault_record utvm_fault;

static void run_tasks(void *unused) {
    (void)unused;
    for (;;) {
        (void)ulTaskNotifyTake(pdTRUE, portMAX_DELAY);
        running = wanted;
        utvm_call_function(wanted);
        running = NULL;
        (void)xTaskNotifyGive(runtime);
    }
}

// On the runtime's core: only what does not run may be deleted at once.
static void begin_task(void) {
    task = xTaskCreateStaticPinnedToCore(run_tasks, "task", sizeof task_stack, NULL, TASK_PRIORITY,
                                         task_stack, &task_memory, xPortGetCoreID());
}

// In the thread of esp_timer, whose priority is above all threads here.
static void expire(void *unused) {
    (void)unused;
    is_expired = true;
    if (running == NULL) {
        // guard_call may have asked just before.
        (void)esp_timer_start_once(deadline, AGAIN_US);
        return;
    }
    // A thread's memory begins with its stack pointer. What the interrupt saved is there.
    core_note_fault(&stopped, *(void *const *)&task_memory, task_stack);
    running = NULL;
    outcome = UTVM_STATUS_TIMEOUT;
    vTaskDelete(task);
    (void)xTaskNotifyGive(runtime);
}

void guard_start(void) {
    const esp_timer_create_args_t timer = {.callback = expire, .name = "deadline"};
    ESP_ERROR_CHECK(esp_timer_create(&timer, &deadline));
    runtime = xTaskGetCurrentTaskHandle();
    begin_task();
}

enum utvm_status guard_call(void *context, const struct utvm_call *call, struct utvm_fault *fault) {
    (void)context;
    if (is_expired) {
        return UTVM_STATUS_TIMEOUT;
    }
    // The host may have written code just now, by its address on the data bus.
    core_sync_code();
    outcome = UTVM_STATUS_OK;
    wanted = call;
    (void)xTaskNotifyGive(task);
    (void)ulTaskNotifyTake(pdTRUE, portMAX_DELAY);
    if (outcome != UTVM_STATUS_OK) {
        *fault = stopped;
        begin_task();
    }
    return outcome;
}

void guard_deadline(void *context, uint32_t us) {
    (void)context;
    // An error says that it does not run.
    (void)esp_timer_stop(deadline);
    is_expired = false;
    if (us != 0u) {
        ESP_ERROR_CHECK(esp_timer_start_once(deadline, us));
    }
}

// The linker puts it in front of ESP-IDF's panic handler, which restarts the chip.
void __real_esp_panic_handler(panic_info_t *info);
void __wrap_esp_panic_handler(panic_info_t *info);

IRAM_ATTR void __wrap_esp_panic_handler(panic_info_t *info) {
    core_note_fault(&utvm_fault.fault, info->frame, task_stack);
    utvm_fault.magic = FAULT_MAGIC;
    __real_esp_panic_handler(info);
}
