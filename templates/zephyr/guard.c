// Tasks run in a thread of their own: a fault ends the thread, and so does a
// passed deadline; the runtime's thread sees it, reports it and starts another.
//
// SPDX-License-Identifier: Apache-2.0

#include <zephyr/fatal.h>
#include <zephyr/kernel.h>
#include <zephyr/linker/section_tags.h>
#include <zephyr/sys/reboot.h>
#ifdef CONFIG_CPU_CORTEX_M
#include <cmsis_core.h>
#endif

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
#elif defined(CONFIG_CPU_CORTEX_M)
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
        k_timer_start(&deadline, K_USEC(us), K_NO_WAIT);
    }
}

// What stopped is of this core; nothing more is known yet.
static void begin_fault(void) {
#if defined(CONFIG_CPU_CORTEX_M)
    stopped = (struct utvm_fault){UTVM_ARCHITECTURE_ARM_M, UTVM_FAULT_ARM_M_WORDS, {0}};
#elif defined(CONFIG_X86)
    stopped = (struct utvm_fault){UTVM_ARCHITECTURE_X86, UTVM_FAULT_X86_WORDS, {0}};
#else
    stopped = (struct utvm_fault){0};
#endif
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
    begin_fault();
#ifdef CONFIG_CPU_CORTEX_M
    // What the core stacked when the interrupt came: r0-r3, r12, lr, pc, xpsr.
    const uint32_t *frame = (const uint32_t *)__get_PSP();
    stopped.words[UTVM_FAULT_ARM_M_LR] = frame[5];
    stopped.words[UTVM_FAULT_ARM_M_PC] = frame[6];
    stopped.words[UTVM_FAULT_ARM_M_XPSR] = frame[7];
    stopped.words[UTVM_FAULT_ARM_M_SP] = (uint32_t)(uintptr_t)frame;
#endif
    stop(UTVM_STATUS_TIMEOUT);
    k_thread_abort(&task_thread);
}

#ifdef CONFIG_CPU_CORTEX_M
// The kernel clears the fault status register and keeps what it said in words
// of its own; back to the register's bits.
static uint32_t fault_status(unsigned int reason) {
    switch (reason) {
    case K_ERR_ARM_MEM_INSTRUCTION_ACCESS:
        return SCB_CFSR_IACCVIOL_Msk;
    case K_ERR_ARM_MEM_DATA_ACCESS:
        return SCB_CFSR_DACCVIOL_Msk;
    case K_ERR_STACK_CHK_FAIL:
#ifdef CONFIG_BUILTIN_STACK_GUARD
        return SCB_CFSR_STKOF_Msk;
#endif
    case K_ERR_ARM_MEM_STACKING:
        return SCB_CFSR_MSTKERR_Msk;
    case K_ERR_ARM_BUS_INSTRUCTION_BUS:
        return SCB_CFSR_IBUSERR_Msk;
    case K_ERR_ARM_BUS_PRECISE_DATA_BUS:
        return SCB_CFSR_PRECISERR_Msk;
    case K_ERR_ARM_BUS_IMPRECISE_DATA_BUS:
        return SCB_CFSR_IMPRECISERR_Msk;
    case K_ERR_ARM_BUS_STACKING:
        return SCB_CFSR_STKERR_Msk;
    case K_ERR_ARM_USAGE_UNDEFINED_INSTRUCTION:
        return SCB_CFSR_UNDEFINSTR_Msk;
    case K_ERR_ARM_USAGE_ILLEGAL_EPSR:
        return SCB_CFSR_INVSTATE_Msk;
    case K_ERR_ARM_USAGE_NO_COPROCESSOR:
        return SCB_CFSR_NOCP_Msk;
    case K_ERR_ARM_USAGE_UNALIGNED_ACCESS:
        return SCB_CFSR_UNALIGNED_Msk;
    case K_ERR_ARM_USAGE_DIV_0:
        return SCB_CFSR_DIVBYZERO_Msk;
    default:
        return 0u;
    }
}
#endif

// When it returns the kernel ends the thread that was running.
void k_sys_fatal_error_handler(unsigned int reason, const struct arch_esf *esf) {
    if (running == NULL || k_current_get() != &task_thread || reason == K_ERR_KERNEL_PANIC) {
        // Not a task's fault but ours: nothing is left to rely on.
        sys_reboot(SYS_REBOOT_COLD);
    }
    begin_fault();
#if defined(CONFIG_CPU_CORTEX_M)
    stopped.words[UTVM_FAULT_ARM_M_EXCEPTION] = __get_IPSR();
    stopped.words[UTVM_FAULT_ARM_M_CFSR] = fault_status(reason);
    if (esf != NULL) {
        stopped.words[UTVM_FAULT_ARM_M_PC] = esf->basic.pc;
        stopped.words[UTVM_FAULT_ARM_M_LR] = esf->basic.lr;
        stopped.words[UTVM_FAULT_ARM_M_XPSR] = esf->basic.xpsr;
    }
#elif defined(CONFIG_X86) && !defined(CONFIG_X86_64)
    if (esf != NULL) {
        stopped.words[UTVM_FAULT_X86_PC] = esf->eip;
        stopped.words[UTVM_FAULT_X86_SP] = esf->esp;
    }
#else
    ARG_UNUSED(esf);
#endif
    stop(UTVM_STATUS_FAULT);
}
