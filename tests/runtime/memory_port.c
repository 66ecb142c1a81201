#include "memory_port.h"

uint8_t port_workspace[WORKSPACE_BYTES] __attribute__((aligned(8)));
const uint8_t port_constants[64] = {1, 2, 3, 4, 5, 6, 7, 8};

uint32_t port_calls;
uintptr_t port_arguments[UTVM_MAX_ARGUMENTS];

void port_task(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f,
               uintptr_t g, uintptr_t h, uintptr_t i, uintptr_t j, uintptr_t k, uintptr_t l) {
    const uintptr_t all[] = {a, b, c, d, e, f, g, h, i, j, k, l};
    memcpy(port_arguments, all, sizeof all);
    port_calls++;
}

/// The port ///

static int32_t port_read(void *context, uint8_t *data, uint32_t size) {
    struct port *port = context;
    if (port->fail < 0) {
        return port->fail;
    }
    uint32_t left = port->in_length - port->in_at;
    size = size < left ? size : left;
    size = size < port->read_max ? size : port->read_max;
    if (size) {
        memcpy(data, port->in + port->in_at, size);
    }
    port->in_at += size;
    return (int32_t)size;
}

static int32_t port_write(void *context, const uint8_t *data, uint32_t size) {
    struct port *port = context;
    if (port->fail < 0) {
        return port->fail;
    }
    size = size < port->write_max ? size : port->write_max;
    if (size > sizeof port->out - port->out_length) {
        // nobody reads: forget the past
        port->out_length = 0;
    }
    memcpy(port->out + port->out_length, data, size);
    port->out_length += size;
    return (int32_t)size;
}

// Each look at the timer is 3 ticks later, and all 64 bits are in use.
static uint64_t port_ticks(void *context) {
    struct port *port = context;
    return port->ticks += 3;
}

static void port_reset(void *context) {
    struct port *port = context;
    port->resets++;
    utvm_init(&port->utvm, &port->config, BENCH_NONCE + port->resets);
}

static void port_code_written(void *context, const void *address, uint32_t size) {
    struct port *port = context;
    port->code = address;
    port->code_size = size;
}

static enum utvm_status port_call(void *context, const struct utvm_call *call,
                                  struct utvm_fault *fault) {
    struct port *port = context;
    if (port_calls == port->stop_after) {
        *fault = port->stop_fault;
        return port->stop_status;
    }
    utvm_call_function(call);
    return UTVM_STATUS_OK;
}

static void port_deadline(void *context, uint32_t us) {
    struct port *port = context;
    port->deadlines[port->deadline_count++ % 8] = us;
}

void port_guard(struct port *port) {
    port->config.call = port_call;
    port->config.deadline = port_deadline;
    port->stop_after = UINT32_MAX;
}

struct port *port_new(void) {
    struct port *port = calloc(1, sizeof *port);
    const uint8_t *task = (const uint8_t *)(uintptr_t)port_task;
    // data, then code in RAM behind it, constants, and one function
    struct utvm_region regions[] = {
        {port_workspace, port_workspace + 2048, UTVM_RIGHT_READ | UTVM_RIGHT_WRITE},
        {port_workspace + 2048, port_workspace + WORKSPACE_BYTES,
         UTVM_RIGHT_READ | UTVM_RIGHT_WRITE | UTVM_RIGHT_EXECUTE},
        {port_constants, port_constants + sizeof port_constants, UTVM_RIGHT_READ},
        {task, task + 2, UTVM_RIGHT_EXECUTE},
    };
    memcpy(port->regions, regions, sizeof regions);
    port->read_max = port->write_max = UINT32_MAX;
    port->ticks = 0xfffffffffu;
    port->sequence = 0x1000;
    port->config = (struct utvm_config){
        .context = port,
        .read = port_read,
        .write = port_write,
        .ticks = port_ticks,
        .reset = port_reset,
        .code_written = port_code_written,
        .rx_buffer = malloc(UTVM_RX_BYTES(BENCH_PAYLOAD)),
        .rx_size = UTVM_RX_BYTES(BENCH_PAYLOAD),
        .tx_buffer = malloc(UTVM_TX_BYTES(BENCH_PAYLOAD)),
        .tx_size = UTVM_TX_BYTES(BENCH_PAYLOAD),
        .regions = port->regions,
        .region_count = 4,
        .workspace = port_workspace,
        .workspace_end = port_workspace + WORKSPACE_BYTES,
        .ticks_per_second = 216000000,
        .tick_unit = UTVM_TICK_UNIT_INSTRUCTIONS,
        .image = "unit test",
    };
    utvm_init(&port->utvm, &port->config, BENCH_NONCE);
    port_run(port);
    port->out_length = 0;
    return port;
}

void port_free(struct port *port) {
    free(port->config.rx_buffer);
    free(port->config.tx_buffer);
    free(port->in);
    free(port);
}

/// Frames, written a second time: from the specification ///

uint32_t port_cobs(const uint8_t *data, uint32_t size, uint8_t *out) {
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

uint32_t port_frame(uint8_t version, uint8_t opcode, uint32_t sequence, uint32_t session,
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
    uint32_t length = 1 + port_cobs(raw, size + 16, out + 1);
    out[length++] = 0;
    free(raw);
    return length;
}

void port_give(struct port *port, const uint8_t *data, uint32_t size) {
    port->in = realloc(port->in, port->in_length + size + 1);
    if (size) {
        memcpy(port->in + port->in_length, data, size);
    }
    port->in_length += size;
}

int port_run(struct port *port) {
    int did;
    do {
        did = utvm_poll(&port->utvm);
    } while (did > 0);
    return did;
}

struct reply port_take(struct port *port) {
    struct reply reply;
    memset(&reply, 0, sizeof reply);
    uint32_t begin = 0;
    while (begin < port->out_length && port->out[begin] == 0) {
        begin++;
    }
    uint8_t raw[BENCH_PAYLOAD + 64];
    uint32_t length = 0, at = begin;
    while (at < port->out_length && port->out[at]) {
        uint32_t code = port->out[at++];
        for (uint32_t i = 1; i < code && length < sizeof raw; i++) {
            raw[length++] = port->out[at++];
        }
        if (code < 255 && port->out[at] && length < sizeof raw) {
            raw[length++] = 0;
        }
    }
    if (length < 24 || at == port->out_length || utvm_get16(raw + 2) != length - 16 ||
        utvm_get32(raw + length - 4) != utvm_crc32(0, raw, length - 4)) {
        return reply;
    }
    at++;
    memmove(port->out, port->out + at, port->out_length - at);
    port->out_length -= at;
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

struct reply port_ask_as(struct port *port, uint8_t opcode, uint32_t session,
                         const uint8_t *payload, uint32_t size) {
    uint8_t *wire = malloc(2 * size + 64);
    uint32_t length =
        port_frame(UTVM_PROTOCOL_VERSION, opcode, port->sequence++, session, payload, size, wire);
    port_give(port, wire, length);
    free(wire);
    port_run(port);
    return port_take(port);
}

struct reply port_ask(struct port *port, uint8_t opcode, const uint8_t *payload, uint32_t size) {
    return port_ask_as(port, opcode, port->utvm.session, payload, size);
}

struct reply port_open(struct port *port) {
    uint32_t id = port_ask_as(port, UTVM_OPCODE_HELLO, 0, NULL, 0).session;
    return port_ask_as(port, UTVM_OPCODE_OPEN, id, NULL, 0);
}
