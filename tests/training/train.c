// Trains the model net of test_train_step.py, and gives its functions what they must refuse.

#include "net.h"

#include <stdio.h>
#include <string.h>

static uint8_t arena[NET_ARENA_BYTES] __attribute__((aligned(NET_ARENA_ALIGNMENT)));
static uint8_t kept[NET_STORED_BYTES];
static uint8_t torn[NET_STORED_BYTES];

#define CHECK(condition)                                                                           \
    if (!(condition)) {                                                                            \
        printf("line %d: " #condition "\n", __LINE__);                                             \
        return 1;                                                                                  \
    }

int main(void) {
    float input[NET_INPUT_0_ELEMENTS] = {1, -1, 0.5f, 0.25f, -0.5f, 2};
    float first_input[NET_INPUT_0_ELEMENTS];
    int32_t label = 1;
    float first = 0;
    float loss = 0;
    uint32_t bytes = 0;

    memcpy(first_input, input, sizeof(input));
    net_reset(arena);
    CHECK(net_train_step(arena, input, &label, &first) == 0);
    for (int step = 0; step < 20; step++) {
        CHECK(net_train_step(arena, input, &label, &loss) == 0);
    }
    CHECK(loss < first / 2);

    const uint8_t *stored = net_store(arena, &bytes);
    CHECK(bytes == NET_STORED_BYTES);
    memcpy(kept, stored, bytes);

    // What is refused changes nothing.
    label = 3;
    CHECK(net_train_step(arena, input, &label, &loss) == NET_LABEL_OUT_OF_RANGE);
    label = 1;
    input[0] = 0.0f / (first - first);
    CHECK(net_train_step(arena, input, &label, &loss) == NET_INPUT_NOT_FINITE);
    for (int i = 0; i < NET_INPUT_0_ELEMENTS; i++) {
        input[i] = i % 2 ? -3e38f : 3e38f;
    }
    CHECK(net_train_step(arena, input, &label, &loss) == NET_LOSS_NOT_FINITE);
    CHECK(loss - loss != 0);
    CHECK(memcmp(net_store(arena, &bytes), kept, bytes) == 0);
    memcpy(torn, kept, bytes);
    torn[bytes - 9] ^= 4;
    CHECK(net_restore(arena, torn, bytes) == NET_TORN);
    CHECK(net_restore(arena, kept, bytes - 1) == NET_TORN);
    torn[9] ^= 4;
    CHECK(net_restore(arena, torn, bytes) == NET_OTHER_MODEL);
    CHECK(net_restore(arena, torn, 3) == NET_OTHER_MODEL);
    CHECK(memcmp(net_store(arena, &bytes), kept, bytes) == 0);

    // An update that overflows leaves finite weights.
    memcpy(input, first_input, sizeof(input));
    *net_learning_rate(arena) = 1e38f;
    CHECK(net_train_step(arena, input, &label, &loss) == NET_UPDATE_NOT_FINITE);
    CHECK(memcmp(net_store(arena, &bytes), kept, bytes) == 0);
    *net_learning_rate(arena) = 0.1f;
    CHECK(net_train_step(arena, input, &label, &loss) == 0);
    CHECK(net_restore(arena, kept, bytes) == 0);

    // Weights that are restored give the same outputs.
    float output[NET_OUTPUT_0_ELEMENTS];
    memcpy(input, first_input, sizeof(input));
    memcpy(net_input_0(arena), input, sizeof(input));
    net_run(arena);
    memcpy(output, net_output_0(arena), sizeof(output));
    net_reset(arena);
    *net_learning_rate(arena) = 0.5f;
    CHECK(net_restore(arena, kept, bytes) == 0);
    CHECK(*net_learning_rate(arena) == 0.5f);
    memcpy(net_input_0(arena), input, sizeof(input));
    net_run(arena);
    CHECK(memcmp(output, net_output_0(arena), sizeof(output)) == 0);
    printf("trained\n");
    return 0;
}
