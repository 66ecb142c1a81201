#include "bench.h"

uint8_t bench_workspace[WORKSPACE_BYTES] __attribute__((aligned(8)));
const uint8_t bench_constants[64] = {1, 2, 3, 4, 5, 6, 7, 8};

uint32_t bench_calls;
uintptr_t bench_arguments[UTVM_MAX_ARGUMENTS];

void bench_task(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f,
                uintptr_t g, uintptr_t h, uintptr_t i, uintptr_t j, uintptr_t k, uintptr_t l) {
    const uintptr_t all[] = {a, b, c, d, e, f, g, h, i, j, k, l};
    memcpy(bench_arguments, all, sizeof all);
    bench_calls++;
}

/// The port ///

static int32_t port_read(void *context, uint8_t *data, uint32_t size) {
    struct bench *bench = context;
    if (bench->fail < 0) {
        return bench->fail;
    }
    uint32_t left = bench->in_length - bench->in_at;
    size = size < left ? size : left;
    size = size < bench->read_max ? size : bench->read_max;
    if (size) {
        memcpy(data, bench->in + bench->in_at, size);
    }
    bench->in_at += size;
    return (int32_t)size;
}

static int32_t port_write(void *context, const uint8_t *data, uint32_t size) {
    struct bench *bench = context;
    if (bench->fail < 0) {
        return bench->fail;
    }
    size = size < bench->write_max ? size : bench->write_max;
    if (size > sizeof bench->out - bench->out_length) {
        // nobody reads: forget the past
        bench->out_length = 0;
    }
    memcpy(bench->out + bench->out_length, data, size);
    bench->out_length += size;
    return (int32_t)size;
}

// Each look at the timer is 3 ticks later, and all 64 bits are in use.
static uint64_t port_ticks(void *context) {
    struct bench *bench = context;
    return bench->ticks += 3;
}

static void port_reset(void *context) {
    struct bench *bench = context;
    bench->resets++;
    utvm_init(&bench->utvm, &bench->config, BENCH_NONCE + bench->resets);
}

static void port_code_written(void *context, const void *address, uint32_t size) {
    struct bench *bench = context;
    bench->code = address;
    bench->code_size = size;
}

static enum utvm_status port_call(void *context, const struct utvm_call *call,
                                  struct utvm_fault *fault) {
    struct bench *bench = context;
    if (bench_calls == bench->stop_after) {
        fault->kind = UTVM_FAULT_KIND_SIGNAL;
        fault->exception = 11;
        fault->pc = 0x1234;
        fault->bfar = 0x5678;
        return bench->stop_status;
    }
    utvm_call_function(call);
    return UTVM_STATUS_OK;
}

static void port_deadline(void *context, uint32_t us) {
    struct bench *bench = context;
    bench->deadlines[bench->deadline_count++ % 8] = us;
}

void bench_guard(struct bench *bench) {
    bench->config.call = port_call;
    bench->config.deadline = port_deadline;
    bench->stop_after = UINT32_MAX;
}

struct bench *bench_new(void) {
    struct bench *bench = calloc(1, sizeof *bench);
    const uint8_t *task = (const uint8_t *)(uintptr_t)bench_task;
    // data, then code in RAM behind it, constants, and one function
    struct utvm_region regions[] = {
        {bench_workspace, bench_workspace + 2048, UTVM_RIGHT_READ | UTVM_RIGHT_WRITE},
        {bench_workspace + 2048, bench_workspace + WORKSPACE_BYTES,
         UTVM_RIGHT_READ | UTVM_RIGHT_WRITE | UTVM_RIGHT_EXECUTE},
        {bench_constants, bench_constants + sizeof bench_constants, UTVM_RIGHT_READ},
        {task, task + 2, UTVM_RIGHT_EXECUTE},
    };
    memcpy(bench->regions, regions, sizeof regions);
    bench->read_max = bench->write_max = UINT32_MAX;
    bench->ticks = 0xfffffffffu;
    bench->sequence = 0x1000;
    bench->config = (struct utvm_config){
        .context = bench,
        .read = port_read,
        .write = port_write,
        .ticks = port_ticks,
        .reset = port_reset,
        .code_written = port_code_written,
        .rx_buffer = malloc(UTVM_RX_BYTES(BENCH_PAYLOAD)),
        .rx_size = UTVM_RX_BYTES(BENCH_PAYLOAD),
        .tx_buffer = malloc(UTVM_TX_BYTES(BENCH_PAYLOAD)),
        .tx_size = UTVM_TX_BYTES(BENCH_PAYLOAD),
        .regions = bench->regions,
        .region_count = 4,
        .workspace = bench_workspace,
        .workspace_end = bench_workspace + WORKSPACE_BYTES,
        .ticks_per_second = 216000000,
        .tick_unit = UTVM_TICK_UNIT_INSTRUCTIONS,
        .image = "unit test",
    };
    utvm_init(&bench->utvm, &bench->config, BENCH_NONCE);
    bench_run(bench);
    bench->out_length = 0;
    return bench;
}

