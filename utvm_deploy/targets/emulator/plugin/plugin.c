// The QEMU plugin: hands what QEMU translates and executes to the model.
//
// SPDX-License-Identifier: Apache-2.0

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counters_table.h"
#include "options.h"
#include "qemu_plugin_abi.h"
#include "report.h"

int qemu_plugin_version = QEMU_PLUGIN_ABI;

// QEMU translates at most this many instructions at a time.
#define BLOCK_INSTRUCTIONS_MAX 512

// The callbacks' arguments are spent on the block or the access, so these are of the file.
static struct model model;
static struct options options;
static uint64_t *snapshots;
static uint64_t *guest_counters; // where the guest reads, in this process

static void on_block(unsigned vcpu, void *data) {
    (void)vcpu;
    model_enter(&model, data);
}

static void on_access(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
    (void)vcpu;
    (void)info;
    model_access(&model, data, (uint32_t)address);
}

static void on_word(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
    (void)vcpu;
    (void)info;
    model_split(&model, data, (uint32_t)address);
}

static void on_marker(unsigned vcpu, void *data) {
    (void)vcpu;
    (void)data;
    uint64_t values[COUNTER_COUNT];
    report_counters(&model, values);
    if (guest_counters) {
        memcpy(guest_counters, values, sizeof values);
    }
    if (snapshots) {
        report_snapshot(snapshots, values);
    }
}

static void on_forget(unsigned vcpu, void *data) {
    (void)vcpu;
    (void)data;
    model_forget(&model);
}

static void on_end(qemu_plugin_id_t id, void *data) {
    (void)id;
    (void)data;
    if (options.report && !report_write(&model, options.report, options.hot)) {
        fprintf(stderr, "cycle model: cannot write the report %s\n", options.report);
    }
}

// Code in the memory that also holds the counters tells where that memory lies in this process.
static void find_guest_counters(uint32_t address, const struct qemu_plugin_insn *insn) {
    if (guest_counters || !options.counters ||
        address - options.window.address >= options.window.size) {
        return;
    }
    char *here = qemu_plugin_insn_haddr(insn);
    if (here) {
        here += (int64_t)options.counters - (int64_t)address;
        guest_counters = (uint64_t *)(void *)here;
    }
}

static unsigned read_code(const struct qemu_plugin_tb *tb, uint16_t *halfwords) {
    size_t count = qemu_plugin_tb_n_insns(tb);
    if (count > BLOCK_INSTRUCTIONS_MAX) {
        count = BLOCK_INSTRUCTIONS_MAX;
    }
    for (size_t n = 0; n < count; ++n) {
        const struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, n);
        uint16_t *code = &halfwords[2 * n];
        // QEMU 7.2 gives the last instruction of a page four bytes even if it has two.
        copy_instruction(insn, &code[0], 2);
        code[1] = 0;
        if (model.blocks.decoder->size(code[0]) == 4) {
            copy_instruction(insn, code, 4);
        }
    }
    return (unsigned)count;
}

static bool is_signal(const uint16_t *code, const uint16_t *signal) {
    return code[0] == signal[0] && code[1] == signal[1];
}

static void on_each_access(struct qemu_plugin_insn *insn, qemu_plugin_accessed *then,
                           struct access *access) {
    qemu_plugin_register_vcpu_mem_cb(insn, then, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
                                     access);
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    static uint16_t halfwords[2 * BLOCK_INSTRUCTIONS_MAX];
    (void)id;
    const unsigned count = read_code(tb, halfwords);
    if (!count) {
        return;
    }
    const uint32_t address = (uint32_t)qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0));
    find_guest_counters(address, qemu_plugin_tb_get_insn(tb, 0));
    struct block *block = block_find(&model.blocks, address, halfwords, count);
    if (!block) {
        fprintf(stderr, "cycle model: out of memory\n");
        abort();
    }
    model_place(&model, block);
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, QEMU_PLUGIN_CB_NO_REGS, block);
    for (unsigned n = 0; n < count; ++n) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, n);
        const uint16_t *code = &halfwords[2 * n];
        struct access *access = &block->accesses[n];
        if (is_signal(code, model.blocks.decoder->mark)) {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_marker, QEMU_PLUGIN_CB_NO_REGS, NULL);
        } else if (is_signal(code, model.blocks.decoder->forget)) {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_forget, QEMU_PLUGIN_CB_NO_REGS, NULL);
        }
        if (model.data.ways && access->bytes) {
            on_each_access(insn, on_access, access);
        } else if (model.parameters.timing->split_access_cycles && access->bytes > 1) {
            on_each_access(insn, on_word, access);
        }
    }
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv) {
    model.blocks.decoder = decoder_for(info->target_name);
    if (!model.blocks.decoder || !info->system_emulation) {
        fprintf(stderr, "cycle model: it is for qemu-system-arm and -riscv32, this is for %s\n",
                info->target_name);
        return -1;
    }
    if (info->system.max_vcpus > 1 && info->system.smp_vcpus > 1) {
        fprintf(stderr, "cycle model: it follows one core, this machine has %d\n",
                info->system.smp_vcpus);
        return -1;
    }
    if (!options_read(&model, &options, argc, argv) || !model_start(&model)) {
        return -1;
    }
    if (options.snapshots && !(snapshots = report_open_snapshots(options.snapshots))) {
        fprintf(stderr, "cycle model: cannot write the snapshots %s\n", options.snapshots);
        return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
    qemu_plugin_register_atexit_cb(id, on_end, NULL);
    return 0;
}
