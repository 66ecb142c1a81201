// Given to the compiler before each of the runtime's files when it is fuzzed.
#include <stdio.h>
#include <stdlib.h>

#define UTVM_ASSERT(condition)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);              \
            abort();                                                                               \
        }                                                                                          \
    } while (0)
