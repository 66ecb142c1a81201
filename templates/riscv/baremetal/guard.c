// A task cannot harm the runtime, and whatever stops it is the runtime's next
// step.
//
//     guard_call ──▶ enter_task ──▶ function, in user mode, on the task stack
//                        ▲              │ returns      │ faults, deadline
//                        │           leave_task        │
//                        │              │ ecall        │
//                    task_left ◀──────  trap_entry, handle_trap
//
// While a task runs, mscratch holds the runtime's stack pointer; otherwise it is
// 0. A trap takes its stack from there. To end a task, it returns from enter_task
// instead of from the trap. Nothing of the task's own state is needed for that, so
// it does not matter what it did to its stack.
//
// SPDX-License-Identifier: Apache-2.0

#include <stdbool.h>
#include <string.h>

#include "board_config.h"
#include "guard.h"
#include "port.h"
#include "core.h"

// The parameters of functions in assembly, which the compiler cannot see used.
#define UNSEEN __attribute__((unused))

// What a trap stores: the registers that a call may change.
struct trap_frame {
    uint32_t ra;
    uint32_t others[15];
    uint32_t sp; // of what was interrupted
};

#define FRAME "176"
#define SAVED "112"
#define FOR_EACH_REGISTER(action)                                                                  \
    action(ra, 0) action(t0, 4) action(t1, 8) action(t2, 12) action(a0, 16) action(a1, 20)         \
        action(a2, 24) action(a3, 28) action(a4, 32) action(a5, 36) action(a6, 40) action(a7, 44)  \
            action(t3, 48) action(t4, 52) action(t5, 56) action(t6, 60)
#define FOR_EACH_SAVED(action)                                                                     \
    action(ra, 0) action(s0, 4) action(s1, 8) action(s2, 12) action(s3, 16) action(s4, 20)         \
        action(s5, 24) action(s6, 28) action(s7, 32) action(s8, 36) action(s9, 40) action(s10, 44) \
            action(s11, 48) action(tp, 52)
#define STORE(name, offset) "sw " #name ", " #offset "(sp)\n\t"
#define LOAD(name, offset) "lw " #name ", " #offset "(sp)\n\t"

#if BOARD_HAS_FPU
#define FOR_EACH_FLOAT(action)                                                                     \
    action(ft0, 72) action(ft1, 76) action(ft2, 80) action(ft3, 84) action(ft4, 88)                \
        action(ft5, 92) action(ft6, 96) action(ft7, 100) action(ft8, 104) action(ft9, 108)         \
            action(ft10, 112) action(ft11, 116) action(fa0, 120) action(fa1, 124) action(fa2, 128) \
                action(fa3, 132) action(fa4, 136) action(fa5, 140) action(fa6, 144)                \
                    action(fa7, 148)
#define FOR_EACH_SAVED_FLOAT(action)                                                               \
    action(fs0, 56) action(fs1, 60) action(fs2, 64) action(fs3, 68) action(fs4, 72)                \
        action(fs5, 76) action(fs6, 80) action(fs7, 84) action(fs8, 88) action(fs9, 92)            \
            action(fs10, 96) action(fs11, 100)
#define STORE_FLOAT(name, offset) "fsw " #name ", " #offset "(sp)\n\t"
#define LOAD_FLOAT(name, offset) "flw " #name ", " #offset "(sp)\n\t"
#define STORE_FLOATS "frcsr t0\n\tsw t0, 152(sp)\n\t" FOR_EACH_FLOAT(STORE_FLOAT)
#define LOAD_FLOATS "lw t0, 152(sp)\n\tfscsr t0\n\t" FOR_EACH_FLOAT(LOAD_FLOAT)
#define SAVE_FLOATS FOR_EACH_SAVED_FLOAT(STORE_FLOAT)
#define RESTORE_FLOATS FOR_EACH_SAVED_FLOAT(LOAD_FLOAT)
// Rounding to nearest, no flags: whatever the task before left there.
#define RESET_FLOATS "fscsr zero\n\t"
#else
#define STORE_FLOATS
#define LOAD_FLOATS
#define SAVE_FLOATS
#define RESTORE_FLOATS
#define RESET_FLOATS
#endif

