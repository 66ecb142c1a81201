// The square root, rounded down.
static inline uint32_t utvm_root_of(uint64_t value) {
    if (value == 0u) {
        return 0u;
    }
    const int32_t pairs = utvm_zeros_above_wide(value) / 2;
    const uint64_t x = value << (2 * pairs);
    const uint32_t upper = (uint32_t)(x >> 32); // Q32
    // 1 / sqrt(x) in Q30: a polynomial, and three steps of Newton and Raphson.
    uint32_t y = 2867760543u - utvm_upper(upper, 3527520488u - utvm_upper(upper, 1759316122u));
    for (int32_t step = 0; step < 3; step++) {
        const uint32_t square = utvm_upper(upper, utvm_upper(y, y)); // Q28
        y = (uint32_t)(((uint64_t)y * (805306368u - square)) >> 29);
    }
    const uint64_t product = ((uint64_t)upper * y) >> 30;
    uint32_t root = product >> 32 ? 0xffffffffu : (uint32_t)product;
    const int64_t rest = (int64_t)(x - (uint64_t)root * root);
    const int64_t more = (int64_t)root + (((rest >> 10) * (int64_t)y) >> 53);
    root = more > 0xffffffff ? 0xffffffffu : (uint32_t)more;
    // The result may be a few steps off.
    while ((uint64_t)root * root > x) {
        root -= 1u;
    }
    while (x - (uint64_t)root * root > 2u * (uint64_t)root) {
        root += 1u;
    }
    return root >> pairs;
}
