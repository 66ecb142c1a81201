// SOFTMAX of rows of int16. `exponentials` and `inverses` have 513 entries over the range of int16.

// The nearest int16, without a branch where an instruction does it.
static inline int32_t utvm_nearest_int16(int32_t value) {
#if defined(__ARM_FEATURE_SAT) && defined(__GNUC__)
    __asm__("ssat %0, #16, %0" : "+r"(value));
    return value;
#else
    return utvm_clamp(value, -32768, 32767);
#endif
}

static inline int32_t utvm_largest_int16(const int16_t *from, int32_t count) {
    int32_t largest = from[count - 1];
#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__)
    uint32_t pairs = (uint32_t)(largest & 0xFFFF) * 0x10001u;
    for (int32_t i = 0; i + 2 <= count; i += 2) {
        uint32_t pair;
        __builtin_memcpy(&pair, from + i, 4);
        __asm__("ssub16 %1, %0, %2\n\tsel %0, %0, %2"
                : "+r"(pairs), "=&r"(largest)
                : "r"(pair)
                : "cc");
    }
    largest = (int16_t)pairs;
    return ((int32_t)pairs >> 16) > largest ? (int32_t)pairs >> 16 : largest;
#else
    for (int32_t i = 0; i < count - 1; i++) {
        largest = from[i] > largest ? from[i] : largest;
    }
    return largest;
#endif
}

// Between two of a table's entries, of which `middle` is for 0.
static inline int32_t utvm_between_int16(const int16_t *middle, int32_t place, int32_t half) {
    const int16_t *entry = middle + (place >> 7);
    return entry[0] + (((entry[1] - entry[0]) * (place & 0x7F) + half) >> 7);
}

// The exponential of a difference, which is not positive: as utvm_requantize, without a branch.
static inline int32_t utvm_power_int16(int32_t difference, const int16_t *middle,
                                       int32_t multiplier, int32_t left, int32_t right,
                                       int32_t most) {
#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__) && !IS_LONG
    int32_t place = (int32_t)((uint32_t)difference << (left + 1));
    __asm__("smmulr %0, %0, %1" : "+r"(place) : "r"(multiplier));
#else
    int32_t place = (int32_t)((uint32_t)difference << left);
    place = (int32_t)(((int64_t)place * multiplier + (1 << 30)) >> 31);
#endif
    // Halves go away from zero, if there are any.
    place += (place & -right) >> 31;
    place = utvm_add((place + (1 << right >> 1)) >> right, most);
    return utvm_between_int16(middle, utvm_nearest_int16(place), 64);
}

// `multiplier` and `shift` scale a difference; the shift is -30 at least. The output may lie on the
// input: it keeps the exponentials until their sum is known. Two elements at a time do not wait for
// each other.
UTVM_ONCE static void utvm_softmax_int16(const int16_t *input, const int16_t *exponentials,
                                         const int16_t *inverses, int32_t multiplier, int32_t shift,
                                         int16_t *output, int32_t rows, int32_t depth) {
    const int32_t whole = depth & ~1, left = shift > 0 ? shift : 0, right = left - shift;
    const int16_t *middle = exponentials + 256;
    for (int32_t row = 0; row < rows; row++, input += depth, output += depth) {
        const int32_t largest = utvm_largest_int16(input, depth);
        int32_t total = 0;
        for (int32_t i = 0; i < whole; i += 2) {
            const int32_t first = input[i] - largest, second = input[i + 1] - largest;
            const int32_t a = utvm_power_int16(first, middle, multiplier, left, right, 32767);
            const int32_t b = utvm_power_int16(second, middle, multiplier, left, right, 32767);
            total += a + b;
            output[i] = (int16_t)a;
            output[i + 1] = (int16_t)b;
        }
        if (whole < depth) {
            const int32_t last = input[whole] - largest;
            const int32_t a = utvm_power_int16(last, middle, multiplier, left, right, 32767);
            total += a;
            output[whole] = (int16_t)a;
        }
        const int32_t zeros = utvm_leading_zeros((uint32_t)total);
        const int32_t rounded = (((total << (zeros - 1)) >> 13) + 1) >> 1;
        const int32_t fraction = utvm_nearest_int16(rounded - (1 << 15) - (1 << 16));
        const int32_t reciprocal = utvm_between_int16(inverses + 256, fraction, 64);
        const int32_t bits = 31 - zeros, half = 1 << (bits - 1);
        // Neither share is negative.
        for (int32_t i = 0; i < whole; i += 2) {
            const int32_t first = (output[i] * reciprocal + half) >> bits;
            const int32_t second = (output[i + 1] * reciprocal + half) >> bits;
            output[i] = (int16_t)utvm_nearest_int16(first);
            output[i + 1] = (int16_t)utvm_nearest_int16(second);
        }
        if (whole < depth) {
            output[whole] =
                (int16_t)utvm_nearest_int16((output[whole] * reciprocal + half) >> bits);
        }
    }
}
