// An image as a WebAssembly module without imports. The host calls its exports
// and reads its memory itself, so no command loop runs here.
//
// SPDX-License-Identifier: Apache-2.0
#include <stdint.h>

#include "utvm.h"

// Memory that the host lays out, in bytes; a plain number, because the
// assembler reads it too.
#ifndef UTVM_WORKSPACE_BYTES
#define UTVM_WORKSPACE_BYTES 1048576
#endif

// What the image says it is.
#ifndef UTVM_IMAGE_ID
#define UTVM_IMAGE_ID ""
#endif

extern uint8_t utvm_workspace[UTVM_WORKSPACE_BYTES];
extern const char utvm_image_id[UTVM_MAX_IMAGE_BYTES];
extern const uint32_t utvm_version;

uint8_t utvm_workspace[UTVM_WORKSPACE_BYTES] __attribute__((aligned(64)));

// A second symbol at its end.
#define STRING_(x) #x
#define STRING(x) STRING_(x)
__asm__(".globl utvm_workspace_end\n"
        ".set utvm_workspace_end, utvm_workspace + " STRING(UTVM_WORKSPACE_BYTES) "\n");

const char utvm_image_id[UTVM_MAX_IMAGE_BYTES] = UTVM_IMAGE_ID;
const uint32_t utvm_version = UTVM_VERSION;
