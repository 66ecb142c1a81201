// Functions that the link's tests call on the device.
#define _POSIX_C_SOURCE 200809L

#include <stdint.h>
#include <time.h>
#include <unistd.h>

void test_count(uint32_t *counter);
void test_count(uint32_t *counter) {
    ++*counter;
}

void test_sleep(uint32_t milliseconds);
void test_sleep(uint32_t milliseconds) {
    struct timespec time = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    nanosleep(&time, NULL);
}

// Each argument to its place: none may be lost, swapped or widened wrongly.
void test_arguments(int32_t *out, int32_t a, int32_t b, int32_t c, int32_t d, int32_t e, int32_t f,
                    int32_t g, int32_t h, int32_t i, int32_t j, int32_t k);
void test_arguments(int32_t *out, int32_t a, int32_t b, int32_t c, int32_t d, int32_t e, int32_t f,
                    int32_t g, int32_t h, int32_t i, int32_t j, int32_t k) {
    const int32_t all[] = {a, b, c, d, e, f, g, h, i, j, k};
    for (int n = 0; n < 11; n++) {
        out[n] = all[n];
    }
}

void test_die(uint32_t code);
void test_die(uint32_t code) {
    _exit((int)code);
}

// What a watchdog does: the program begins anew amid a batch.
void test_restart(void);
void test_restart(void) {
    char *const argv[] = {"host", NULL};
    execv("/proc/self/exe", argv);
}