// No code of the runtime has vectors, so traps need not save them. A task that is stopped within an
// instruction leaves its element in vstart. Each task starts at the first element, and rounds to
// nearest: vstart and vcsr, whose names need an extension that GCC is not told of. A core without
// vectors traps at the first of them.
extern const uint8_t vectors_point[];
#if BOARD_HAS_VECTORS
#define RESET_VECTORS                                                                              \
    ".global vectors_point\n"                                                                      \
    "vectors_point:\n\t"                                                                           \
    "csrw 0x008, zero\n\t"                                                                         \
    "csrw 0x00f, zero\n\t"
#define IS_AT_VECTORS() (read_mepc() == (uintptr_t)vectors_point)
#else
#define RESET_VECTORS
#define IS_AT_VECTORS() false
#endif

CSR(mcause)
CSR(mepc)
CSR(mtval)
CSR(mstatus)

static struct utvm_fault stopped;
static volatile bool is_expired;
// Set by the timer's interrupt.
static bool is_passed;

extern const uint8_t task_end_point[];
uint32_t enter_task(const struct utvm_call *call, uint8_t *stack_top);
void leave_task(void);
void trap_entry(void);
uint32_t handle_trap(const struct trap_frame *frame);

enum utvm_status guard_call(void *context, const struct utvm_call *call, struct utvm_fault *fault) {
    (void)context;
    // In user mode they are on, whatever this says: a deadline that passes from here on stops
    // the task.
    interrupts_off();
    const uint32_t status =
        is_expired ? UTVM_STATUS_TIMEOUT : enter_task(call, utvm_task_stack_end);
    if (status != UTVM_STATUS_OK && !is_expired) {
        *fault = stopped;
    }
    interrupts_on();
    return (enum utvm_status)status;
}

void guard_deadline(void *context, uint32_t us) {
    (void)context;
    interrupts_off();
    timer_set_deadline(us);
    is_passed = false;
    is_expired = false;
    interrupts_on();
}

void guard_expire(void) {
    is_passed = true;
}

static void take_fault(struct utvm_fault *fault, const struct trap_frame *frame,
                       const uint8_t *stack) {
    uint32_t *words = fault->words;
    memset(fault, 0, sizeof *fault);
    fault->architecture = UTVM_ARCHITECTURE_RISCV;
    fault->count = UTVM_FAULT_RISCV_WORDS;
    words[UTVM_FAULT_RISCV_MCAUSE] = read_mcause();
    words[UTVM_FAULT_RISCV_PC] = read_mepc();
    words[UTVM_FAULT_RISCV_RA] = frame->ra;
    words[UTVM_FAULT_RISCV_SP] = frame->sp;
    words[UTVM_FAULT_RISCV_MTVAL] = read_mtval();
    words[UTVM_FAULT_RISCV_STACK] = (uint32_t)(uintptr_t)stack;
}

// 0: go on where the trap came from; else the task ends, with this status and one.
__attribute__((used)) uint32_t handle_trap(const struct trap_frame *frame) {
    const uint32_t cause = read_mcause();
    const bool is_task = (read_mstatus() & MSTATUS_MPP) == 0u || IS_AT_VECTORS();
    uint32_t status = UTVM_STATUS_FAULT;
    if (cause == CAUSE_TIMER || cause == CAUSE_EXTERNAL) {
        if (cause == CAUSE_TIMER) {
            timer_isr();
        } else {
            uart_rx_isr();
        }
        if (!is_passed) {
            return 0u;
        }
        is_passed = false;
        if (!is_task) {
            is_expired = true; // between two calls
            return 0u;
        }
        status = UTVM_STATUS_TIMEOUT;
    } else if (!is_task) {
        take_fault(&utvm_fault.fault, frame, utvm_task_stack_end);
        fault_record_and_reset();
    } else if (cause == CAUSE_CALL && read_mepc() == (uintptr_t)task_end_point) {
        return 1u + UTVM_STATUS_OK;
    }
    take_fault(&stopped, frame, utvm_task_stack);
    return 1u + status;
}

