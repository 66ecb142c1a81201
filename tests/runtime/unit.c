// Unit tests of the runtime. Without arguments: the tests' names; with a name:
// that test, exit status 1 at its first failure.
#include "bench.h"
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

static struct bench *greeted(void) {
    struct bench *bench = bench_new();
    TEST(bench_open(bench).status == UTVM_STATUS_OK);
    return bench;
}

static struct reply read_memory(struct bench *bench, const void *at, uint32_t size) {
    return bench_ask(bench, UTVM_OPCODE_READ, WORDS(address_of(at), size));
}

// An EXECUTE of one task; the reply after ACCEPTED if there was one.
static struct reply execute(struct bench *bench, const uint8_t *payload, uint32_t size) {
    struct reply first = bench_ask(bench, UTVM_OPCODE_EXECUTE, payload, size);
    if (first.status != UTVM_STATUS_ACCEPTED) {
        return first;
    }
    struct reply second = bench_take(bench);
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
        struct bench *bench = bench_new();
        bench->config.rx_buffer = (free(bench->config.rx_buffer), rx);
        bench->config.rx_size = sizeof rx;
        bench->config.tx_buffer = (free(bench->config.tx_buffer), tx);
        bench->config.tx_size = UTVM_TX_BYTES(v->payload_size < 128 ? 128 : v->payload_size);
        utvm_init(&bench->utvm, &bench->config, 1);

        TEST(utvm_reply_max(&bench->utvm) >= v->payload_size);
        memcpy(utvm_reply(&bench->utvm), v->payload, v->payload_size);
        bench->utvm.reply_length = v->payload_size;
        rx[UTVM_HEADER_OPCODE] = (uint8_t)v->opcode;
        utvm_put32(rx + UTVM_HEADER_SEQUENCE, v->sequence);
        utvm_put32(rx + UTVM_HEADER_SESSION, v->session);
        utvm_frame_send(&bench->utvm);
        TEST(bench->utvm.tx_length == v->encoded_size);
        TEST(memcmp(tx, v->encoded, v->encoded_size) == 0);

        for (uint32_t n = 0; n < v->encoded_size; n++) {
            int whole = utvm_frame_decode(&bench->utvm, v->encoded[n]);
            TEST(whole == (n == v->encoded_size - 1));
        }
        TEST(bench->utvm.rx_length == v->payload_size + 16);
        TEST(memcmp(rx + 12, v->payload, v->payload_size) == 0);
        bench->config.rx_buffer = bench->config.tx_buffer = NULL;
        bench_free(bench);
    }
}

static void test_cobs_vectors(void) {
    for (size_t i = 0; i < sizeof cobs_vectors / sizeof cobs_vectors[0]; i++) {
        const struct cobs_vector *v = &cobs_vectors[i];
        struct bench *bench = bench_new();
        bench->config.rx_buffer = realloc(bench->config.rx_buffer, 1024);
        bench->config.rx_size = 1024;
        for (uint32_t n = 0; n < v->encoded_size; n++) {
            utvm_frame_decode(&bench->utvm, v->encoded[n]);
        }
        TEST(bench->utvm.block_left == 0);
        TEST(bench->utvm.rx_length == v->data_size);
        TEST(memcmp(bench->config.rx_buffer, v->data, v->data_size) == 0);
        bench_free(bench);
    }
}

