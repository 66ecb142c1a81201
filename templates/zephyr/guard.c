// Tasks run in a thread of their own: a fault ends the thread, and so does a
// passed deadline; the runtime's thread sees it, reports it and starts another.
//
// SPDX-License-Identifier: Apache-2.0

#include <zephyr/fatal.h>
#include <zephyr/kernel.h>
#include <zephyr/linker/section_tags.h>
#include <zephyr/sys/reboot.h>

#include "app_config.h"
#include "port.h"

// Above the runtime's thread: a call begins at once, and its end gives way.
#define TASK_PRIORITY (CONFIG_MAIN_THREAD_PRIORITY - 1)

// Tasks may use the floating-point unit; nothing else here does.
#ifdef CONFIG_FPU_SHARING
#define TASK_OPTIONS K_FP_REGS
#else
#define TASK_OPTIONS 0
#endif

#define STACK_BYTES (CONFIG_UTVM_TASK_STACK_BYTES + UTVM_MODEL_STACK_BYTES)
#if UTVM_USE_DTCM && DT_HAS_CHOSEN(zephyr_dtcm)
// Beside the core: rows and sums that a kernel keeps on the stack cost no wait states there.
static Z_KERNEL_STACK_DEFINE_IN(task_stack, STACK_BYTES, __dtcm_noinit_section);
#elif defined(CONFIG_CPU_CORTEX_M) || defined(CONFIG_RISCV_PMP)
// First in RAM, by task_stack.ld: what grows too large leaves RAM, however far it skips.
static Z_KERNEL_STACK_DEFINE_IN(task_stack, STACK_BYTES,
                                __attribute__((section("utvm_task_stack"))));
#else
static K_KERNEL_STACK_DEFINE(task_stack, STACK_BYTES);
#endif
static struct k_thread task_thread;
static K_SEM_DEFINE(begun, 0, 1);
static K_SEM_DEFINE(ended, 0, 1);

static const struct utvm_call *volatile running;
static enum utvm_status outcome;
static struct utvm_fault stopped;
static volatile bool is_expired;

static void expire(struct k_timer *timer);
static K_TIMER_DEFINE(deadline, expire, NULL);

static void run_tasks(void *a, void *b, void *c) {
    ARG_UNUSED(a);
    ARG_UNUSED(b);
    ARG_UNUSED(c);
    for (;;) {
        (void)k_sem_take(&begun, K_FOREVER);
        utvm_call_function(running);
        running = NULL;
        k_sem_give(&ended);
    }
}

void guard_start(void) {
    (void)k_thread_create(&task_thread, task_stack, K_KERNEL_STACK_SIZEOF(task_stack), run_tasks,
                          NULL, NULL, NULL, TASK_PRIORITY, TASK_OPTIONS, K_NO_WAIT);
}

enum utvm_status guard_call(void *context, const struct utvm_call *call, struct utvm_fault *fault) {
    ARG_UNUSED(context);
    if (is_expired) {
        return UTVM_STATUS_TIMEOUT;
    }
    outcome = UTVM_STATUS_OK;
    running = call;
    k_sem_give(&begun);
    (void)k_sem_take(&ended, K_FOREVER);
    if (outcome != UTVM_STATUS_OK) {
        *fault = stopped;
        (void)k_thread_join(&task_thread, K_FOREVER);
        guard_start();
    }
    return outcome;
}

void guard_deadline(void *context, uint32_t us) {
    ARG_UNUSED(context);
    is_expired = false;
    if (us == 0u) {
        k_timer_stop(&deadline);
    } else {
        // It passes again until it is stopped: guard_call may have asked just before it passed.
        k_timer_start(&deadline, K_USEC(us), K_MSEC(1));
    }
}

// Of the running task: note where it was, and let the runtime go on.
static void stop(enum utvm_status why) {
    running = NULL;
    outcome = why;
    k_sem_give(&ended);
}

// In the kernel's timer interrupt.
static void expire(struct k_timer *timer) {
    ARG_UNUSED(timer);
    is_expired = true;
    if (running == NULL) {
        return;
    }
    fault_at_deadline(&stopped);
    stop(UTVM_STATUS_TIMEOUT);
    k_thread_abort(&task_thread);
}

// When it returns the kernel ends the thread that was running.
void k_sys_fatal_error_handler(unsigned int reason, const struct arch_esf *esf) {
    if (running == NULL || k_current_get() != &task_thread || reason == K_ERR_KERNEL_PANIC) {
        // Not a task's fault but ours: nothing is left to rely on.
        sys_reboot(SYS_REBOOT_COLD);
    }
    fault_of(&stopped, reason, esf);
    stop(UTVM_STATUS_FAULT);
}
