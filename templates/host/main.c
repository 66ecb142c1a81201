// The runtime as a POSIX process: standard input and output are the link,
// standard error is for last words. Ends when standard input closes.
//
// Link it non-PIE (-no-pie): the workspace and all functions then lie below
// 4 GiB, where 32-bit wire addresses reach.
//
// SPDX-License-Identifier: Apache-2.0
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "guard.h"
#include "utvm.h"

// Memory that the host PC lays out, in bytes; a plain number, because the
// assembler reads it too.
#ifndef UTVM_WORKSPACE_BYTES
#define UTVM_WORKSPACE_BYTES 1048576
#endif

// Payload of one exchange. A pipe holds 64 KiB: one frame always fits.
#ifndef UTVM_PAYLOAD_BYTES
#define UTVM_PAYLOAD_BYTES 32768
#endif

// What HELLO reports as the image's id.
#ifndef UTVM_IMAGE_ID
#define UTVM_IMAGE_ID ""
#endif

// The largest page of the systems that this runs on: rights are given by page.
#define PAGE_BYTES 65536u

// Modules run from it, at fixed addresses that a direct call reaches from
// anywhere in the program.
extern uint8_t utvm_workspace[UTVM_WORKSPACE_BYTES];
uint8_t utvm_workspace[UTVM_WORKSPACE_BYTES] __attribute__((aligned(PAGE_BYTES)));

// A second symbol at its end, for whoever reads the ELF.
#define STRING_(x) #x
#define STRING(x) STRING_(x)
__asm__(".globl utvm_workspace_end\n"
        ".set utvm_workspace_end, utvm_workspace + " STRING(UTVM_WORKSPACE_BYTES) "\n");

// The program's code, from GNU ld's default script.
extern const char __executable_start[];
extern const char etext[];

struct port {
    const char *program;
    // The last write took nothing: wait for room, not for requests.
    int is_full;
};

static void last_words(const char *what) {
    fprintf(stderr, "utvm: %s: %s\n", what, strerror(errno));
}

/// The port ///

// Not zero from the port means for good, so errors that pass are no errors.
static int is_passing(void) {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static int32_t port_read(void *context, uint8_t *data, uint32_t size) {
    (void)context;
    ssize_t got = read(STDIN_FILENO, data, size);
    if (got < 0) {
        return is_passing() ? 0 : -1;
    }
    // the other end is closed?
    return got == 0 ? -1 : (int32_t)got;
}

static int32_t port_write(void *context, const uint8_t *data, uint32_t size) {
    struct port *port = context;
    ssize_t put = write(STDOUT_FILENO, data, size);
    if (put < 0) {
        port->is_full = is_passing();
        return port->is_full ? 0 : -1;
    }
    port->is_full = 0;
    return (int32_t)put;
}

static uint64_t port_ticks(void *context) {
    (void)context;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// The whole program anew: nothing in memory outlives it, as on a board.
static void port_reset(void *context) {
    struct port *port = context;
    char *const argv[] = {(char *)(uintptr_t)port->program, NULL};
    execv("/proc/self/exe", argv);
    execv(port->program, argv);
    last_words("cannot start itself again");
    _exit(1);
}

static void port_code_written(void *context, const void *address, uint32_t size) {
    (void)context;
    char *begin = (char *)(uintptr_t)address;
    __builtin___clear_cache(begin, begin + size);
}

static uint32_t boot_nonce(void) {
    uint32_t nonce = 0;
    int fd = open("/dev/urandom", O_RDONLY);
    ssize_t got = fd < 0 ? -1 : read(fd, &nonce, sizeof nonce);
    if (fd >= 0) {
        close(fd);
    }
    if (got != (ssize_t)sizeof nonce) {
        // the low bits of the time differ between boots well enough
        nonce = (uint32_t)port_ticks(NULL) ^ (uint32_t)getpid() << 16;
    }
    return nonce;
}

// Sleep until there is something to do. Returns 0 if there never will be.
static int wait_for_work(const struct port *port) {
    struct pollfd fds[2] = {
        // no events: only the hang-up is of interest while output is full
        {STDIN_FILENO, (short)(port->is_full ? 0 : POLLIN), 0},
        {STDOUT_FILENO, (short)(port->is_full ? POLLOUT : 0), 0},
    };
    if (poll(fds, 2, -1) < 0) {
        return errno == EINTR;
    }
    if (port->is_full && fds[0].revents) {
        return 0;
    }
    return !(fds[1].revents & (POLLERR | POLLNVAL));
}

static int set_nonblocking(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 ? -1 : fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

int main(int argc, char **argv) {
    (void)argc;
    static uint8_t rx[UTVM_RX_BYTES(UTVM_PAYLOAD_BYTES)];
    static uint8_t tx[UTVM_TX_BYTES(UTVM_PAYLOAD_BYTES)];
    const uint8_t *workspace_end = utvm_workspace + UTVM_WORKSPACE_BYTES;
    uint32_t workspace_rights = UTVM_RIGHT_READ | UTVM_RIGHT_WRITE;
    // a system may forbid it; then there are no modules, and all else works
    if (!mprotect(utvm_workspace, UTVM_WORKSPACE_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC)) {
        workspace_rights |= UTVM_RIGHT_EXECUTE;
    }
    const struct utvm_region regions[] = {
        {utvm_workspace, workspace_end, workspace_rights},
        {__executable_start, etext, UTVM_RIGHT_READ | UTVM_RIGHT_EXECUTE},
    };
    struct port port = {argv[0], 0};
    const struct utvm_config config = {
        .context = &port,
        .read = port_read,
        .write = port_write,
        .ticks = port_ticks,
        .reset = port_reset,
        .call = guard_call,
        .deadline = guard_deadline,
        .code_written = port_code_written,
        .rx_buffer = rx,
        .rx_size = sizeof rx,
        .tx_buffer = tx,
        .tx_size = sizeof tx,
        .regions = regions,
        .region_count = sizeof regions / sizeof regions[0],
        .workspace = utvm_workspace,
        .workspace_end = workspace_end,
        .ticks_per_second = 1000000000,
        .tick_unit = UTVM_TICK_UNIT_NANOSECONDS,
        .image = UTVM_IMAGE_ID,
    };

    // a host that went away is seen by write
    signal(SIGPIPE, SIG_IGN);
    if (set_nonblocking(STDIN_FILENO) || set_nonblocking(STDOUT_FILENO)) {
        last_words("cannot use standard input and output");
        return 1;
    }
    if (guard_start()) {
        last_words("cannot guard tasks");
        return 1;
    }

    static utvm_t utvm;
    int err = utvm_init(&utvm, &config, boot_nonce());
    if (err) {
        fprintf(stderr, "utvm: %s\n", utvm.error);
        return 1;
    }
    while (err >= 0) {
        err = utvm_poll(&utvm);
        if (err == 0 && !wait_for_work(&port)) {
            break;
        }
    }
    return 0;
}
