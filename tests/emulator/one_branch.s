@ One loop twice, once with a page of memory ending in it: between markers, 100 times two rounds.
@
@ SPDX-License-Identifier: Apache-2.0
    .syntax unified
    .thumb
    .section .text
    .word 0x20001000
    .word start + 1

    .macro marked_loop
    isb
    dbg #12
    isb
    dbg #13
    isb
    movs r0, #100
    .endm

    .thumb_func
start:
    marked_loop
    b whole
    .balign 4096
whole:
1:  movs r1, #2
2:  adds r2, r2, #1
    adds r3, r3, #1
    subs r1, r1, #1
    bne 2b
    subs r0, r0, #1
    bne 1b
    dbg #13
    isb
    marked_loop
    b parted
    .balign 4096
    .space 4094, 0
parted:
1:  movs r1, #2
2:  adds r2, r2, #1 @ begins a page
    adds r3, r3, #1
    subs r1, r1, #1
    bne 2b
    subs r0, r0, #1
    bne 1b
    dbg #13
    isb
    movs r0, #0x18
    ldr r1, =0x20026
    bkpt 0xab
