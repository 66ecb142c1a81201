// The square root, rounded down.
static inline uint32_t utvm_root_of(uint64_t value) {
    uint64_t root = 0u;
    for (uint64_t digit = (uint64_t)1 << 62; digit != 0u; digit >>= 2) {
        if (value >= root + digit) {
            value -= root + digit;
            root = (root >> 1) + digit;
        } else {
            root >>= 1;
        }
    }
    return (uint32_t)root;
}