__attribute__((naked, aligned(4))) void trap_entry(void) {
    __asm volatile(WITH_CSR(
        "csrrw sp, mscratch, sp\n\t"
        "bnez sp, 1f\n\t"
        "csrr sp, mscratch\n" // of the runtime itself
        "1:\n\t"
        "addi sp, sp, -" FRAME "\n\t" FOR_EACH_REGISTER(
            STORE) "csrrw t0, mscratch, zero\n\t"
                   "sw t0, 64(sp)\n\t" STORE_FLOATS "mv a0, sp\n\t"
                   "call handle_trap\n\t"
                   "bnez a0, task_left\n\t" LOAD_FLOATS "csrr t0, mstatus\n\t"
                   "li t1, 0x1800\n\t" // MSTATUS_MPP
                   "and t0, t0, t1\n\t"
                   "bnez t0, 2f\n\t"
                   "addi t0, sp, " FRAME "\n\t"
                   "csrw mscratch, t0\n"
                   "2:\n\t" FOR_EACH_REGISTER(LOAD) "lw sp, 64(sp)\n\t"
                                                    "mret\n"

                                                    // Back from enter_task, with the status.
                                                    "task_left:\n\t"
                                                    "addi sp, sp, " FRAME "\n\t"
                                                    "addi a0, a0, -1\n\t" FOR_EACH_SAVED(LOAD)
                                                        RESTORE_FLOATS RESET_FLOATS
        "addi sp, sp, " SAVED "\n\t"
        "ret"));
}

// a0 is the call, a1 the top of its stack. Interrupts are off.
__attribute__((naked)) uint32_t enter_task(UNSEEN const struct utvm_call *call,
                                           UNSEEN uint8_t *stack_top) {
    __asm volatile(WITH_CSR("addi sp, sp, -" SAVED "\n\t" FOR_EACH_SAVED(STORE)
                                SAVE_FLOATS RESET_FLOATS RESET_VECTORS
                            "csrw mscratch, sp\n\t"
                            "addi tp, a1, -64\n\t" // variables of a thread, such as errno
                            "addi sp, a1, -80\n\t"
                            // arguments from the ninth on
                            "lw t0, 36(a0)\n\t"
                            "lw t1, 40(a0)\n\t"
                            "lw t2, 44(a0)\n\t"
                            "lw t3, 48(a0)\n\t"
                            "sw t0, 0(sp)\n\t"
                            "sw t1, 4(sp)\n\t"
                            "sw t2, 8(sp)\n\t"
                            "sw t3, 12(sp)\n\t"
                            "lw t0, 0(a0)\n\t"
                            "csrw mepc, t0\n\t"
                            "li t0, 0x1800\n\t" // MSTATUS_MPP: to user mode
                            "csrc mstatus, t0\n\t"
                            "la ra, leave_task\n\t"
                            "lw a7, 32(a0)\n\t"
                            "lw a6, 28(a0)\n\t"
                            "lw a5, 24(a0)\n\t"
                            "lw a4, 20(a0)\n\t"
                            "lw a3, 16(a0)\n\t"
                            "lw a2, 12(a0)\n\t"
                            "lw a1, 8(a0)\n\t"
                            "lw a0, 4(a0)\n\t"
                            "mret"));
}

// Where a task's function returns to. The call counts only at this place: one
// anywhere else is a fault.
__attribute__((naked, used)) void leave_task(void) {
    __asm volatile("fence\n"
                   ".global task_end_point\n"
                   "task_end_point:\n\t"
                   "ecall\n\t"
                   "unimp");
}
