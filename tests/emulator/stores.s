@ Stores that miss and stores that do not. Four markers part each measurement from the next: one
@ before it, one behind it, and what it prepares lies outside of them.
@
@ SPDX-License-Identifier: Apache-2.0
    .syntax unified
    .thumb
    .section .text
    .word 0x20001000
    .word start + 1

    .macro forget
    isb
    dbg #12
    isb
    .endm

    .macro mark
    isb
    dbg #13
    isb
    .endm

    @ Sixteen stores, each to a line of its own.
    .macro lines
    .set offset, 0
    .rept 16
    str r2, [r0, #offset]
    .set offset, offset + 32
    .endr
    .endm

    .thumb_func
start:
    ldr r0, =0x20020000 @ cached
    ldr r1, =0x20030000
    ldr r4, =0x20000100 @ tightly coupled
    movs r2, #0

    @ 0: sixteen lines allocated
    forget
    mark
    lines
    mark

    @ 1: the same lines again
    mark
    lines
    mark

    @ 2: tightly coupled memory
    mov r5, r0
    mov r0, r4
    mark
    lines
    mark
    mov r0, r5

    @ 3: as many stores to one line as the store buffer holds
    forget
    mark
    str r2, [r0]
    str r2, [r0, #4]
    str r2, [r0, #8]
    str r2, [r0, #12]
    str r2, [r0, #16]
    mark

    @ 4: sixteen words of two lines
    forget
    mark
    .set offset, 0
    .rept 16
    str r2, [r0, #offset]
    .set offset, offset + 4
    .endr
    mark

    @ 5: a load that misses waits for the linefill of a store
    forget
    mark
    str r2, [r0]
    ldr r3, [r1]
    mark

    @ 6: forgotten in between
    forget
    str r2, [r0]
    forget
    mark
    ldr r3, [r1]
    mark

    @ 7: the load reads what was allocated
    forget
    mark
    str r2, [r0]
    ldr r3, [r0, #4]
    mark

    @ 8: one store over the end of a line
    forget
    mark
    str r2, [r0, #30]
    mark

    movs r0, #0x18
    ldr r1, =0x20026
    bkpt 0xab