static void test_no_flipped_bit_is_believed(void) {
    struct bench *bench = greeted();
    uint8_t wire[64];
    uint32_t length = bench_frame(UTVM_PROTOCOL_VERSION, UTVM_OPCODE_REGIONS, 0x2000,
                                  bench->utvm.session, WORDS(0), wire);
    for (uint32_t bit = 8; bit < 8 * (length - 1); bit++) {
        wire[bit / 8] ^= (uint8_t)(1 << bit % 8);
        bench_give(bench, wire, length);
        wire[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    TEST(bench_run(bench) == 0);
    TEST(!bench_take(bench).found);
    TEST(bench->utvm.error != NULL);
    // and the frame itself is believed
    bench_give(bench, wire, length);
    bench_run(bench);
    TEST(bench_take(bench).found);
    bench_free(bench);
}

static void test_resync_after_garbage(void) {
    struct bench *bench = greeted();
    static const uint8_t garbage[] = {1, 0, 0, 255, 3, 0, 9, 9, 9, 0, 1, 0, 2, 2, 0, 200, 65};
    for (uint32_t cut = 0; cut <= sizeof garbage; cut++) {
        bench_give(bench, garbage, cut);
        TEST(read_memory(bench, bench_constants, 4).status == UTVM_STATUS_OK);
    }
    bench_free(bench);
}

static void test_a_frame_longer_than_the_buffer(void) {
    struct bench *bench = greeted();
    uint8_t payload[BENCH_PAYLOAD + 1];
    memset(payload, 7, sizeof payload);
    utvm_put32(payload, address_of(bench_workspace));
    TEST(!bench_ask(bench, UTVM_OPCODE_WRITE, payload, sizeof payload).found);
    TEST(strcmp(bench->utvm.error, "a frame was longer than rx_buffer") == 0);
    TEST(bench_ask(bench, UTVM_OPCODE_WRITE, payload, sizeof payload - 1).found);
    bench_free(bench);
}

static void test_a_port_that_moves_little(void) {
    struct bench *bench = greeted();
    bench->read_max = 1;
    bench->write_max = 1;
    TEST(read_memory(bench, bench_constants, 64).length == 64);
    // nothing goes out for a while
    bench->write_max = 0;
    TEST(!read_memory(bench, bench_constants, 64).found);
    TEST(utvm_poll(&bench->utvm) == 0);
    bench->write_max = 3;
    TEST(bench_run(bench) == 0);
    TEST(bench_take(bench).length == 64);
    bench_free(bench);
}

static void test_port_errors_are_passed_through(void) {
    struct bench *bench = greeted();
    bench->fail = -5;
    TEST(utvm_poll(&bench->utvm) == -5);
    bench->fail = 0;
    bench->write_max = 0;
    read_memory(bench, bench_constants, 4);
    bench->fail = -7;
    TEST(utvm_poll(&bench->utvm) == -7);
    bench_free(bench);
}

/// Sessions ///

static void test_init_refuses(void) {
    struct bench *bench = bench_new();
    const struct utvm_config good = bench->config;
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
        TEST(utvm_init(&bench->utvm, &bad[i], 1) == UTVM_ERR_CONFIG);
        TEST(bench->utvm.error != NULL);
    }
    TEST(utvm_init(&bench->utvm, &good, 1) == UTVM_OK);
    TEST(bench->utvm.error == NULL);
    bench_free(bench);
}

static void test_boot_frame(void) {
    struct bench *bench = bench_new();
    utvm_init(&bench->utvm, &bench->config, 0);
    bench_run(bench);
    struct reply boot = bench_take(bench);
    TEST(boot.found && boot.opcode == (UTVM_OPCODE_BOOT | UTVM_REPLY_BIT));
    TEST(boot.sequence == 0 && boot.session == 0 && boot.length == 0);
    TEST(bench->utvm.nonce == 1);
    bench_free(bench);
}

static void test_hello_changes_nothing(void) {
    struct bench *bench = bench_new();
    struct reply hello = bench_ask_as(bench, UTVM_OPCODE_HELLO, 0, NULL, 0);
    TEST(hello.found && hello.opcode == (UTVM_OPCODE_HELLO | UTVM_REPLY_BIT));
    TEST(hello.sequence == 0x1000 && hello.status == UTVM_STATUS_OK && hello.length == 0);
    TEST(hello.session != 0 && bench->utvm.session == 0);
    // the same one again gives the same id, another one another
    bench->sequence = 0x1000;
    TEST(bench_ask_as(bench, UTVM_OPCODE_HELLO, 0, NULL, 0).session == hello.session);
    TEST(bench_ask_as(bench, UTVM_OPCODE_HELLO, 0, NULL, 0).session != hello.session);
    // with a session in force, too, whose kept reply stays
    TEST(bench_open(bench).status == UTVM_STATUS_OK);
    TEST(read_memory(bench, bench_constants, 4).length == 4);
    uint32_t session = bench->utvm.session;
    bench_ask_as(bench, UTVM_OPCODE_HELLO, 0, NULL, 0);
    TEST(bench->utvm.session == session);
    bench->sequence -= 2;
    TEST(read_memory(bench, bench_constants, 4).length == 4);
    bench_free(bench);
}

static void test_open(void) {
    struct bench *bench = bench_new();
    bench->config.image = "0123456789012345678901234567890123456789012345678901234567890123cut";
    struct reply open = bench_open(bench);
    const uint8_t *data = open.data - UTVM_OUTCOME_BYTES;
    TEST(open.found && open.opcode == (UTVM_OPCODE_OPEN | UTVM_REPLY_BIT));
    TEST(open.sequence == 0x1001 && open.status == UTVM_STATUS_OK);
    TEST(open.session == bench->utvm.session && open.session != 0);
    TEST(utvm_get32(data + UTVM_OPEN_REPLY_RUNTIME_VERSION) == UTVM_VERSION);
    TEST(utvm_get16(data + UTVM_OPEN_REPLY_REQUEST_BYTES) == BENCH_PAYLOAD);
    TEST(utvm_get16(data + UTVM_OPEN_REPLY_REPLY_BYTES) >= BENCH_PAYLOAD);
    TEST(utvm_get32(data + UTVM_OPEN_REPLY_TICKS_PER_SECOND) == 216000000);
    TEST(utvm_get16(data + UTVM_OPEN_REPLY_TICK_UNIT) == UTVM_TICK_UNIT_INSTRUCTIONS);
    TEST(utvm_get16(data + UTVM_OPEN_REPLY_REGION_COUNT) == 4);
    TEST(utvm_get32(data + UTVM_OPEN_REPLY_WORKSPACE) == address_of(bench_workspace));
    TEST(utvm_get32(data + UTVM_OPEN_REPLY_WORKSPACE_BYTES) == WORKSPACE_BYTES);
    TEST(utvm_get32(data + UTVM_OPEN_REPLY_NONCE) == BENCH_NONCE);
    TEST(open.length == UTVM_OPEN_REPLY_BYTES - UTVM_OUTCOME_BYTES + UTVM_MAX_IMAGE_BYTES);
    bench->config.image = NULL;
    TEST(bench_open(bench).length == UTVM_OPEN_REPLY_BYTES - UTVM_OUTCOME_BYTES);
    bench_free(bench);
}

static void test_no_session(void) {
    struct bench *bench = bench_new();
    struct reply refusal = read_memory(bench, bench_constants, 4);
    TEST(refusal.status == UTVM_STATUS_NO_SESSION && refusal.detail == BENCH_NONCE);
    // an OPEN whose HELLO never came
    TEST(bench_ask_as(bench, UTVM_OPCODE_OPEN, 5, NULL, 0).status == UTVM_STATUS_NO_SESSION);
    TEST(bench_open(bench).status == UTVM_STATUS_OK);
    TEST(read_memory(bench, bench_constants, 4).status == UTVM_STATUS_OK);
    // a request of another session; the refusal is to it alone
    uint32_t other = bench->utvm.session ^ 1;
    refusal = bench_ask_as(bench, UTVM_OPCODE_WRITE, other, WORDS(address_of(bench_workspace), 1));
    TEST(refusal.status == UTVM_STATUS_NO_SESSION && refusal.session == other);
    TEST(refusal.sequence == bench->sequence - 1);
    // the reply to the last request is still there
    bench->sequence -= 2;
    TEST(read_memory(bench, bench_constants, 4).length == 4);
    // of two hosts that said HELLO, the one that opens first has the session
    uint32_t one = bench_ask_as(bench, UTVM_OPCODE_HELLO, 0, NULL, 0).session;
    bench->sequence = 0x7000;
    TEST(bench_open(bench).status == UTVM_STATUS_OK);
    TEST(bench_ask_as(bench, UTVM_OPCODE_OPEN, one, NULL, 0).status == UTVM_STATUS_NO_SESSION);
    bench_free(bench);
}

// Frames of hosts that are gone, and of this one's past.
#define OLD_FRAMES 16
static struct {
    uint8_t bytes[128];
    uint32_t length;
} old_frames[OLD_FRAMES];

// Send a frame, run, and let the frames that were recorded be those up to it.
static struct reply said(struct bench *bench, uint32_t *count, uint8_t opcode, uint32_t session,
                         const uint8_t *payload, uint32_t size) {
    uint32_t length = bench_frame(UTVM_PROTOCOL_VERSION, opcode, bench->sequence++, session,
                                  payload, size, old_frames[*count].bytes);
    old_frames[*count].length = length;
    bench_give(bench, old_frames[*count].bytes, length);
    (*count)++;
    bench_run(bench);
    return bench_take(bench);
}

// Between any two frames of a session, any two older ones: nothing is done by
// them, and nothing that the host waits for is lost. Returns how often old
// frames were put in.
static uint32_t replay(uint32_t gap, uint32_t first, uint32_t second) {
    struct bench *bench = bench_new();
    uint32_t count = 0, session = 0, replayed = 0;
    uint8_t *at = bench_workspace;
    memset(at, 0, 8);
    bench_calls = 0;
    struct reply reply;
    memset(&reply, 0, sizeof reply);
    for (uint32_t step = 0; step < 12; step++) {
        if (step % 6 == 0) {
            // another host: numbers of its own, the second one's lower
            bench->sequence = step ? 0x100 : 0x9000;
        }
        if (step == gap) {
            uint32_t kept = bench->utvm.session, calls = bench_calls;
            uint8_t memory[8];
            memcpy(memory, at, 8);
            for (int i = 0; i < 2; i++) {
                uint32_t which = i ? second : first;
                if (which < count) {
                    bench_give(bench, old_frames[which].bytes, old_frames[which].length);
                    replayed++;
                }
            }
            bench_run(bench);
            TEST(bench->utvm.session == kept && bench_calls == calls && !memcmp(memory, at, 8));
            while (bench_take(bench).found) {
            }
            // the reply to the last request may have been lost
            if (count && step % 6 > 1) {
                bench_give(bench, old_frames[count - 1].bytes, old_frames[count - 1].length);
                bench_run(bench);
                struct reply again = bench_take(bench);
                TEST(again.found && again.sequence == reply.sequence);
                TEST(again.opcode == reply.opcode && again.length == reply.length);
                TEST(bench_calls == calls);
            }
        }
        switch (step % 6) {
        case 0:
            session = said(bench, &count, UTVM_OPCODE_HELLO, 0, NULL, 0).session;
            continue;
        case 1:
            reply = said(bench, &count, UTVM_OPCODE_OPEN, session, NULL, 0);
            break;
        case 2:
        case 3:
            reply = said(bench, &count, UTVM_OPCODE_WRITE, session, WORDS(address_of(at), step));
            TEST(at[0] == step);
            break;
        case 4:
            reply = said(bench, &count, UTVM_OPCODE_READ, session, WORDS(address_of(at), 4));
            TEST(reply.length == 4 && reply.data[0] == step - 1);
            break;
        default:
            reply =
                said(bench, &count, UTVM_OPCODE_EXECUTE, session, WORDS(TASK(bench_task, 1, 0)));
            TEST(reply.status == UTVM_STATUS_ACCEPTED);
            reply = bench_take(bench);
            TEST(bench_calls == step / 6 + 1);
        }
        TEST(reply.found && reply.status == UTVM_STATUS_OK && reply.session == session);
    }
    TEST(count == 12);
    bench_free(bench);
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
    struct bench *bench = greeted();
    uint8_t wire[64];
    bench_give(bench, wire, bench_frame(9, UTVM_OPCODE_HELLO, 5, 0, WORDS(1, 2, 3), wire));
    bench_run(bench);
    struct reply refusal = bench_take(bench);
    TEST(refusal.found && refusal.status == UTVM_STATUS_VERSION);
    TEST(refusal.detail == UTVM_PROTOCOL_VERSION && refusal.sequence == 5);
    bench_free(bench);
}

static void test_an_echoing_line(void) {
    struct bench *bench = greeted();
    TEST(read_memory(bench, bench_constants, 4).found);
    uint8_t wire[64];
    bench_give(bench, wire,
               bench_frame(UTVM_PROTOCOL_VERSION, UTVM_OPCODE_READ | UTVM_REPLY_BIT,
                           bench->sequence, bench->utvm.session, WORDS(0, 0, 0), wire));
    TEST(bench_run(bench) == 0);
    TEST(!bench_take(bench).found);
    bench_free(bench);
}

static void test_nothing_is_done_twice(void) {
    struct bench *bench = greeted();
    uint8_t wire[64];
    uint32_t length = bench_frame(UTVM_PROTOCOL_VERSION, UTVM_OPCODE_EXECUTE, bench->sequence,
                                  bench->utvm.session, WORDS(TASK(bench_task, 2, 0)), wire);
    bench_calls = 0;
    for (int i = 0; i < 3; i++) {
        bench_give(bench, wire, length);
    }
    bench_run(bench);
    TEST(bench_calls == 2);
    TEST(bench_take(bench).status == UTVM_STATUS_ACCEPTED);
    for (int i = 0; i < 3; i++) {
        struct reply result = bench_take(bench);
        TEST(result.found && result.status == UTVM_STATUS_OK && result.length == 16);
    }
    TEST(!bench_take(bench).found);

    // the same number with other content, and an older number: nobody waits
    uint32_t number = bench->sequence;
    for (uint32_t back = 0; back < 3; back++) {
        length = bench_frame(UTVM_PROTOCOL_VERSION, UTVM_OPCODE_EXECUTE, number - back,
                             bench->utvm.session, WORDS(TASK(bench_task, 3, 0)), wire);
        bench_give(bench, wire, length);
    }
    bench_run(bench);
    TEST(bench_calls == 2 && !bench_take(bench).found);

    // a new host may have any number
    bench->sequence = 3;
    TEST(bench_open(bench).found);
    TEST(read_memory(bench, bench_constants, 4).found);
    bench_free(bench);
}

static void test_numbers_wrap(void) {
    struct bench *bench = bench_new();
    bench->sequence = 0xfffffffc;
    TEST(bench_open(bench).found);
    for (int i = 0; i < 4; i++) {
        TEST(read_memory(bench, bench_constants, 4).found);
    }
    bench_free(bench);
}

static void test_reset(void) {
    struct bench *bench = greeted();
    struct reply reply = bench_ask(bench, UTVM_OPCODE_RESET, NULL, 0);
    TEST(reply.status == UTVM_STATUS_OK && reply.session != 0);
    TEST(bench->resets == 1);
    struct reply boot = bench_take(bench);
    TEST(boot.opcode == (UTVM_OPCODE_BOOT | UTVM_REPLY_BIT) && boot.session == 0);
    TEST(read_memory(bench, bench_constants, 4).status == UTVM_STATUS_NO_SESSION);
    bench->config.reset = NULL;
    bench_open(bench);
    TEST(bench_ask(bench, UTVM_OPCODE_RESET, NULL, 0).status == UTVM_STATUS_UNSUPPORTED);
    bench_free(bench);
}

static void test_unknown_opcodes(void) {
    struct bench *bench = greeted();
    for (uint32_t opcode = 9; opcode < 128; opcode++) {
        struct reply reply = bench_ask(bench, (uint8_t)opcode, WORDS(1, 2));
        TEST(reply.status == UTVM_STATUS_OPCODE && reply.detail == opcode);
    }
    TEST(bench_ask(bench, UTVM_OPCODE_BOOT, NULL, 0).status == UTVM_STATUS_OPCODE);
    bench_free(bench);
}

static void test_wrong_lengths(void) {
    struct bench *bench = greeted();
    static const uint8_t zeros[16];
    static const uint8_t sizes[][2] = {
        {UTVM_OPCODE_OPEN, 0},      {UTVM_OPCODE_READ, 8},    {UTVM_OPCODE_WRITE, 4},
        {UTVM_OPCODE_CHECKSUM, 12}, {UTVM_OPCODE_REGIONS, 4},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (uint32_t size = 0; size <= 13; size++) {
            uint8_t opcode = sizes[i][0];
            bool fits = opcode == UTVM_OPCODE_WRITE ? size >= 4 : size == sizes[i][1];
            struct reply reply = bench_ask(bench, opcode, zeros, size);
            TEST(reply.found && fits == (reply.status != UTVM_STATUS_LENGTH));
            TEST(fits || reply.detail == size);
        }
    }
    bench_free(bench);
}

/// Memory ///

static void test_rights(void) {
    struct bench *bench = greeted();
    uint8_t *ram = bench_workspace;
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
        {UTVM_OPCODE_READ, address_of(bench_constants), 64, ok},
        {UTVM_OPCODE_READ, address_of(bench_constants), 65, no},
        {UTVM_OPCODE_READ, 0, 1, no},
        {UTVM_OPCODE_READ, 0xffffffff, 1, no},
        {UTVM_OPCODE_READ, 0xffffffff, 200, no},
        {UTVM_OPCODE_READ, address_of((const void *)(uintptr_t)bench_task), 2, no},
        {UTVM_OPCODE_CHECKSUM, address_of(ram), 0xffffffff, no},
        {UTVM_OPCODE_CHECKSUM, address_of(ram) + 1, 0xffffffff, no},
        {UTVM_OPCODE_CHECKSUM, address_of(ram), 2048, ok},
        {UTVM_OPCODE_CHECKSUM, address_of(ram), 2049, no},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        // READ takes the first two words
        uint32_t size = cases[i].opcode == UTVM_OPCODE_READ ? 8 : 12;
        uint32_t words[3] = {cases[i].address, cases[i].size, 0};
        struct reply reply =
            bench_ask(bench, (uint8_t)cases[i].opcode, (const uint8_t *)words, size);
        TEST(reply.found && reply.status == cases[i].status);
        TEST(reply.status == ok || reply.detail == cases[i].address);
        TEST(reply.status == ok || reply.length == 0);
    }
    bench_free(bench);
}

