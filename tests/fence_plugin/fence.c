// The fence: a QEMU plugin that reports every load and store of one function that leaves the memory
// which that function was given.
//
//     host: arm ──▶ file ◀──▶ plugin: entry reached ─▶ each access in the window ─▶ end reached
//
// Host and plugin share one mapped file (targets/emulator/fence.py writes it). The host changes it
// only while the guest waits for a command, so nothing is locked.
//
// SPDX-License-Identifier: Apache-2.0

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fence_table.h"
#include "qemu_plugin_abi.h"

int qemu_plugin_version = QEMU_PLUGIN_ABI;

struct stretch {
    uint32_t start;
    uint32_t size;
};

struct crossing {
    uint32_t pc;
    uint32_t address;
    uint32_t size;
    uint32_t is_store;
};

struct shared {
    uint32_t magic;
    uint32_t generation;   // changes whenever the host writes; 0: nothing is watched
    uint32_t entry;        // where the watched function begins
    uint32_t end;          // where it returns to
    struct stretch window; // accesses elsewhere are not looked at
    uint32_t allowed_count;
    uint32_t access_count;   // accesses in the window
    uint32_t crossing_count; // of these, outside of what is allowed
    struct stretch allowed[FENCE_ALLOWED_MAX];
    struct crossing crossings[FENCE_CROSSINGS_MAX]; // the first of each instruction
};

// The callbacks' arguments are spent on addresses.
static struct shared *shared;
static uint32_t watched; // the generation whose function runs; 0: none

static void on_block(unsigned vcpu, void *data) {
    (void)vcpu;
    const uint32_t pc = (uint32_t)(uintptr_t)data;
    if (pc == shared->entry) {
        watched = shared->generation;
    } else if (pc == shared->end) {
        watched = 0;
    }
}

static bool is_in(const struct stretch *stretch, uint32_t address, uint32_t size) {
    const uint32_t at = address - stretch->start;
    return at < stretch->size && size <= stretch->size - at;
}

static void note(uint32_t pc, uint32_t address, uint32_t size, bool is_store) {
    uint32_t n = 0;
    while (n < FENCE_CROSSINGS_MAX && shared->crossings[n].size) {
        if (shared->crossings[n++].pc == pc) {
            return;
        }
    }
    if (n < FENCE_CROSSINGS_MAX) {
        shared->crossings[n] = (struct crossing){pc, address, size, is_store};
    }
}

static void on_access(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t virtual, void *data) {
    (void)vcpu;
    const uint32_t address = (uint32_t)virtual;
    const uint32_t size = 1u << qemu_plugin_mem_size_shift(info);
    const uint32_t last = address + size - 1u;
    if (!watched || watched != shared->generation ||
        (!is_in(&shared->window, address, 1) && !is_in(&shared->window, last, 1))) {
        return;
    }
    shared->access_count++;
    for (uint32_t n = 0; n < shared->allowed_count; ++n) {
        if (is_in(&shared->allowed[n], address, size)) {
            return;
        }
    }
    shared->crossing_count++;
    note((uint32_t)(uintptr_t)data, address, size, qemu_plugin_mem_is_store(info));
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    (void)id;
    const size_t count = qemu_plugin_tb_n_insns(tb);
    for (size_t n = 0; n < count; ++n) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, n);
        void *pc = (void *)(uintptr_t)qemu_plugin_insn_vaddr(insn);
        if (!n) {
            qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, QEMU_PLUGIN_CB_NO_REGS, pc);
        }
        qemu_plugin_register_vcpu_mem_cb(insn, on_access, QEMU_PLUGIN_CB_NO_REGS,
                                         QEMU_PLUGIN_MEM_RW, pc);
    }
}

static struct shared *map(const char *path) {
    const int fd = open(path, O_RDWR);
    if (fd < 0) {
        return NULL;
    }
    void *found = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    return found == MAP_FAILED ? NULL : found;
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv) {
    static const char key[] = "shared=";
    (void)info;
    if (argc != 1 || strncmp(argv[0], key, sizeof key - 1)) {
        fprintf(stderr, "fence: its one argument is shared=PATH\n");
        return -1;
    }
    const char *path = argv[0] + sizeof key - 1;
    shared = map(path);
    if (!shared || shared->magic != FENCE_MAGIC) {
        fprintf(stderr, "fence: %s is not the file that it shares with the host\n", path);
        return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
    return 0;
}
