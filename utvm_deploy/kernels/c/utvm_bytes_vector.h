// utvm_bytes_copy.h and utvm_bytes_fill.h in vectors of RISC-V, of any length.
#define UTVM_BYTES_LOOP(operation)                                                                 \
    ".option push\n"                                                                               \
    ".option arch, +zve32x\n"                                                                      \
    "blez %[left], 2f\n"                                                                           \
    "1:\n"                                                                                         \
    "vsetvli %[some], %[left], e8, m8, ta, ma\n" operation "vse8.v v0, (%[to])\n"                  \
    "sub %[left], %[left], %[some]\n"                                                              \
    "add %[to], %[to], %[some]\n"                                                                  \
    "bgtz %[left], 1b\n"                                                                           \
    "2:\n"                                                                                         \
    ".option pop\n"
// GCC 12 knows no vector register, and uses none.
#if defined(__riscv_v_intrinsic)
#define UTVM_BYTES_VECTORS "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "vl", "vtype"
#else
#define UTVM_BYTES_VECTORS "memory"
#endif

// Copies bytes; none is fine too.
static inline int8_t *utvm_bytes_copy(int8_t *to, const int8_t *from, int32_t count) {
    int32_t some;
    __asm__ volatile(UTVM_BYTES_LOOP("vle8.v v0, (%[from])\n"
                                     "add %[from], %[from], %[some]\n")
                     : [to] "+r"(to), [from] "+r"(from), [left] "+r"(count), [some] "=&r"(some)
                     :
                     : UTVM_BYTES_VECTORS);
    return to;
}

// Sets bytes; none is fine too.
static inline int8_t *utvm_bytes_fill(int8_t *to, int32_t value, int32_t count) {
    int32_t some;
    __asm__ volatile(UTVM_BYTES_LOOP("vmv.v.x v0, %[value]\n")
                     : [to] "+r"(to), [left] "+r"(count), [some] "=&r"(some)
                     : [value] "r"(value)
                     : UTVM_BYTES_VECTORS);
    return to;
}