static void test_read_write(void) {
    struct bench *bench = greeted();
    uint8_t payload[BENCH_PAYLOAD];
    for (uint32_t i = 0; i < sizeof payload; i++) {
        payload[i] = (uint8_t)(i * 7);
    }
    utvm_put32(payload, address_of(bench_workspace + 5));
    memset(bench_workspace, 0xee, 512);
    TEST(bench_ask(bench, UTVM_OPCODE_WRITE, payload, sizeof payload).status == UTVM_STATUS_OK);
    TEST(bench_workspace[4] == 0xee && bench_workspace[5 + sizeof payload - 4] == 0xee);
    TEST(memcmp(bench_workspace + 5, payload + 4, sizeof payload - 4) == 0);
    TEST(bench->code == NULL);

    uint32_t most = utvm_reply_max(&bench->utvm) - UTVM_OUTCOME_BYTES;
    struct reply reply = read_memory(bench, bench_workspace, most);
    TEST(reply.length == most && memcmp(reply.data, bench_workspace, most) == 0);
    reply = read_memory(bench, bench_workspace, most + 1);
    TEST(reply.status == UTVM_STATUS_TOO_LARGE && reply.detail == most);

    // code is announced to the port
    utvm_put32(payload, address_of(bench_workspace + 2048));
    TEST(bench_ask(bench, UTVM_OPCODE_WRITE, payload, 14).status == UTVM_STATUS_OK);
    TEST(bench->code == bench_workspace + 2048 && bench->code_size == 10);
    // no right to write
    memset(payload, 0, sizeof payload);
    utvm_put32(payload, address_of(bench_constants));
    TEST(bench_ask(bench, UTVM_OPCODE_WRITE, payload, 8).status == UTVM_STATUS_ADDRESS);
    TEST(bench_constants[0] == 1);
    bench_free(bench);
}

