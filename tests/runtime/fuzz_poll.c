// Any bytes into utvm_poll. What PROTOCOL.md promises of them is checked here
// and by UTVM_ASSERT in the runtime; nothing that the host asks for is run.
//
// With libFuzzer: scripts/fuzz. Alone (-DUTVM_FUZZ_MAIN): pseudo-random inputs
// from a seed, as many as asked; prints how many, how many frames were answered
// and how many calls would have been made.
//
// The first byte says how the rest is read: as bytes from the line, or as
// requests whose frames are made whole here, so that what lies behind the CRC
// is reached too.
#include "memory_port.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);              \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static struct port *port;
static uint32_t answers, calls;
// From the input: how calls end.
static uint8_t endings;

/// What must be true when something is done ///

static bool is_within(const void *address, uint32_t size, uint32_t right) {
    uintptr_t at = (uintptr_t)address;
    for (uint32_t i = 0; i < port->config.region_count; i++) {
        uintptr_t begin = (uintptr_t)port->regions[i].begin, end = (uintptr_t)port->regions[i].end;
        if ((port->regions[i].rights & right) && at >= begin && at + size <= end) {
            return true;
        }
    }
    return false;
}

// The last batch: no other one may have its numbers.
static uint32_t batch_boot, batch_session, batch_sequence;

static enum utvm_status stub_call(void *context, const struct utvm_call *call,
                                  struct utvm_fault *fault) {
    (void)context;
    const uint8_t *frame = port->config.rx_buffer;
    const uint8_t *payload = frame + UTVM_HEADER_BYTES;
    uint32_t length = port->utvm.rx_length - UTVM_HEADER_BYTES - UTVM_CRC_BYTES;
    // only what lies where code may lie, and only for this boot
    MUST(is_within((const void *)call->function, 2, UTVM_RIGHT_EXECUTE));
    MUST(frame[UTVM_HEADER_OPCODE] == UTVM_OPCODE_EXECUTE && port->utvm.session);
    MUST(utvm_get32(frame + UTVM_HEADER_SESSION) == port->utvm.session);
    // ACCEPTED is out
    MUST(port->utvm.tx_sent == port->utvm.tx_length);
    // the whole batch is valid
    for (uint32_t at = 0; at < length;) {
        MUST(length - at >= UTVM_TASK_BYTES);
        uint32_t argc = utvm_get16(payload + at + UTVM_TASK_ARGC);
        MUST(argc <= UTVM_MAX_ARGUMENTS && UTVM_TASK_BYTES + 4 * argc <= length - at);
        uintptr_t function = utvm_get32(payload + at + UTVM_TASK_FUNCTION);
        MUST(is_within((const void *)function, 2, UTVM_RIGHT_EXECUTE));
        at += UTVM_TASK_BYTES + 4 * argc;
    }
    // nothing twice: within a session the numbers of batches rise
    bool is_same_boot = batch_boot == port->resets && batch_session == port->utvm.session;
    bool is_same_batch = is_same_boot && batch_sequence == port->utvm.sequence;
    if (is_same_boot && !is_same_batch) {
        MUST(!((port->utvm.sequence - batch_sequence) >> 31));
    }
    MUST(!is_same_batch || port->utvm.task_index || port->utvm.reply_length > UTVM_OUTCOME_BYTES);
    batch_boot = port->resets;
    batch_session = port->utvm.session;
    batch_sequence = port->utvm.sequence;
    calls++;
    uint8_t ending = (uint8_t)(endings ^ calls);
    fault->count = (uint16_t)calls; // more than there is room for, too
    fault->words[0] = ending;
    return ending == 1 ? UTVM_STATUS_FAULT : ending == 2 ? UTVM_STATUS_TIMEOUT : UTVM_STATUS_OK;
}

static uint32_t deadline_set;

static void stub_deadline(void *context, uint32_t us) {
    (void)context;
    // set and lifted in turn
    MUST(!us != !deadline_set);
    deadline_set = us;
}

static void stub_code_written(void *context, const void *address, uint32_t size) {
    (void)context;
    MUST(is_within(address, size, UTVM_RIGHT_EXECUTE) &&
         is_within(address, size, UTVM_RIGHT_WRITE));
}

/// Input ///

// Words that lead somewhere, among which the input chooses.
static uint32_t word(const uint8_t *data) {
    const uint32_t telling[] = {
        (uint32_t)(uintptr_t)port_workspace,
        (uint32_t)(uintptr_t)port_workspace + 2048,
        (uint32_t)(uintptr_t)port_workspace + WORKSPACE_BYTES,
        (uint32_t)(uintptr_t)port_constants,
        (uint32_t)(uintptr_t)port_task,
        0,
        0xffffffff,
        1,
    };
    // a size?
    if ((data[3] >> 6) == 1) {
        return utvm_get16(data) & 0x1ff;
    }
    if ((data[3] >> 6) == 0) {
        return utvm_get32(data);
    }
    // near misses matter most
    uint32_t offset = data[2] & 0x80 ? (data[0] & 15u) - 8u : 0;
    return telling[data[3] & 7] + offset;
}

