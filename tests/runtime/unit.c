// Unit tests of the runtime. Without arguments: the tests' names; with a name:
// that test, exit status 1 at its first failure.
#include "memory_port.h"
#include "vectors.h"

static int failures;

#define TEST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);              \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

static uint32_t address_of(const void *at) {
    return (uint32_t)(uintptr_t)at;
}

// A payload from words.
#define WORDS(...)                                                                                 \
    (const uint8_t *)(const uint32_t[]){__VA_ARGS__}, (uint32_t)sizeof((uint32_t[]){__VA_ARGS__})

static struct port *greeted(void) {
    struct port *port = port_new();
    TEST(port_open(port).status == UTVM_STATUS_OK);
    return port;
}

static struct reply read_memory(struct port *port, const void *at, uint32_t size) {
    return port_ask(port, UTVM_OPCODE_READ, WORDS(address_of(at), size));
}

// An EXECUTE of one task; the reply after ACCEPTED if there was one.
static struct reply execute(struct port *port, const uint8_t *payload, uint32_t size) {
    struct reply first = port_ask(port, UTVM_OPCODE_EXECUTE, payload, size);
    if (first.status != UTVM_STATUS_ACCEPTED) {
        return first;
    }
    struct reply second = port_take(port);
    TEST(second.found && second.sequence == first.sequence);
    return second;
}

#define TASK(function, repeat, argc)                                                               \
    address_of((const void *)(uintptr_t)(function)), (uint32_t)(repeat) | (uint32_t)(argc) << 16, 0

/// Frames ///

static void test_crc_vectors(void) {
    for (size_t i = 0; i < sizeof crc_vectors / sizeof crc_vectors[0]; i++) {
        const struct crc_vector *v = &crc_vectors[i];
        uint32_t out = 0;
        utvm_crc32_of(v->data, v->size, &out);
        TEST(out == v->crc);
        // in two parts
        uint32_t half = v->size / 2;
        uint32_t crc = utvm_crc32(0, v->data, half);
        TEST(utvm_crc32(crc, v->data + half, v->size - half) == v->crc);
    }
}

static void test_frame_vectors(void) {
    for (size_t i = 0; i < sizeof frame_vectors / sizeof frame_vectors[0]; i++) {
        const struct frame_vector *v = &frame_vectors[i];
        // room for just this frame
        uint8_t rx[2048], tx[2048];
        struct port *port = port_new();
        port->config.rx_buffer = (free(port->config.rx_buffer), rx);
        port->config.rx_size = sizeof rx;
        port->config.tx_buffer = (free(port->config.tx_buffer), tx);
        port->config.tx_size = UTVM_TX_BYTES(v->payload_size < 128 ? 128 : v->payload_size);
        utvm_init(&port->utvm, &port->config, 1);

        TEST(utvm_reply_max(&port->utvm) >= v->payload_size);
        memcpy(utvm_reply(&port->utvm), v->payload, v->payload_size);
        port->utvm.reply_length = v->payload_size;
        rx[UTVM_HEADER_OPCODE] = (uint8_t)v->opcode;
        utvm_put32(rx + UTVM_HEADER_SEQUENCE, v->sequence);
        utvm_put32(rx + UTVM_HEADER_SESSION, v->session);
        utvm_frame_send(&port->utvm);
        TEST(port->utvm.tx_length == v->encoded_size);
        TEST(memcmp(tx, v->encoded, v->encoded_size) == 0);

        for (uint32_t n = 0; n < v->encoded_size; n++) {
            int whole = utvm_frame_decode(&port->utvm, v->encoded[n]);
            TEST(whole == (n == v->encoded_size - 1));
        }
        TEST(port->utvm.rx_length == v->payload_size + 16);
        TEST(memcmp(rx + 12, v->payload, v->payload_size) == 0);
        port->config.rx_buffer = port->config.tx_buffer = NULL;
        port_free(port);
    }
}

static void test_cobs_vectors(void) {
    for (size_t i = 0; i < sizeof cobs_vectors / sizeof cobs_vectors[0]; i++) {
        const struct cobs_vector *v = &cobs_vectors[i];
        struct port *port = port_new();
        port->config.rx_buffer = realloc(port->config.rx_buffer, 1024);
        port->config.rx_size = 1024;
        for (uint32_t n = 0; n < v->encoded_size; n++) {
            utvm_frame_decode(&port->utvm, v->encoded[n]);
        }
        TEST(port->utvm.block_left == 0);
        TEST(port->utvm.rx_length == v->data_size);
        TEST(memcmp(port->config.rx_buffer, v->data, v->data_size) == 0);
        port_free(port);
    }
}