void bench_free(struct bench *bench) {
    free(bench->config.rx_buffer);
    free(bench->config.tx_buffer);
    free(bench->in);
    free(bench);
}

/// Frames, written a second time: from the specification ///

uint32_t bench_cobs(const uint8_t *data, uint32_t size, uint8_t *out) {
    uint32_t at = 1, code_at = 0;
    for (uint32_t i = 0; i < size; i++) {
        if (data[i]) {
            out[at++] = data[i];
        }
        if (!data[i] || at - code_at == 255) {
            out[code_at] = (uint8_t)(at - code_at);
            code_at = at++;
        }
    }
    out[code_at] = (uint8_t)(at - code_at);
    return at;
}

uint32_t bench_frame(uint8_t version, uint8_t opcode, uint32_t sequence, uint32_t session,
                     const uint8_t *payload, uint32_t size, uint8_t *out) {
    uint8_t *raw = malloc(size + 16);
    raw[0] = version;
    raw[1] = opcode;
    utvm_put16(raw + 2, size);
    utvm_put32(raw + 4, sequence);
    utvm_put32(raw + 8, session);
    if (size) {
        memcpy(raw + 12, payload, size);
    }
    utvm_put32(raw + 12 + size, utvm_crc32(0, raw, 12 + size));
    out[0] = 0;
    uint32_t length = 1 + bench_cobs(raw, size + 16, out + 1);
    out[length++] = 0;
    free(raw);
    return length;
}

void bench_give(struct bench *bench, const uint8_t *data, uint32_t size) {
    bench->in = realloc(bench->in, bench->in_length + size + 1);
    if (size) {
        memcpy(bench->in + bench->in_length, data, size);
    }
    bench->in_length += size;
}

int bench_run(struct bench *bench) {
    int did;
    do {
        did = utvm_poll(&bench->utvm);
    } while (did > 0);
    return did;
}

struct reply bench_take(struct bench *bench) {
    struct reply reply;
    memset(&reply, 0, sizeof reply);
    uint32_t begin = 0;
    while (begin < bench->out_length && bench->out[begin] == 0) {
        begin++;
    }
    uint8_t raw[BENCH_PAYLOAD + 64];
    uint32_t length = 0, at = begin;
    while (at < bench->out_length && bench->out[at]) {
        uint32_t code = bench->out[at++];
        for (uint32_t i = 1; i < code && length < sizeof raw; i++) {
            raw[length++] = bench->out[at++];
        }
        if (code < 255 && bench->out[at] && length < sizeof raw) {
            raw[length++] = 0;
        }
    }
    if (length < 24 || at == bench->out_length || utvm_get16(raw + 2) != length - 16 ||
        utvm_get32(raw + length - 4) != utvm_crc32(0, raw, length - 4)) {
        return reply;
    }
    at++;
    memmove(bench->out, bench->out + at, bench->out_length - at);
    bench->out_length -= at;
    reply.found = raw[0] == UTVM_PROTOCOL_VERSION;
    reply.opcode = raw[1];
    reply.sequence = utvm_get32(raw + 4);
    reply.session = utvm_get32(raw + 8);
    reply.status = utvm_get16(raw + 12);
    reply.index = utvm_get16(raw + 14);
    reply.detail = utvm_get32(raw + 16);
    reply.length = length - 24;
    memcpy(reply.data, raw + 20, reply.length);
    return reply;
}

struct reply bench_ask_as(struct bench *bench, uint8_t opcode, uint32_t session,
                          const uint8_t *payload, uint32_t size) {
    uint8_t *wire = malloc(2 * size + 64);
    uint32_t length =
        bench_frame(UTVM_PROTOCOL_VERSION, opcode, bench->sequence++, session, payload, size, wire);
    bench_give(bench, wire, length);
    free(wire);
    bench_run(bench);
    return bench_take(bench);
}

struct reply bench_ask(struct bench *bench, uint8_t opcode, const uint8_t *payload, uint32_t size) {
    return bench_ask_as(bench, opcode, bench->utvm.session, payload, size);
}

struct reply bench_open(struct bench *bench) {
    uint32_t id = bench_ask_as(bench, UTVM_OPCODE_HELLO, 0, NULL, 0).session;
    return bench_ask_as(bench, UTVM_OPCODE_OPEN, id, NULL, 0);
}
