// The part of QEMU's TCG plugin interface that this plugin uses, declared anew: distributions do
// not ship the header. What differs between its versions stands in abi_N.h.
//
// Interface: QEMU, docs/devel/tcg-plugins and include/qemu/qemu-plugin.h, versions 7.2 to 10.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef UTVM_QEMU_PLUGIN_ABI_H
#define UTVM_QEMU_PLUGIN_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

typedef struct qemu_info_t {
    const char *target_name;
    struct {
        int min;
        int cur;
    } version;
    bool system_emulation;
    struct {
        int smp_vcpus;
        int max_vcpus;
    } system;
} qemu_info_t;

enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS = 0 };
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_RW = 3 };

typedef void qemu_plugin_translated(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void qemu_plugin_executed(unsigned vcpu, void *data);
typedef void qemu_plugin_accessed(unsigned vcpu, qemu_plugin_meminfo_t, uint64_t address,
                                  void *data);
typedef void qemu_plugin_ended(qemu_plugin_id_t, void *data);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, qemu_plugin_translated *);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, qemu_plugin_executed *,
                                          enum qemu_plugin_cb_flags, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, qemu_plugin_executed *,
                                            enum qemu_plugin_cb_flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, qemu_plugin_accessed *,
                                      enum qemu_plugin_cb_flags, enum qemu_plugin_mem_rw,
                                      void *data);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, qemu_plugin_ended *, void *data);
unsigned qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *);

// Each version says its number as QEMU_PLUGIN_ABI and how to copy an instruction's bytes.
#if UTVM_QEMU_ABI == 1
#include "abi_1.h"
#elif UTVM_QEMU_ABI == 2
#include "abi_2.h"
#elif UTVM_QEMU_ABI == 3
#include "abi_3.h"
#else
#error "UTVM_QEMU_ABI must name a version that has an abi_N.h"
#endif

__attribute__((visibility("default"))) extern int qemu_plugin_version;
__attribute__((visibility("default"))) int
qemu_plugin_install(qemu_plugin_id_t, const qemu_info_t *, int argc, char **argv);

#endif
