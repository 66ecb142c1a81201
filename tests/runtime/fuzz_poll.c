// Any bytes into utvm_poll: nothing outside the buffers and regions may be
// touched, and it must come to rest.
//
// With libFuzzer:  clang -fsanitize=fuzzer,address,undefined fuzz_poll.c ...
// Alone (-DUTVM_FUZZ_MAIN): pseudo-random inputs from a seed, as many as asked;
// prints how many, and how many requests got an answer.
//
// The first byte says how the rest is read: as bytes from the line, or as
// requests whose frames are made whole here, so that what lies behind the CRC
// is reached too.
#include "bench.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t answers;

// Words that lead somewhere, among which the input chooses.
static uint32_t word(const uint8_t *data) {
    const uint32_t telling[] = {
        (uint32_t)(uintptr_t)bench_workspace,
        (uint32_t)(uintptr_t)bench_workspace + 2048,
        (uint32_t)(uintptr_t)bench_workspace + WORKSPACE_BYTES,
        (uint32_t)(uintptr_t)bench_constants,
        (uint32_t)(uintptr_t)bench_task,
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

// Requests: opcode, number of bytes, then these, four at a time as words.
static void requests(struct bench *bench, const uint8_t *data, size_t size) {
    uint8_t payload[BENCH_PAYLOAD + 8], wire[2 * BENCH_PAYLOAD];
    uint8_t hello[] = {1, 2, 3, 4};
    bench_give(bench, wire,
               bench_frame(UTVM_PROTOCOL_VERSION, UTVM_OPCODE_HELLO, 1, 0, hello, 4, wire));
    uint32_t sequence = 2;
    while (size >= 2) {
        uint8_t opcode = data[0] % 12;
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
        static const uint8_t lengths[8] = {0, 4, 8, 0, 0, 12, 4, 0};
        if (length >= UTVM_TASK_BYTES && (data[7] & 3)) {
            if (opcode == UTVM_OPCODE_EXECUTE && length < 64) {
                // one task
                uint32_t argc = (length - UTVM_TASK_BYTES) / 4;
                utvm_put32(payload + UTVM_TASK_REPEAT, (data[4] & 15u) | argc << 16);
                sent = UTVM_TASK_BYTES + 4 * argc;
            } else if (opcode < 8 && lengths[opcode]) {
                sent = lengths[opcode];
            }
        }
        data += length;
        size -= length;
        bench_give(bench, wire,
                   bench_frame(UTVM_PROTOCOL_VERSION, opcode, sequence, BENCH_NONCE + bench->resets,
                               payload, sent, wire));
        // now and then the same number again
        sequence += length % 8 != 7;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 4) {
        return 0;
    }
    struct bench *bench = bench_new();
    // code in RAM, but too little for a function: what is there would be called
    bench->regions[1].end = (const uint8_t *)bench->regions[1].begin + 1;
    bench->read_max = 1u + data[1];
    bench->write_max = 1u + data[2];
    if (data[0] & 1) {
        requests(bench, data + 4, size - 4);
    } else {
        bench_give(bench, data + 4, (uint32_t)size - 4);
    }
    // each byte is taken once, and answers are bounded: so must be the polls
    uint32_t polls = 0;
    while (utvm_poll(&bench->utvm) > 0) {
        if (++polls > 1000000) {
            abort();
        }
    }
    while (bench_take(bench).found) {
        answers++;
    }
    bench_free(bench);
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
           (unsigned)bench_calls);
    return 0;
}
#endif