static void test_no_flipped_bit_is_believed(void) {
    struct port *port = greeted();
    uint8_t wire[64];
    uint32_t length = port_frame(UTVM_PROTOCOL_VERSION, UTVM_OPCODE_REGIONS, 0x2000,
                                 port->utvm.session, WORDS(0), wire);
    for (uint32_t bit = 8; bit < 8 * (length - 1); bit++) {
        wire[bit / 8] ^= (uint8_t)(1 << bit % 8);
        port_give(port, wire, length);
        wire[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    TEST(port_run(port) == 0);
    TEST(!port_take(port).found);
    TEST(port->utvm.error != NULL);
    // and the frame itself is believed
    port_give(port, wire, length);
    port_run(port);
    TEST(port_take(port).found);
    port_free(port);
}

static void test_resync_after_garbage(void) {
    struct port *port = greeted();
    static const uint8_t garbage[] = {1, 0, 0, 255, 3, 0, 9, 9, 9, 0, 1, 0, 2, 2, 0, 200, 65};
    for (uint32_t cut = 0; cut <= sizeof garbage; cut++) {
        port_give(port, garbage, cut);
        TEST(read_memory(port, port_constants, 4).status == UTVM_STATUS_OK);
    }
    port_free(port);
}

static void test_a_frame_longer_than_the_buffer(void) {
    struct port *port = greeted();
    uint8_t payload[BENCH_PAYLOAD + 1];
    memset(payload, 7, sizeof payload);
    utvm_put32(payload, address_of(port_workspace));
    TEST(!port_ask(port, UTVM_OPCODE_WRITE, payload, sizeof payload).found);
    TEST(strcmp(port->utvm.error, "a frame was longer than rx_buffer") == 0);
    TEST(port_ask(port, UTVM_OPCODE_WRITE, payload, sizeof payload - 1).found);
    port_free(port);
}

static void test_a_port_that_moves_little(void) {
    struct port *port = greeted();
    port->read_max = 1;
    port->write_max = 1;
    TEST(read_memory(port, port_constants, 64).length == 64);
    // nothing goes out for a while
    port->write_max = 0;
    TEST(!read_memory(port, port_constants, 64).found);
    TEST(utvm_poll(&port->utvm) == 0);
    port->write_max = 3;
    TEST(port_run(port) == 0);
    TEST(port_take(port).length == 64);
    port_free(port);
}

static void test_port_errors_are_passed_through(void) {
    struct port *port = greeted();
    port->fail = -5;
    TEST(utvm_poll(&port->utvm) == -5);
    port->fail = 0;
    port->write_max = 0;
    read_memory(port, port_constants, 4);
    port->fail = -7;
    TEST(utvm_poll(&port->utvm) == -7);
    port_free(port);
}

/// Sessions ///

static void test_init_refuses(void) {
    struct port *port = port_new();
    const struct utvm_config good = port->config;
    struct utvm_config bad[8];
    for (int i = 0; i < 8; i++) {
        bad[i] = good;
    }
    bad[0].read = NULL;
    bad[1].write = NULL;
    bad[2].ticks = NULL;
    bad[3].rx_size = UTVM_RX_BYTES(UTVM_MIN_PAYLOAD_BYTES) - 1;
    bad[4].tx_size = UTVM_TX_BYTES(UTVM_MIN_PAYLOAD_BYTES) - 1;
    bad[5].rx_buffer = NULL;
    bad[6].regions = NULL;
    bad[7].region_count = 65536;
    for (int i = 0; i < 8; i++) {
        TEST(utvm_init(&port->utvm, &bad[i], 1) == UTVM_ERR_CONFIG);
        TEST(port->utvm.error != NULL);
    }
    TEST(utvm_init(&port->utvm, &good, 1) == UTVM_OK);
    TEST(port->utvm.error == NULL);
    port_free(port);
}

static void test_boot_frame(void) {
    struct port *port = port_new();
    utvm_init(&port->utvm, &port->config, 0);
    port_run(port);
    struct reply boot = port_take(port);
    TEST(boot.found && boot.opcode == (UTVM_OPCODE_BOOT | UTVM_REPLY_BIT));
    TEST(boot.sequence == 0 && boot.session == 0 && boot.length == 0);
    TEST(port->utvm.nonce == 1);
    port_free(port);
}

static void test_hello_changes_nothing(void) {
    struct port *port = port_new();
    struct reply hello = port_ask_as(port, UTVM_OPCODE_HELLO, 0, NULL, 0);
    TEST(hello.found && hello.opcode == (UTVM_OPCODE_HELLO | UTVM_REPLY_BIT));
    TEST(hello.sequence == 0x1000 && hello.status == UTVM_STATUS_OK && hello.length == 0);
    TEST(hello.session != 0 && port->utvm.session == 0);
    // the same one again gives the same id, another one another
    port->sequence = 0x1000;
    TEST(port_ask_as(port, UTVM_OPCODE_HELLO, 0, NULL, 0).session == hello.session);
    TEST(port_ask_as(port, UTVM_OPCODE_HELLO, 0, NULL, 0).session != hello.session);
    // with a session in force, too, whose kept reply stays
    TEST(port_open(port).status == UTVM_STATUS_OK);
    TEST(read_memory(port, port_constants, 4).length == 4);
    uint32_t session = port->utvm.session;
    port_ask_as(port, UTVM_OPCODE_HELLO, 0, NULL, 0);
    TEST(port->utvm.session == session);
    port->sequence -= 2;
    TEST(read_memory(port, port_constants, 4).length == 4);
    port_free(port);
}

static void test_open(void) {
    struct port *port = port_new();
    port->config.image = "0123456789012345678901234567890123456789012345678901234567890123cut";
    struct reply open = port_open(port);
    const uint8_t *data = open.data - UTVM_OUTCOME_BYTES;
    TEST(open.found && open.opcode == (UTVM_OPCODE_OPEN | UTVM_REPLY_BIT));
    TEST(open.sequence == 0x1001 && open.status == UTVM_STATUS_OK);
    TEST(open.session == port->utvm.session && open.session != 0);
    TEST(utvm_get32(data + UTVM_OPEN_REPLY_RUNTIME_VERSION) == UTVM_VERSION);
    TEST(utvm_get16(data + UTVM_OPEN_REPLY_REQUEST_BYTES) == BENCH_PAYLOAD);
    TEST(utvm_get16(data + UTVM_OPEN_REPLY_REPLY_BYTES) >= BENCH_PAYLOAD);
    TEST(utvm_get32(data + UTVM_OPEN_REPLY_TICKS_PER_SECOND) == 216000000);
    TEST(utvm_get16(data + UTVM_OPEN_REPLY_TICK_UNIT) == UTVM_TICK_UNIT_INSTRUCTIONS);
    TEST(utvm_get16(data + UTVM_OPEN_REPLY_REGION_COUNT) == 4);
    TEST(utvm_get32(data + UTVM_OPEN_REPLY_WORKSPACE) == address_of(port_workspace));
    TEST(utvm_get32(data + UTVM_OPEN_REPLY_WORKSPACE_BYTES) == WORKSPACE_BYTES);
    TEST(utvm_get32(data + UTVM_OPEN_REPLY_NONCE) == BENCH_NONCE);
    TEST(open.length == UTVM_OPEN_REPLY_BYTES - UTVM_OUTCOME_BYTES + UTVM_MAX_IMAGE_BYTES);
    port->config.image = NULL;
    TEST(port_open(port).length == UTVM_OPEN_REPLY_BYTES - UTVM_OUTCOME_BYTES);
    port_free(port);
}

static void test_no_session(void) {
    struct port *port = port_new();
    struct reply refusal = read_memory(port, port_constants, 4);
    TEST(refusal.status == UTVM_STATUS_NO_SESSION && refusal.detail == BENCH_NONCE);
    // an OPEN whose HELLO never came
    TEST(port_ask_as(port, UTVM_OPCODE_OPEN, 5, NULL, 0).status == UTVM_STATUS_NO_SESSION);
    TEST(port_open(port).status == UTVM_STATUS_OK);
    TEST(read_memory(port, port_constants, 4).status == UTVM_STATUS_OK);
    // a request of another session; the refusal is to it alone
    uint32_t other = port->utvm.session ^ 1;
    refusal = port_ask_as(port, UTVM_OPCODE_WRITE, other, WORDS(address_of(port_workspace), 1));
    TEST(refusal.status == UTVM_STATUS_NO_SESSION && refusal.session == other);
    TEST(refusal.sequence == port->sequence - 1);
    // the reply to the last request is still there
    port->sequence -= 2;
    TEST(read_memory(port, port_constants, 4).length == 4);
    // of two hosts that said HELLO, the one that opens first has the session
    uint32_t one = port_ask_as(port, UTVM_OPCODE_HELLO, 0, NULL, 0).session;
    port->sequence = 0x7000;
    TEST(port_open(port).status == UTVM_STATUS_OK);
    TEST(port_ask_as(port, UTVM_OPCODE_OPEN, one, NULL, 0).status == UTVM_STATUS_NO_SESSION);
    port_free(port);
}

// Frames of hosts that are gone, and of this one's past.
#define OLD_FRAMES 16
static struct {
    uint8_t bytes[128];
    uint32_t length;
} old_frames[OLD_FRAMES];

// Send a frame, run, and let the frames that were recorded be those up to it.
static struct reply said(struct port *port, uint32_t *count, uint8_t opcode, uint32_t session,
                         const uint8_t *payload, uint32_t size) {
    uint32_t length = port_frame(UTVM_PROTOCOL_VERSION, opcode, port->sequence++, session, payload,
                                 size, old_frames[*count].bytes);
    old_frames[*count].length = length;
    port_give(port, old_frames[*count].bytes, length);
    (*count)++;
    port_run(port);
    return port_take(port);
}

// Between any two frames of a session, any two older ones: nothing is done by
// them, and nothing that the host waits for is lost. Returns how often old
// frames were put in.
static uint32_t replay(uint32_t gap, uint32_t first, uint32_t second) {
    struct port *port = port_new();
    uint32_t count = 0, session = 0, replayed = 0;
    uint8_t *at = port_workspace;
    memset(at, 0, 8);
    port_calls = 0;
    struct reply reply;
    memset(&reply, 0, sizeof reply);
    for (uint32_t step = 0; step < 12; step++) {
        if (step % 6 == 0) {
            // another host: numbers of its own, the second one's lower
            port->sequence = step ? 0x100 : 0x9000;
        }
        if (step == gap) {
            uint32_t kept = port->utvm.session, calls = port_calls;
            uint8_t memory[8];
            memcpy(memory, at, 8);
            for (int i = 0; i < 2; i++) {
                uint32_t which = i ? second : first;
                if (which < count) {
                    port_give(port, old_frames[which].bytes, old_frames[which].length);
                    replayed++;
                }
            }
            port_run(port);
            TEST(port->utvm.session == kept && port_calls == calls && !memcmp(memory, at, 8));
            while (port_take(port).found) {
            }
            // the reply to the last request may have been lost
            if (count && step % 6 > 1) {
                port_give(port, old_frames[count - 1].bytes, old_frames[count - 1].length);
                port_run(port);
                struct reply again = port_take(port);
                TEST(again.found && again.sequence == reply.sequence);
                TEST(again.opcode == reply.opcode && again.length == reply.length);
                TEST(port_calls == calls);
            }
        }
        switch (step % 6) {
        case 0:
            session = said(port, &count, UTVM_OPCODE_HELLO, 0, NULL, 0).session;
            continue;
        case 1:
            reply = said(port, &count, UTVM_OPCODE_OPEN, session, NULL, 0);
            break;
        case 2:
        case 3:
            reply = said(port, &count, UTVM_OPCODE_WRITE, session, WORDS(address_of(at), step));
            TEST(at[0] == step);
            break;
        case 4:
            reply = said(port, &count, UTVM_OPCODE_READ, session, WORDS(address_of(at), 4));
            TEST(reply.length == 4 && reply.data[0] == step - 1);
            break;
        default:
            reply = said(port, &count, UTVM_OPCODE_EXECUTE, session, WORDS(TASK(port_task, 1, 0)));
            TEST(reply.status == UTVM_STATUS_ACCEPTED);
            reply = port_take(port);
            TEST(port_calls == step / 6 + 1);
        }
        TEST(reply.found && reply.status == UTVM_STATUS_OK && reply.session == session);
    }
    TEST(count == 12);
    port_free(port);
    return replayed;
}

static void test_old_frames_do_nothing(void) {
    uint32_t replayed = 0;
    for (uint32_t gap = 1; gap < 12; gap++) {
        // the frame before the gap is the last request itself: a repetition, not an old one
        for (uint32_t first = 0; first + 1 < gap; first++) {
            for (uint32_t second = 0; second + 1 < gap; second++) {
                replayed += replay(gap, first, second);
            }
        }
    }
    TEST(replayed > 700);
}

static void test_other_versions(void) {
    struct port *port = greeted();
    uint8_t wire[64];
    port_give(port, wire, port_frame(9, UTVM_OPCODE_HELLO, 5, 0, WORDS(1, 2, 3), wire));
    port_run(port);
    struct reply refusal = port_take(port);
    TEST(refusal.found && refusal.status == UTVM_STATUS_VERSION);
    TEST(refusal.detail == UTVM_PROTOCOL_VERSION && refusal.sequence == 5);
    port_free(port);
}

static void test_an_echoing_line(void) {
    struct port *port = greeted();
    TEST(read_memory(port, port_constants, 4).found);
    uint8_t wire[64];
    port_give(port, wire,
              port_frame(UTVM_PROTOCOL_VERSION, UTVM_OPCODE_READ | UTVM_REPLY_BIT, port->sequence,
                         port->utvm.session, WORDS(0, 0, 0), wire));
    TEST(port_run(port) == 0);
    TEST(!port_take(port).found);
    port_free(port);
}

static void test_nothing_is_done_twice(void) {
    struct port *port = greeted();
    uint8_t wire[64];
    uint32_t length = port_frame(UTVM_PROTOCOL_VERSION, UTVM_OPCODE_EXECUTE, port->sequence,
                                 port->utvm.session, WORDS(TASK(port_task, 2, 0)), wire);
    port_calls = 0;
    for (int i = 0; i < 3; i++) {
        port_give(port, wire, length);
    }
    port_run(port);
    TEST(port_calls == 2);
    TEST(port_take(port).status == UTVM_STATUS_ACCEPTED);
    for (int i = 0; i < 3; i++) {
        struct reply result = port_take(port);
        TEST(result.found && result.status == UTVM_STATUS_OK && result.length == 16);
    }
    TEST(!port_take(port).found);

    // the same number with other content, and an older number: nobody waits
    uint32_t number = port->sequence;
    for (uint32_t back = 0; back < 3; back++) {
        length = port_frame(UTVM_PROTOCOL_VERSION, UTVM_OPCODE_EXECUTE, number - back,
                            port->utvm.session, WORDS(TASK(port_task, 3, 0)), wire);
        port_give(port, wire, length);
    }
    port_run(port);
    TEST(port_calls == 2 && !port_take(port).found);

    // a new host may have any number
    port->sequence = 3;
    TEST(port_open(port).found);
    TEST(read_memory(port, port_constants, 4).found);
    port_free(port);
}

static void test_numbers_wrap(void) {
    struct port *port = port_new();
    port->sequence = 0xfffffffc;
    TEST(port_open(port).found);
    for (int i = 0; i < 4; i++) {
        TEST(read_memory(port, port_constants, 4).found);
    }
    port_free(port);
}

static void test_reset(void) {
    struct port *port = greeted();
    struct reply reply = port_ask(port, UTVM_OPCODE_RESET, NULL, 0);
    TEST(reply.status == UTVM_STATUS_OK && reply.session != 0);
    TEST(port->resets == 1);
    struct reply boot = port_take(port);
    TEST(boot.opcode == (UTVM_OPCODE_BOOT | UTVM_REPLY_BIT) && boot.session == 0);
    TEST(read_memory(port, port_constants, 4).status == UTVM_STATUS_NO_SESSION);
    port->config.reset = NULL;
    port_open(port);
    TEST(port_ask(port, UTVM_OPCODE_RESET, NULL, 0).status == UTVM_STATUS_UNSUPPORTED);
    port_free(port);
}

static void test_unknown_opcodes(void) {
    struct port *port = greeted();
    for (uint32_t opcode = 9; opcode < 128; opcode++) {
        struct reply reply = port_ask(port, (uint8_t)opcode, WORDS(1, 2));
        TEST(reply.status == UTVM_STATUS_OPCODE && reply.detail == opcode);
    }
    TEST(port_ask(port, UTVM_OPCODE_BOOT, NULL, 0).status == UTVM_STATUS_OPCODE);
    port_free(port);
}

static void test_wrong_lengths(void) {
    struct port *port = greeted();
    static const uint8_t zeros[16];
    static const uint8_t sizes[][2] = {
        {UTVM_OPCODE_OPEN, 0},      {UTVM_OPCODE_READ, 8},    {UTVM_OPCODE_WRITE, 4},
        {UTVM_OPCODE_CHECKSUM, 12}, {UTVM_OPCODE_REGIONS, 4},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (uint32_t size = 0; size <= 13; size++) {
            uint8_t opcode = sizes[i][0];
            bool fits = opcode == UTVM_OPCODE_WRITE ? size >= 4 : size == sizes[i][1];
            struct reply reply = port_ask(port, opcode, zeros, size);
            TEST(reply.found && fits == (reply.status != UTVM_STATUS_LENGTH));
            TEST(fits || reply.detail == size);
        }
    }
    port_free(port);
}

/// Memory ///

static void test_rights(void) {
    struct port *port = greeted();
    uint8_t *ram = port_workspace;
    static const uint32_t ok = UTVM_STATUS_OK, no = UTVM_STATUS_ADDRESS;
    const struct {
        uint32_t opcode, address, size, status;
    } cases[] = {
        {UTVM_OPCODE_READ, address_of(ram), 0, ok},
        {UTVM_OPCODE_READ, address_of(ram), 200, ok},
        {UTVM_OPCODE_READ, address_of(ram) - 1, 1, no},
        {UTVM_OPCODE_READ, address_of(ram) + 2048 - 1, 1, ok},
        // over the border between two regions that both allow it
        {UTVM_OPCODE_READ, address_of(ram) + 2048 - 1, 2, no},
        {UTVM_OPCODE_READ, address_of(ram) + WORKSPACE_BYTES - 1, 1, ok},
        {UTVM_OPCODE_READ, address_of(ram) + WORKSPACE_BYTES, 1, no},
        {UTVM_OPCODE_READ, address_of(port_constants), 64, ok},
        {UTVM_OPCODE_READ, address_of(port_constants), 65, no},
        {UTVM_OPCODE_READ, 0, 1, no},
        {UTVM_OPCODE_READ, 0xffffffff, 1, no},
        {UTVM_OPCODE_READ, 0xffffffff, 200, no},
        {UTVM_OPCODE_READ, address_of((const void *)(uintptr_t)port_task), 2, no},
        {UTVM_OPCODE_CHECKSUM, address_of(ram), 0xffffffff, no},
        {UTVM_OPCODE_CHECKSUM, address_of(ram) + 1, 0xffffffff, no},
        {UTVM_OPCODE_CHECKSUM, address_of(ram), 2048, ok},
        {UTVM_OPCODE_CHECKSUM, address_of(ram), 2049, no},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        // READ takes the first two words
        uint32_t size = cases[i].opcode == UTVM_OPCODE_READ ? 8 : 12;
        uint32_t words[3] = {cases[i].address, cases[i].size, 0};
        struct reply reply = port_ask(port, (uint8_t)cases[i].opcode, (const uint8_t *)words, size);
        TEST(reply.found && reply.status == cases[i].status);
        TEST(reply.status == ok || reply.detail == cases[i].address);
        TEST(reply.status == ok || reply.length == 0);
    }
    port_free(port);
}

static void test_read_write(void) {
    struct port *port = greeted();
    uint8_t payload[BENCH_PAYLOAD];
    for (uint32_t i = 0; i < sizeof payload; i++) {
        payload[i] = (uint8_t)(i * 7);
    }
    utvm_put32(payload, address_of(port_workspace + 5));
    memset(port_workspace, 0xee, 512);
    TEST(port_ask(port, UTVM_OPCODE_WRITE, payload, sizeof payload).status == UTVM_STATUS_OK);
    TEST(port_workspace[4] == 0xee && port_workspace[5 + sizeof payload - 4] == 0xee);
    TEST(memcmp(port_workspace + 5, payload + 4, sizeof payload - 4) == 0);
    TEST(port->code == NULL);

    uint32_t most = utvm_reply_max(&port->utvm) - UTVM_OUTCOME_BYTES;
    struct reply reply = read_memory(port, port_workspace, most);
    TEST(reply.length == most && memcmp(reply.data, port_workspace, most) == 0);
    reply = read_memory(port, port_workspace, most + 1);
    TEST(reply.status == UTVM_STATUS_TOO_LARGE && reply.detail == most);

    // code is announced to the port
    utvm_put32(payload, address_of(port_workspace + 2048));
    TEST(port_ask(port, UTVM_OPCODE_WRITE, payload, 14).status == UTVM_STATUS_OK);
    TEST(port->code == port_workspace + 2048 && port->code_size == 10);
    // no right to write
    memset(payload, 0, sizeof payload);
    utvm_put32(payload, address_of(port_constants));
    TEST(port_ask(port, UTVM_OPCODE_WRITE, payload, 8).status == UTVM_STATUS_ADDRESS);
    TEST(port_constants[0] == 1);
    port_free(port);
}

static void test_checksum(void) {
    struct port *port = greeted();
    for (uint32_t i = 0; i < 2048; i++) {
        port_workspace[i] = (uint8_t)(i * i);
    }
    uint32_t at = address_of(port_workspace);
    struct reply reply = port_ask(port, UTVM_OPCODE_CHECKSUM, WORDS(at, 2048, 0));
    TEST(reply.length == 4);
    TEST(utvm_get32(reply.data) == utvm_crc32(0, port_workspace, 2048));
    // in two parts, across a poll's share
    uint32_t crc = utvm_crc32(0, port_workspace, 700);
    reply = port_ask(port, UTVM_OPCODE_CHECKSUM, WORDS(at + 700, 1348, crc));
    TEST(utvm_get32(reply.data) == utvm_crc32(0, port_workspace, 2048));
    reply = port_ask(port, UTVM_OPCODE_CHECKSUM, WORDS(at, 0, 0));
    TEST(reply.found && utvm_get32(reply.data) == 0);
    port_free(port);
}

static void test_regions(void) {
    struct port *port = greeted();
    struct reply reply = port_ask(port, UTVM_OPCODE_REGIONS, WORDS(1));
    TEST(reply.length == 3 * UTVM_REGION_BYTES);
    TEST(utvm_get32(reply.data) == address_of(port_workspace + 2048));
    TEST(utvm_get32(reply.data + UTVM_REGION_SIZE) == 2048);
    TEST(utvm_get32(reply.data + UTVM_REGION_RIGHTS) == 7);
    TEST(port_ask(port, UTVM_OPCODE_REGIONS, WORDS(4)).length == 0);
    TEST(port_ask(port, UTVM_OPCODE_REGIONS, WORDS(0xffffffff)).length == 0);
    // more than fit a reply
    static struct utvm_region many[100];
    port->config.regions = many;
    port->config.region_count = 100;
    uint32_t room = utvm_reply_max(&port->utvm) - UTVM_OUTCOME_BYTES;
    reply = port_ask(port, UTVM_OPCODE_REGIONS, WORDS(0));
    TEST(reply.length == room / UTVM_REGION_BYTES * UTVM_REGION_BYTES);
    port_free(port);
}

/// Tasks ///

static void test_arguments_and_ticks(void) {
    struct port *port = greeted();
    port_calls = 0;
    struct reply reply = execute(
        port, WORDS(TASK(port_task, 1, 12), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0x80000000, 0xffffffff));
    TEST(reply.status == UTVM_STATUS_OK && reply.length == 8 && port_calls == 1);
    TEST(utvm_get32(reply.data) == 3 && utvm_get32(reply.data + 4) == 0);
    TEST(port_arguments[0] == 1 && port_arguments[9] == 10);
    TEST(port_arguments[10] == 0x80000000 && port_arguments[11] == 0xffffffff);

    // several tasks, repeats, fewer arguments, none at all
    reply = execute(
        port, WORDS(TASK(port_task, 3, 1), 5, TASK(port_task, 0, 0), TASK(port_task, 2, 2), 6, 7));
    TEST(reply.length == 5 * 8 && port_calls == 6);
    TEST(port_arguments[0] == 6 && port_arguments[1] == 7 && port_arguments[2] == 0);
    // an empty batch
    reply = execute(port, NULL, 0);
    TEST(reply.found && reply.status == UTVM_STATUS_OK && reply.length == 0);
    port_free(port);
}

static void test_refused_batches(void) {
    struct port *port = greeted();
    uint32_t good = address_of((const void *)(uintptr_t)port_task);
    uint32_t room = utvm_reply_max(&port->utvm) - UTVM_OUTCOME_BYTES;
    port_calls = 0;
    struct reply reply = execute(port, WORDS(good, 1, 0, address_of(port_workspace), 1, 0));
    TEST(reply.status == UTVM_STATUS_ADDRESS && reply.index == 1);
    TEST(reply.detail == address_of(port_workspace));
    reply = execute(port, WORDS(good + 1, 1, 0));
    TEST(reply.status == UTVM_STATUS_ADDRESS && reply.index == 0);
    reply = execute(
        port, WORDS(good, 1, 0, good, 1 | 13 << 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    TEST(reply.status == UTVM_STATUS_ARGUMENTS && reply.index == 1 && reply.detail == 13);
    reply = execute(port, WORDS(good, 1, 0, good, 1 | 2 << 16, 0, 0));
    TEST(reply.status == UTVM_STATUS_LENGTH && reply.index == 1 && reply.detail == 16);
    reply = execute(port, WORDS(good, 1, 0, good));
    TEST(reply.status == UTVM_STATUS_LENGTH && reply.index == 1 && reply.detail == 4);
    reply = execute(port, WORDS(good, 1, 0, good, room / 8, 0));
    TEST(reply.status == UTVM_STATUS_TOO_LARGE && reply.index == 1 && reply.detail == room);
    TEST(port_calls == 0);
    reply = execute(port, WORDS(good, 1, 0, good, room / 8 - 1, 0));
    TEST(reply.status == UTVM_STATUS_OK && port_calls == room / 8);
    port_free(port);
}

static void test_accepted_is_out_before_the_batch_runs(void) {
    struct port *port = greeted();
    port_calls = 0;
    uint8_t wire[64];
    port_give(port, wire,
              port_frame(UTVM_PROTOCOL_VERSION, UTVM_OPCODE_EXECUTE, port->sequence,
                         port->utvm.session, WORDS(TASK(port_task, 1, 0)), wire));
    port->write_max = 0;
    TEST(port_run(port) == 0 && port_calls == 0);
    port->write_max = UINT32_MAX;
    TEST(utvm_poll(&port->utvm) == 1 && port_calls == 0);
    TEST(port_take(port).status == UTVM_STATUS_ACCEPTED);
    TEST(utvm_poll(&port->utvm) == 1 && port_calls == 1);
    TEST(!port_take(port).found);
    TEST(utvm_poll(&port->utvm) == 1);
    TEST(port_take(port).status == UTVM_STATUS_OK);
    port_free(port);
}

static void test_a_task_that_is_stopped(void) {
    struct port *port = greeted();
    port_guard(port);
    // the second call of the second task
    port->stop_after = 3;
    port->stop_status = UTVM_STATUS_FAULT;
    port->stop_fault = (struct utvm_fault){UTVM_ARCHITECTURE_X86, 3, {0x1234, 0, 0x5678, 9}};
    port_calls = 0;
    struct reply reply = execute(
        port, WORDS(TASK(port_task, 2, 0), TASK(port_task, 3, 1), 5, TASK(port_task, 1, 0)));
    TEST(reply.status == UTVM_STATUS_FAULT && reply.index == 1 && reply.detail == 1);
    TEST(reply.length == UTVM_FAULT_BYTES + 4 * 3 && port_calls == 3);
    TEST(utvm_get16(reply.data + UTVM_FAULT_ARCHITECTURE) == UTVM_ARCHITECTURE_X86);
    TEST(utvm_get16(reply.data + UTVM_FAULT_COUNT) == 3);
    TEST(utvm_get32(reply.data + UTVM_FAULT_BYTES) == 0x1234);
    TEST(utvm_get32(reply.data + UTVM_FAULT_BYTES + 8) == 0x5678);
    // the same request again brings the same news, and nothing runs
    port->stop_after = UINT32_MAX;
    port->sequence--;
    struct reply again =
        port_ask(port, UTVM_OPCODE_EXECUTE,
                 WORDS(TASK(port_task, 2, 0), TASK(port_task, 3, 1), 5, TASK(port_task, 1, 0)));
    TEST(again.status == UTVM_STATUS_FAULT && again.index == 1 && port_calls == 3);
    // and then it works on
    reply = execute(port, WORDS(TASK(port_task, 2, 0)));
    TEST(reply.status == UTVM_STATUS_OK && reply.length == 16 && port_calls == 5);
    port->stop_after = port_calls;
    port->stop_status = UTVM_STATUS_TIMEOUT;
    reply = execute(port, WORDS(TASK(port_task, 2, 0)));
    TEST(reply.status == UTVM_STATUS_TIMEOUT && reply.index == 0 && reply.detail == 0);
    port_free(port);
}

static void test_fault_vectors(void) {
    for (size_t i = 0; i < sizeof fault_vectors / sizeof fault_vectors[0]; i++) {
        const struct fault_vector *v = &fault_vectors[i];
        struct port *port = greeted();
        port_guard(port);
        port->stop_after = port_calls;
        port->stop_status = UTVM_STATUS_FAULT;
        port->stop_fault = v->fault;
        struct reply reply = execute(port, WORDS(TASK(port_task, 1, 0)));
        TEST(reply.status == UTVM_STATUS_FAULT && reply.length == v->record_size);
        TEST(memcmp(reply.data, v->record, v->record_size) == 0);
        port_free(port);
    }
}

// A port's record is never longer than a reply may be.
static void test_a_fault_record_is_bounded(void) {
    for (uint32_t count = 0; count <= UINT16_MAX; count += count ? 5 * count : 1) {
        struct port *port = greeted();
        port_guard(port);
        port->stop_after = port_calls;
        port->stop_status = UTVM_STATUS_FAULT;
        port->stop_fault.count = (uint16_t)count;
        struct reply reply = execute(port, WORDS(TASK(port_task, 1, 0)));
        uint32_t sent = count < UTVM_MAX_FAULT_WORDS ? count : UTVM_MAX_FAULT_WORDS;
        TEST(reply.status == UTVM_STATUS_FAULT);
        TEST(reply.length == UTVM_FAULT_BYTES + 4 * sent);
        TEST(utvm_get16(reply.data + UTVM_FAULT_COUNT) == sent);
        port_free(port);
    }
}

static void test_deadlines_reach_the_port(void) {
    struct port *port = greeted();
    port_guard(port);
    uint32_t task = address_of((const void *)(uintptr_t)port_task);
    struct reply reply =
        execute(port, WORDS(task, 2, 7000, task, 1, 0, task, 0, 1, task, 1, 0xffffffff));
    TEST(reply.status == UTVM_STATUS_OK && reply.length == 4 * 8);
    // set and lifted around each task that has one
    const uint32_t wanted[] = {7000, 0, 1, 0, 0xffffffff, 0};
    TEST(port->deadline_count == 6);
    TEST(memcmp(port->deadlines, wanted, sizeof wanted) == 0);
    port->stop_after = port_calls;
    port->stop_status = UTVM_STATUS_TIMEOUT;
    execute(port, WORDS(task, 1, 5));
    TEST(port->deadline_count == 8 && port->deadlines[7] == 0);
    // a port without clock: the host's affair
    port->config.deadline = NULL;
    port->stop_after = UINT32_MAX;
    reply = execute(port, WORDS(task, 1, 5));
    TEST(reply.status == UTVM_STATUS_OK && port->deadline_count == 8);
    port_free(port);
}

static void test_one_task_per_poll(void) {
    struct port *port = greeted();
    port_calls = 0;
    uint8_t wire[128];
    port_give(port, wire,
              port_frame(UTVM_PROTOCOL_VERSION, UTVM_OPCODE_EXECUTE, port->sequence,
                         port->utvm.session, WORDS(TASK(port_task, 2, 0), TASK(port_task, 3, 0)),
                         wire));
    uint32_t calls[8] = {0};
    uint32_t seen = 0;
    while (utvm_poll(&port->utvm) > 0) {
        if (port_calls != calls[seen]) {
            calls[++seen] = port_calls;
        }
    }
    TEST(seen == 2 && calls[1] == 2 && calls[2] == 5);
    port_free(port);
}

static void test_two_runtimes(void) {
    struct port *a = greeted(), *b = port_new();
    port_open(b);
    TEST(read_memory(a, port_constants, 4).sequence == 0x1002);
    a->write_max = 0;
    TEST(!read_memory(a, port_constants, 8).found);
    TEST(read_memory(b, port_constants, 12).length == 12);
    a->write_max = 9;
    port_run(a);
    TEST(port_take(a).length == 8);
    port_free(a);
    port_free(b);
}

#define ENTRY(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
    ENTRY(test_crc_vectors),
    ENTRY(test_frame_vectors),
    ENTRY(test_cobs_vectors),
    ENTRY(test_no_flipped_bit_is_believed),
    ENTRY(test_resync_after_garbage),
    ENTRY(test_a_frame_longer_than_the_buffer),
    ENTRY(test_a_port_that_moves_little),
    ENTRY(test_port_errors_are_passed_through),
    ENTRY(test_init_refuses),
    ENTRY(test_boot_frame),
    ENTRY(test_hello_changes_nothing),
    ENTRY(test_open),
    ENTRY(test_no_session),
    ENTRY(test_old_frames_do_nothing),
    ENTRY(test_other_versions),
    ENTRY(test_an_echoing_line),
    ENTRY(test_nothing_is_done_twice),
    ENTRY(test_numbers_wrap),
    ENTRY(test_reset),
    ENTRY(test_unknown_opcodes),
    ENTRY(test_wrong_lengths),
    ENTRY(test_rights),
    ENTRY(test_read_write),
    ENTRY(test_checksum),
    ENTRY(test_regions),
    ENTRY(test_arguments_and_ticks),
    ENTRY(test_refused_batches),
    ENTRY(test_accepted_is_out_before_the_batch_runs),
    ENTRY(test_a_task_that_is_stopped),
    ENTRY(test_fault_vectors),
    ENTRY(test_a_fault_record_is_bounded),
    ENTRY(test_deadlines_reach_the_port),
    ENTRY(test_one_task_per_poll),
    ENTRY(test_two_runtimes),
};

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (argc < 2) {
            printf("%s\n", tests[i].name);
        } else if (strcmp(argv[1], tests[i].name) == 0) {
            tests[i].run();
            return failures != 0;
        }
    }
    return argc >= 2;
}
