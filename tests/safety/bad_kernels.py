"""Kernels that go wrong in every way there is, as C for the image of a test."""

from __future__ import annotations

SOURCE = """\
#include "tiny.h"
void tiny_run_layer(uint32_t index, uint8_t *arena) {
    arena[index] = (uint8_t)(arena[index] + 1u);
}
void tiny_run(uint8_t *arena) {
    tiny_run_layer(0u, arena);
}
/* With tiny_run's name they are kept in the image; volatile keeps them as written. */
#define KERNEL __attribute__((used, noinline, section(".text.tiny_run")))
void good_add(uint8_t *data, uint32_t size, uint32_t more);
void good_spin(uint32_t turns);
void bad_null_call(void);
void bad_read(uint32_t address);
void bad_write(uint32_t address);
void bad_undefined(void);
void bad_divide(uint32_t divisor, uint32_t *out);
uint32_t bad_recurse(uint32_t depth);
void bad_huge_frame(uint32_t *out);
void bad_forever(void);
void bad_jump_to_data(uint32_t address);
void bad_smash(uint32_t size);
void bad_sleep(void);
void bad_float(uint32_t address, float *out);
void bad_protection(void);
void good_float(float *out);

KERNEL void good_add(uint8_t *data, uint32_t size, uint32_t more) {
    for (uint32_t i = 0u; i < size; i++) {
        data[i] = (uint8_t)(data[i] + more);
    }
}
KERNEL void good_spin(uint32_t turns) {
    for (volatile uint32_t i = 0u; i < turns; i++) {
    }
}
KERNEL void bad_null_call(void) {
    void (*volatile function)(void) = 0;
    function();
}
KERNEL void bad_read(uint32_t address) {
    (void)*(volatile uint32_t *)(uintptr_t)address;
}
KERNEL void bad_write(uint32_t address) {
    *(volatile uint32_t *)(uintptr_t)address = 0x600df00du;
}
KERNEL void bad_undefined(void) {
#if defined(__arm__)
    __asm volatile("udf #1");
#elif defined(__x86_64__)
    __asm volatile("ud2");
#else
    __builtin_trap();
#endif
}
KERNEL void bad_divide(uint32_t divisor, uint32_t *out) {
    volatile uint32_t d = divisor;
    *out = 1000u / d;
}
KERNEL uint32_t bad_recurse(uint32_t depth) {
    volatile uint32_t frame[16] = {depth};
    return depth == 0u ? 0u : bad_recurse(depth - 1u) + frame[0];
}
/* One frame that is larger than the whole stack, used from its far end. */
KERNEL void bad_huge_frame(uint32_t *out) {
    volatile uint8_t frame[1572864];
    frame[0] = 1u;
    *out = frame[0];
}
KERNEL void bad_forever(void) {
    for (volatile uint32_t i = 0u;; i++) {
    }
}
KERNEL void bad_jump_to_data(uint32_t address) {
    volatile uint32_t data[4] = {0xbf00bf00u, 0xbf00bf00u, 0xbf00bf00u, 0xbf00bf00u};
    void (*volatile function)(void) =
        (void (*)(void))(address ? (uintptr_t)address : (uintptr_t)data | 1u);
    function();
}
/* Overwrites what is above its frame: its return address, then everything to the stack's top. */
KERNEL void bad_smash(uint32_t size) {
    volatile uint8_t frame[8];
    volatile uint8_t *volatile at = frame;
    while (size--) {
        *at++ = 0xf1u;
    }
#if defined(__riscv)
    __asm volatile("" : : : "ra"); /* so that it is in the frame */
#endif
}
KERNEL void bad_sleep(void) {
#if defined(__arm__)
    for (;;) {
        __asm volatile("cpsid i\\n\\twfi");
    }
#else
    bad_forever();
#endif
}
KERNEL void bad_protection(void) {
#if defined(__riscv)
    __asm volatile(".option push\\n\\t.option arch, +zicsr\\n\\t"
                   "csrw pmpcfg0, zero\\n\\t.option pop");
#else
    bad_undefined();
#endif
}
KERNEL void good_float(float *out) {
    volatile float x = 1.5f;
    *out = x * x + 0.25f;
}
KERNEL void bad_float(uint32_t address, float *out) {
    volatile float x = 1.5f;
    *out = x * x + 0.25f;
    *(volatile float *)(uintptr_t)address = *out;
    *out = x;
}
"""