static void test_checksum(void) {
    struct bench *bench = greeted();
    for (uint32_t i = 0; i < 2048; i++) {
        bench_workspace[i] = (uint8_t)(i * i);
    }
    uint32_t at = address_of(bench_workspace);
    struct reply reply = bench_ask(bench, UTVM_OPCODE_CHECKSUM, WORDS(at, 2048, 0));
    TEST(reply.length == 4);
    TEST(utvm_get32(reply.data) == utvm_crc32(0, bench_workspace, 2048));
    // in two parts, across a poll's share
    uint32_t crc = utvm_crc32(0, bench_workspace, 700);
    reply = bench_ask(bench, UTVM_OPCODE_CHECKSUM, WORDS(at + 700, 1348, crc));
    TEST(utvm_get32(reply.data) == utvm_crc32(0, bench_workspace, 2048));
    reply = bench_ask(bench, UTVM_OPCODE_CHECKSUM, WORDS(at, 0, 0));
    TEST(reply.found && utvm_get32(reply.data) == 0);
    bench_free(bench);
}

static void test_regions(void) {
    struct bench *bench = greeted();
    struct reply reply = bench_ask(bench, UTVM_OPCODE_REGIONS, WORDS(1));
    TEST(reply.length == 3 * UTVM_REGION_BYTES);
    TEST(utvm_get32(reply.data) == address_of(bench_workspace + 2048));
    TEST(utvm_get32(reply.data + UTVM_REGION_SIZE) == 2048);
    TEST(utvm_get32(reply.data + UTVM_REGION_RIGHTS) == 7);
    TEST(bench_ask(bench, UTVM_OPCODE_REGIONS, WORDS(4)).length == 0);
    TEST(bench_ask(bench, UTVM_OPCODE_REGIONS, WORDS(0xffffffff)).length == 0);
    // more than fit a reply
    static struct utvm_region many[100];
    bench->config.regions = many;
    bench->config.region_count = 100;
    uint32_t room = utvm_reply_max(&bench->utvm) - UTVM_OUTCOME_BYTES;
    reply = bench_ask(bench, UTVM_OPCODE_REGIONS, WORDS(0));
    TEST(reply.length == room / UTVM_REGION_BYTES * UTVM_REGION_BYTES);
    bench_free(bench);
}

