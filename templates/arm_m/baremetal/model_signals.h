// What speaks to an emulator's cycle model: dbg, which does nothing anywhere
// else, between barriers that keep what is timed on its side of it.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef MODEL_SIGNALS_H
#define MODEL_SIGNALS_H

#define MODEL_COUNTS() __asm__ volatile("isb\n\tdbg #13\n\tisb" ::: "memory")
#define MODEL_FORGETS() __asm__ volatile("isb\n\tdbg #12\n\tisb" ::: "memory")

#endif
