// EXECUTE: check a whole list of tasks, then run it, timing every call.
//
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "utvm_private.h"

// Functions are called with all words, whatever their number of parameters:
// in the calling conventions of Arm and of the hosts the caller puts arguments
// away, and those that nobody takes do no harm.
typedef void utvm_function(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                           uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

// On Thumb, bit 0 of a function's address says so and is no part of where it
// lies; ELF symbols have it, link maps do not.
#ifdef __thumb__
#define FUNCTION_BIT 1u
#else
#define FUNCTION_BIT 0u
#endif

// Smallest function: one Thumb instruction.
#define FUNCTION_BYTES 2u

// The longest fault record fits the smallest reply.
typedef char utvm_check_fault[UTVM_OUTCOME_BYTES + UTVM_FAULT_BYTES + 4 * UTVM_MAX_FAULT_WORDS <=
                                      UTVM_MIN_PAYLOAD_BYTES
                                  ? 1
                                  : -1];

static uint32_t task_bytes(const uint8_t *task) {
    return UTVM_TASK_BYTES + 4 * utvm_get16(task + UTVM_TASK_ARGC);
}

// Make the refusal, or return 1 if nothing stands against running the tasks.
static int check(utvm_t *utvm, struct utvm_request request) {
    uint32_t room = utvm_reply_max(utvm) - UTVM_EXECUTE_REPLY_BYTES;
    uint32_t calls_left = room / 8;
    uint32_t index = 0;
    for (uint32_t at = 0; at < request.length; index++) {
        const uint8_t *task = request.payload + at;
        uint32_t left = request.length - at;
        if (left < UTVM_TASK_BYTES) {
            utvm_outcome(utvm, UTVM_STATUS_LENGTH, index, left);
            return 0;
        }
        uint32_t argc = utvm_get16(task + UTVM_TASK_ARGC);
        if (argc > UTVM_MAX_ARGUMENTS) {
            utvm_outcome(utvm, UTVM_STATUS_ARGUMENTS, index, argc);
            return 0;
        }
        if (left < task_bytes(task)) {
            utvm_outcome(utvm, UTVM_STATUS_LENGTH, index, left);
            return 0;
        }
        uint32_t repeat = utvm_get16(task + UTVM_TASK_REPEAT);
        if (repeat > calls_left) {
            utvm_outcome(utvm, UTVM_STATUS_TOO_LARGE, index, room);
            return 0;
        }
        calls_left -= repeat;
        uint32_t function = utvm_get32(task + UTVM_TASK_FUNCTION);
        if (!utvm_region_of(utvm, function & ~FUNCTION_BIT, FUNCTION_BYTES, UTVM_RIGHT_EXECUTE)) {
            utvm_outcome(utvm, UTVM_STATUS_ADDRESS, index, function);
            return 0;
        }
        at += task_bytes(task);
    }
    return 1;
}

void utvm_on_execute(utvm_t *utvm, struct utvm_request request) {
    if (!check(utvm, request)) {
        return;
    }
    utvm->task_at = 0;
    utvm->task_index = 0;
    utvm_outcome(utvm, UTVM_STATUS_ACCEPTED, 0, 0);
    utvm->state_after_send = UTVM_STATE_RUN;
}

void utvm_call_function(const struct utvm_call *call) {
    utvm_function *function = (utvm_function *)call->function;
    const uintptr_t *a = call->arguments;
    function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
}

static enum utvm_status make_call(const struct utvm_config *config, const struct utvm_call *call,
                                  struct utvm_fault *fault) {
    if (config->call) {
        return config->call(config->context, call, fault);
    }
    utvm_call_function(call);
    return UTVM_STATUS_OK;
}

// The result is that a task did not end by itself.
static void report_fault(utvm_t *utvm, enum utvm_status status, uint32_t call_index,
                         const struct utvm_fault *fault) {
    utvm_outcome(utvm, status, utvm->task_index, call_index);
    uint8_t *record = utvm_reply(utvm) + utvm->reply_length;
    uint32_t count = fault->count < UTVM_MAX_FAULT_WORDS ? fault->count : UTVM_MAX_FAULT_WORDS;
    utvm_put16(record + UTVM_FAULT_ARCHITECTURE, fault->architecture);
    utvm_put16(record + UTVM_FAULT_COUNT, count);
    for (uint32_t i = 0; i < count; i++) {
        utvm_put32(record + UTVM_FAULT_BYTES + 4 * i, fault->words[i]);
    }
    utvm->reply_length += UTVM_FAULT_BYTES + 4 * count;
}

// All calls of one task. Returns 0 if one of them did not end by itself: then
// the reply says so, and nothing else.
static int run_task(utvm_t *utvm, const struct utvm_call *call, uint32_t repeat) {
    const struct utvm_config *config = utvm->config;
    uint8_t *out = utvm_reply(utvm) + utvm->reply_length;
    // Once, and not for each call: memset would take lines of a small
    // instruction cache that the timed call needs.
    struct utvm_fault fault;
    memset(&fault, 0, sizeof fault);
    for (uint32_t i = 0; i < repeat; i++) {
        uint64_t begin = config->ticks(config->context);
        enum utvm_status status = make_call(config, call, &fault);
        uint64_t ticks = config->ticks(config->context) - begin;
        if (status != UTVM_STATUS_OK) {
            report_fault(utvm, status, i, &fault);
            return 0;
        }
        utvm_put32(out, (uint32_t)ticks);
        utvm_put32(out + 4, (uint32_t)(ticks >> 32));
        out += 8;
        utvm->reply_length += 8;
        UTVM_ASSERT(utvm->reply_length <= utvm_reply_max(utvm));
    }
    return 1;
}

int utvm_execute_step(utvm_t *utvm, struct utvm_request request) {
    const struct utvm_config *config = utvm->config;
    // first step: ACCEPTED is out, so the buffer is free for the result
    if (utvm->task_at == 0) {
        utvm_outcome(utvm, UTVM_STATUS_OK, 0, 0);
    }
    if (utvm->task_at == request.length) {
        return 1;
    }

    const uint8_t *task = request.payload + utvm->task_at;
    UTVM_ASSERT(utvm->task_at + task_bytes(task) <= request.length);
    uint32_t argc = utvm_get16(task + UTVM_TASK_ARGC);
    struct utvm_call call;
    memset(&call, 0, sizeof call);
    call.function = utvm_get32(task + UTVM_TASK_FUNCTION) | FUNCTION_BIT;
    for (uint32_t i = 0; i < argc; i++) {
        call.arguments[i] = utvm_get32(task + UTVM_TASK_BYTES + 4 * i);
    }

    uint32_t deadline_us = config->deadline ? utvm_get32(task + UTVM_TASK_DEADLINE) : 0;
    if (deadline_us) {
        config->deadline(config->context, deadline_us);
    }
    int ended = run_task(utvm, &call, utvm_get16(task + UTVM_TASK_REPEAT));
    if (deadline_us) {
        config->deadline(config->context, 0);
    }
    utvm->task_index++;
    utvm->task_at += task_bytes(task);
    return !ended || utvm->task_at == request.length;
}
