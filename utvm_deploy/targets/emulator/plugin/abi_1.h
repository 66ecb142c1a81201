// Version 1: QEMU 7 and 8. An instruction's bytes are handed out by reference.
//
// SPDX-License-Identifier: Apache-2.0

#define QEMU_PLUGIN_ABI 1

const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);

static inline void copy_instruction(const struct qemu_plugin_insn *insn, void *bytes, size_t size) {
    __builtin_memcpy(bytes, qemu_plugin_insn_data(insn), size);
}