/// Tasks ///

static void test_arguments_and_ticks(void) {
    struct bench *bench = greeted();
    bench_calls = 0;
    struct reply reply = execute(bench, WORDS(TASK(bench_task, 1, 12), 1, 2, 3, 4, 5, 6, 7, 8, 9,
                                              10, 0x80000000, 0xffffffff));
    TEST(reply.status == UTVM_STATUS_OK && reply.length == 8 && bench_calls == 1);
    TEST(utvm_get32(reply.data) == 3 && utvm_get32(reply.data + 4) == 0);
    TEST(bench_arguments[0] == 1 && bench_arguments[9] == 10);
    TEST(bench_arguments[10] == 0x80000000 && bench_arguments[11] == 0xffffffff);

    // several tasks, repeats, fewer arguments, none at all
    reply = execute(bench, WORDS(TASK(bench_task, 3, 1), 5, TASK(bench_task, 0, 0),
                                 TASK(bench_task, 2, 2), 6, 7));
    TEST(reply.length == 5 * 8 && bench_calls == 6);
    TEST(bench_arguments[0] == 6 && bench_arguments[1] == 7 && bench_arguments[2] == 0);
    // an empty batch
    reply = execute(bench, NULL, 0);
    TEST(reply.found && reply.status == UTVM_STATUS_OK && reply.length == 0);
    bench_free(bench);
}

