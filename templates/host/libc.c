// Functions of the C library for modules. A module is linked against this
// image's symbols, and the library's own have no fixed address in a process
// that loads it dynamically; utvm_libc_NAME has one and is NAME to modules.
//
// All lie in one section, so that -Wl,-u,utvm_libc_memcpy keeps all.
//
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT(type, name, parameters, arguments)                                                  \
    type utvm_libc_##name parameters;                                                              \
    __attribute__((section(".text.utvm_libc"))) type utvm_libc_##name parameters {                 \
        return name arguments;                                                                     \
    }

EXPORT(void *, memcpy, (void *to, const void *from, size_t size), (to, from, size))
EXPORT(void *, memmove, (void *to, const void *from, size_t size), (to, from, size))
EXPORT(void *, memset, (void *to, int byte, size_t size), (to, byte, size))
EXPORT(int, memcmp, (const void *a, const void *b, size_t size), (a, b, size))
EXPORT(size_t, strlen, (const char *text), (text))
EXPORT(int, abs, (int x), (x))

#define EXPORT_1(name)                                                                             \
    EXPORT(float, name##f, (float x), (x))                                                         \
    EXPORT(double, name, (double x), (x))
#define EXPORT_2(name)                                                                             \
    EXPORT(float, name##f, (float x, float y), (x, y))                                             \
    EXPORT(double, name, (double x, double y), (x, y))

EXPORT_1(exp)
EXPORT_1(log)
EXPORT_1(sqrt)
EXPORT_1(tanh)
EXPORT_1(sin)
EXPORT_1(cos)
EXPORT_1(floor)
EXPORT_1(ceil)
EXPORT_1(round)
EXPORT_1(trunc)
EXPORT_1(rint)
EXPORT_1(fabs)
EXPORT_2(pow)
EXPORT_2(fmod)
EXPORT_2(fmin)
EXPORT_2(fmax)
EXPORT(long, lroundf, (float x), (x))
EXPORT(long, lround, (double x), (x))
EXPORT(long, lrintf, (float x), (x))
EXPORT(long, lrint, (double x), (x))
