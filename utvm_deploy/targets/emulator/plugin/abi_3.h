// Version 3: QEMU 9.1 to 10. An instruction's bytes are copied by QEMU. Versions 4 and 5 only add
// functions; QEMU accepts a plugin of an older version down to its own minimum, which is 2.
//
// SPDX-License-Identifier: Apache-2.0

#define QEMU_PLUGIN_ABI 3

size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *, void *bytes, size_t size);

static inline void copy_instruction(const struct qemu_plugin_insn *insn, void *bytes, size_t size) {
    (void)qemu_plugin_insn_data(insn, bytes, size);
}
