// Version 2: QEMU 9.0. For what this plugin calls it is version 1 under another number.
//
// SPDX-License-Identifier: Apache-2.0

#define QEMU_PLUGIN_ABI 2

const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);

static inline void copy_instruction(const struct qemu_plugin_insn *insn, void *bytes, size_t size) {
    __builtin_memcpy(bytes, qemu_plugin_insn_data(insn), size);
}