static void run(void);

// HELLO and OPEN with this number and the next one; the reply to OPEN.
static struct reply begin(uint32_t sequence) {
    run();
    port->out_length = 0;
    port->sequence = sequence;
    return port_open(port);
}

// Requests: opcode, number of bytes, then these, four at a time as words.
static void requests(const uint8_t *data, size_t size) {
    uint8_t payload[BENCH_PAYLOAD + 8], wire[2 * BENCH_PAYLOAD];
    begin(1);
    uint32_t sequence = 3;
    while (size >= 2) {
        uint8_t opcode = data[0] % 12;
        // after a reset, another session; now and then another one all the same
        if (!port->utvm.session || opcode == 11) {
            begin(sequence);
            sequence += 2;
        }
        uint32_t session = port->utvm.session;
        uint32_t length = data[1];
        data += 2;
        size -= 2;
        length = length < size ? length : (uint32_t)size;
        memset(payload, 0, sizeof payload);
        memcpy(payload, data, length);
        for (uint32_t at = 0; at + 4 <= length; at += 4) {
            utvm_put32(payload + at, word(data + at));
        }
        uint32_t sent = length;
        // a length that fits, more often than chance has it
        static const uint8_t lengths[8] = {0, 0, 8, 0, 0, 12, 4, 0};
        if (length >= UTVM_TASK_BYTES && (data[7] & 3)) {
            if (opcode == UTVM_OPCODE_EXECUTE) {
                // tasks, of as many arguments as the input says
                uint32_t at = 0;
                while (length - at >= UTVM_TASK_BYTES) {
                    uint32_t room = (length - at - UTVM_TASK_BYTES) / 4;
                    uint32_t argc = payload[at + 11] % 13u;
                    argc = argc < room ? argc : room;
                    utvm_put32(payload + at + UTVM_TASK_REPEAT, (data[4] & 15u) | argc << 16);
                    at += UTVM_TASK_BYTES + 4 * argc;
                }
                sent = at;
            } else if (opcode < 8 && lengths[opcode]) {
                sent = lengths[opcode];
            }
        }
        data += length;
        size -= length;
        port_give(
            port, wire,
            port_frame(UTVM_PROTOCOL_VERSION, opcode, sequence, session, payload, sent, wire));
        // the device answers now, or after what comes next
        if (length % 16 != 3) {
            port_run(port);
        }
        // now and then the same number again, or an older one
        sequence += length % 8 != 7;
        sequence -= length % 32 == 9 ? 2 : 0;
    }
}

// To rest. Each byte is taken once, and answers are bounded: so must be polls.
static void run(void) {
    uint32_t polls = 0;
    while (utvm_poll(&port->utvm) > 0) {
        MUST(++polls < 1000000);
    }
    MUST(!deadline_set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 4) {
        return 0;
    }
    if (!port) {
        port = port_new();
        port->config.call = stub_call;
        port->config.deadline = stub_deadline;
        port->config.code_written = stub_code_written;
    }
    port->in_length = port->in_at = port->out_length = port->resets = 0;
    batch_boot = UINT32_MAX;
    utvm_init(&port->utvm, &port->config, BENCH_NONCE);
    port->read_max = 1u + data[1];
    port->write_max = 1u + data[2];
    endings = data[3];
    if (data[0] & 1) {
        requests(data + 4, size - 4);
    } else {
        port_give(port, data + 4, (uint32_t)size - 4);
    }
    run();
    while (port_take(port).found) {
        answers++;
    }

    // Whatever came, the next valid frame is understood.
    port->out_length = 0;
    uint32_t openings = port->utvm.openings;
    struct reply reply = begin(endings);
    MUST(reply.found && reply.status == UTVM_STATUS_OK && port->utvm.session == reply.session);
    MUST(reply.opcode == (UTVM_OPCODE_OPEN | UTVM_REPLY_BIT) && reply.sequence == endings + 1u);
    MUST(port->utvm.openings == openings + 1);
    return 0;
}

#ifdef UTVM_FUZZ_MAIN
static uint32_t noise(uint32_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

int main(int argc, char **argv) {
    uint32_t count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1000;
    uint32_t state = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
    static uint8_t data[1024];
    for (uint32_t n = 0; n < count; n++) {
        uint32_t size = noise(&state) % sizeof data;
        // few values in some inputs: zeros and small codes make frames
        uint32_t mask = noise(&state) & 3 ? 0xff : 0x0f;
        for (uint32_t i = 0; i < size; i++) {
            data[i] = (uint8_t)(noise(&state) >> 9 & mask);
        }
        LLVMFuzzerTestOneInput(data, size);
    }
    printf("%u inputs, %u answers, %u calls\n", (unsigned)count, (unsigned)answers,
           (unsigned)calls);
    return 0;
}
#endif
