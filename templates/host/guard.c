// A task that faults or does not end is stopped, and the process lives on.
//
// Tasks run on a stack of their own between two pages that nobody may touch, so
// neither an overflow nor a write beyond a task's frame reaches the runtime's
// frames. The two stacks take turns by setjmp and longjmp, which costs some 20
// nanoseconds a call and no system call. After a task was stopped its stack is
// begun anew.
//
// What is not guarded is the rest of the process' memory: a wild write that hits
// the runtime's own variables is as bad as ever.
//
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "guard.h"

// Of a task's stack, and of what lies on either side of it: a frame that is
// larger than that could step over.
#ifndef UTVM_TASK_STACK_BYTES
#define UTVM_TASK_STACK_BYTES 1048576u
#endif
#define NO_MANS_LAND_BYTES 1048576u
#define WARM_BYTES 32768u

// Signal handlers run here: the task's stack may be what broke.
#define SIGNAL_STACK_BYTES 65536u

// A task that waits uses no processor time; it is given this much longer.
#define GRACE_US 1000000
// A deadline that passed while no task ran passes again after this time.
#define AGAIN_US 1000

static const int fatal_signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};

enum outcome { RETURNED = 1, READY, FAULTED, EXPIRED };

// Where the runtime waits for the end of a call, and the task stack for one.
static jmp_buf home, stage;
static char *stack;
static volatile sig_atomic_t is_ready, is_running, is_expired;
static const struct utvm_call *current;
static struct utvm_fault stopped;

// The deadline, and both clocks when it was set.
static int64_t deadline_us, wall_us, processor_us;

static int64_t now_us(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void set_alarm(int64_t us) {
    struct itimerval alarm;
    memset(&alarm, 0, sizeof alarm);
    alarm.it_value.tv_sec = (time_t)(us / 1000000);
    alarm.it_value.tv_usec = (suseconds_t)(us % 1000000);
    setitimer(ITIMER_REAL, &alarm, NULL);
}

// On a busy computer time passes without the task: what counts is the
// processor's, unless the task waits for something.
static int64_t left_us(void) {
    int64_t by_processor = deadline_us - (now_us(CLOCK_PROCESS_CPUTIME_ID) - processor_us);
    int64_t by_wall = deadline_us + GRACE_US - (now_us(CLOCK_MONOTONIC) - wall_us);
    return by_processor < by_wall ? by_processor : by_wall;
}

// On the wire addresses have 32 bits; what lies above was not ours.
static uint32_t wire_address(uintptr_t address) {
    return address <= UINT32_MAX ? (uint32_t)address : UINT32_MAX;
}

static void note_place(int number, const siginfo_t *info, const ucontext_t *context) {
    uintptr_t pc = 0, lr = 0;
#if defined(__x86_64__)
    pc = (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    pc = (uintptr_t)context->uc_mcontext.pc;
    lr = (uintptr_t)context->uc_mcontext.regs[30];
#else
    (void)context;
#endif
    memset(&stopped, 0, sizeof stopped);
    stopped.architecture = UTVM_ARCHITECTURE_HOST;
    stopped.count = UTVM_FAULT_HOST_WORDS;
    stopped.words[UTVM_FAULT_HOST_SIGNAL] = (uint32_t)number;
    stopped.words[UTVM_FAULT_HOST_PC] = wire_address(pc);
    stopped.words[UTVM_FAULT_HOST_LR] = wire_address(lr);
    stopped.words[UTVM_FAULT_HOST_ADDRESS] = wire_address((uintptr_t)info->si_addr);
}

static void on_signal(int number, siginfo_t *info, void *context) {
    if (number == SIGALRM) {
        int64_t left = deadline_us ? left_us() : 0;
        if (left > 0) {
            set_alarm(left);
            return;
        }
        if (!is_running) {
            is_expired = deadline_us != 0;
            // It passes again until it is lifted: guard_call may have asked before.
            set_alarm(is_expired ? AGAIN_US : 0);
            return;
        }
    } else if (!is_running) {
        // The runtime itself: no way on. The signal comes again and ends all.
        static const char words[] = "utvm: the runtime itself faulted\n";
        ssize_t put = write(STDERR_FILENO, words, sizeof words - 1);
        (void)put;
        signal(number, SIG_DFL);
        return;
    }
    is_running = 0;
    note_place(number, info, context);
    // A handler that is left by a jump does not unblock by itself.
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    _longjmp(home, number == SIGALRM ? EXPIRED : FAULTED);
}

// The bottom frame of the task stack.
static void work(void) {
    if (_setjmp(stage) == 0) {
        _longjmp(home, READY);
    }
    // once more at each call: this frame stays what it was
    utvm_call_function(current);
    is_running = 0;
    _longjmp(home, RETURNED);
}

// Takes page faults now, so that they do not count as a task's time.
static void begin_stack(void) {
    memset(stack + UTVM_TASK_STACK_BYTES - WARM_BYTES, 0, WARM_BYTES);
    static ucontext_t context;
    if (_setjmp(home) == 0) {
        getcontext(&context);
        context.uc_stack.ss_sp = stack;
        context.uc_stack.ss_size = UTVM_TASK_STACK_BYTES;
        context.uc_link = NULL;
        makecontext(&context, work, 0);
        setcontext(&context);
    }
    is_ready = 1;
}

enum utvm_status guard_call(void *context, const struct utvm_call *call, struct utvm_fault *fault) {
    (void)context;
    if (is_expired) {
        return UTVM_STATUS_TIMEOUT;
    }
    if (!is_ready) {
        begin_stack();
    }
    current = call;
    int outcome = _setjmp(home);
    if (outcome == 0) {
        is_running = 1;
        _longjmp(stage, 1);
    }
    if (outcome == RETURNED) {
        return UTVM_STATUS_OK;
    }
    is_ready = 0;
    *fault = stopped;
    return outcome == EXPIRED ? UTVM_STATUS_TIMEOUT : UTVM_STATUS_FAULT;
}

void guard_deadline(void *context, uint32_t us) {
    (void)context;
    set_alarm(0);
    deadline_us = us;
    is_expired = 0;
    if (us) {
        if (!is_ready) {
            begin_stack();
        }
        wall_us = now_us(CLOCK_MONOTONIC);
        processor_us = now_us(CLOCK_PROCESS_CPUTIME_ID);
        set_alarm(us);
    }
}

int guard_start(void) {
    size_t size = UTVM_TASK_STACK_BYTES + 2 * NO_MANS_LAND_BYTES;
    char *reserved = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (reserved == MAP_FAILED) {
        return -1;
    }
    stack = reserved + NO_MANS_LAND_BYTES;
    if (mprotect(stack, UTVM_TASK_STACK_BYTES, PROT_READ | PROT_WRITE)) {
        return -1;
    }
    // an alarm outlives exec, which is how this process resets
    set_alarm(0);

    static char signal_stack[SIGNAL_STACK_BYTES];
    stack_t alternative;
    memset(&alternative, 0, sizeof alternative);
    alternative.ss_sp = signal_stack;
    alternative.ss_size = sizeof signal_stack;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    // No alarm while one is looked into.
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGALRM);
    int failed = sigaltstack(&alternative, NULL) || sigaction(SIGALRM, &action, NULL);
    for (size_t i = 0; i < sizeof fatal_signals / sizeof fatal_signals[0]; i++) {
        failed = failed || sigaction(fatal_signals[i], &action, NULL);
    }
    return failed ? -1 : 0;
}