static void test_refused_batches(void) {
    struct bench *bench = greeted();
    uint32_t good = address_of((const void *)(uintptr_t)bench_task);
    uint32_t room = utvm_reply_max(&bench->utvm) - UTVM_OUTCOME_BYTES;
    bench_calls = 0;
    struct reply reply = execute(bench, WORDS(good, 1, 0, address_of(bench_workspace), 1, 0));
    TEST(reply.status == UTVM_STATUS_ADDRESS && reply.index == 1);
    TEST(reply.detail == address_of(bench_workspace));
    reply = execute(bench, WORDS(good + 1, 1, 0));
    TEST(reply.status == UTVM_STATUS_ADDRESS && reply.index == 0);
    reply = execute(
        bench, WORDS(good, 1, 0, good, 1 | 13 << 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    TEST(reply.status == UTVM_STATUS_ARGUMENTS && reply.index == 1 && reply.detail == 13);
    reply = execute(bench, WORDS(good, 1, 0, good, 1 | 2 << 16, 0, 0));
    TEST(reply.status == UTVM_STATUS_LENGTH && reply.index == 1 && reply.detail == 16);
    reply = execute(bench, WORDS(good, 1, 0, good));
    TEST(reply.status == UTVM_STATUS_LENGTH && reply.index == 1 && reply.detail == 4);
    reply = execute(bench, WORDS(good, 1, 0, good, room / 8, 0));
    TEST(reply.status == UTVM_STATUS_TOO_LARGE && reply.index == 1 && reply.detail == room);
    TEST(bench_calls == 0);
    reply = execute(bench, WORDS(good, 1, 0, good, room / 8 - 1, 0));
    TEST(reply.status == UTVM_STATUS_OK && bench_calls == room / 8);
    bench_free(bench);
}

static void test_accepted_is_out_before_the_batch_runs(void) {
    struct bench *bench = greeted();
    bench_calls = 0;
    uint8_t wire[64];
    bench_give(bench, wire,
               bench_frame(UTVM_PROTOCOL_VERSION, UTVM_OPCODE_EXECUTE, bench->sequence,
                           bench->utvm.session, WORDS(TASK(bench_task, 1, 0)), wire));
    bench->write_max = 0;
    TEST(bench_run(bench) == 0 && bench_calls == 0);
    bench->write_max = UINT32_MAX;
    TEST(utvm_poll(&bench->utvm) == 1 && bench_calls == 0);
    TEST(bench_take(bench).status == UTVM_STATUS_ACCEPTED);
    TEST(utvm_poll(&bench->utvm) == 1 && bench_calls == 1);
    TEST(!bench_take(bench).found);
    TEST(utvm_poll(&bench->utvm) == 1);
    TEST(bench_take(bench).status == UTVM_STATUS_OK);
    bench_free(bench);
}

static void test_a_task_that_is_stopped(void) {
    struct bench *bench = greeted();
    bench_guard(bench);
    // the second call of the second task
    bench->stop_after = 3;
    bench->stop_status = UTVM_STATUS_FAULT;
    bench_calls = 0;
    struct reply reply = execute(
        bench, WORDS(TASK(bench_task, 2, 0), TASK(bench_task, 3, 1), 5, TASK(bench_task, 1, 0)));
    TEST(reply.status == UTVM_STATUS_FAULT && reply.index == 1 && reply.detail == 1);
    TEST(reply.length == UTVM_FAULT_BYTES && bench_calls == 3);
    TEST(utvm_get32(reply.data + UTVM_FAULT_KIND) == UTVM_FAULT_KIND_SIGNAL);
    TEST(utvm_get32(reply.data + UTVM_FAULT_EXCEPTION) == 11);
    TEST(utvm_get32(reply.data + UTVM_FAULT_PC) == 0x1234);
    TEST(utvm_get32(reply.data + UTVM_FAULT_BFAR) == 0x5678);
    // the same request again brings the same news, and nothing runs
    bench->stop_after = UINT32_MAX;
    bench->sequence--;
    struct reply again =
        bench_ask(bench, UTVM_OPCODE_EXECUTE,
                  WORDS(TASK(bench_task, 2, 0), TASK(bench_task, 3, 1), 5, TASK(bench_task, 1, 0)));
    TEST(again.status == UTVM_STATUS_FAULT && again.index == 1 && bench_calls == 3);
    // and then it works on
    reply = execute(bench, WORDS(TASK(bench_task, 2, 0)));
    TEST(reply.status == UTVM_STATUS_OK && reply.length == 16 && bench_calls == 5);
    bench->stop_after = bench_calls;
    bench->stop_status = UTVM_STATUS_TIMEOUT;
    reply = execute(bench, WORDS(TASK(bench_task, 2, 0)));
    TEST(reply.status == UTVM_STATUS_TIMEOUT && reply.index == 0 && reply.detail == 0);
    bench_free(bench);
}

static void test_deadlines_reach_the_port(void) {
    struct bench *bench = greeted();
    bench_guard(bench);
    uint32_t task = address_of((const void *)(uintptr_t)bench_task);
    struct reply reply =
        execute(bench, WORDS(task, 2, 7000, task, 1, 0, task, 0, 1, task, 1, 0xffffffff));
    TEST(reply.status == UTVM_STATUS_OK && reply.length == 4 * 8);
    // set and lifted around each task that has one
    const uint32_t wanted[] = {7000, 0, 1, 0, 0xffffffff, 0};
    TEST(bench->deadline_count == 6);
    TEST(memcmp(bench->deadlines, wanted, sizeof wanted) == 0);
    bench->stop_after = bench_calls;
    bench->stop_status = UTVM_STATUS_TIMEOUT;
    execute(bench, WORDS(task, 1, 5));
    TEST(bench->deadline_count == 8 && bench->deadlines[7] == 0);
    // a port without clock: the host's affair
    bench->config.deadline = NULL;
    bench->stop_after = UINT32_MAX;
    reply = execute(bench, WORDS(task, 1, 5));
    TEST(reply.status == UTVM_STATUS_OK && bench->deadline_count == 8);
    bench_free(bench);
}

static void test_one_task_per_poll(void) {
    struct bench *bench = greeted();
    bench_calls = 0;
    uint8_t wire[128];
    bench_give(bench, wire,
               bench_frame(UTVM_PROTOCOL_VERSION, UTVM_OPCODE_EXECUTE, bench->sequence,
                           bench->utvm.session,
                           WORDS(TASK(bench_task, 2, 0), TASK(bench_task, 3, 0)), wire));
    uint32_t calls[8] = {0};
    uint32_t seen = 0;
    while (utvm_poll(&bench->utvm) > 0) {
        if (bench_calls != calls[seen]) {
            calls[++seen] = bench_calls;
        }
    }
    TEST(seen == 2 && calls[1] == 2 && calls[2] == 5);
    bench_free(bench);
}

static void test_two_runtimes(void) {
    struct bench *a = greeted(), *b = bench_new();
    bench_open(b);
    TEST(read_memory(a, bench_constants, 4).sequence == 0x1002);
    a->write_max = 0;
    TEST(!read_memory(a, bench_constants, 8).found);
    TEST(read_memory(b, bench_constants, 12).length == 12);
    a->write_max = 9;
    bench_run(a);
    TEST(bench_take(a).length == 8);
    bench_free(a);
    bench_free(b);
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
