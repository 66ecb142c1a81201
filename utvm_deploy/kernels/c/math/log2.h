// log2(mantissa * 2^(exponent - 31)) times 2^place, for a normalized mantissa.
// The place is 55, or 66 where the argument is near 1.
static inline int64_t utvm_binary_logarithm(uint32_t mantissa, int32_t exponent, int32_t *place) {
    // 256 / c, and log2(c) in Q55, for 32 values c between 1 and 2.
    static const uint16_t inverses[32] = {256, 245, 237, 231, 224, 218, 213, 207, 202, 197, 193,
                                          188, 184, 180, 176, 172, 169, 165, 162, 159, 156, 153,
                                          150, 148, 145, 142, 140, 138, 135, 133, 131, 128};
    static const int64_t logarithms[32] = {
        0,
        2282858834379599,
        4008446902434018,
        5341303694687697,
        6940770409889074,
        8352039908426195,
        9558093243967138,
        11043296191921887,
        12314229111348253,
        13617018280492966,
        14683282680775528,
        16047627852890056,
        17165489577334119,
        18307921648153186,
        19476028486986722,
        20670990695463615,
        21585593180076450,
        22830648318364040,
        23784410248139505,
        24756000532330349,
        25746098406814093,
        26755422679441389,
        27784734864942736,
        28482444223779692,
        29546888932949377,
        30633588446155238,
        31370885443454492,
        32118791394109987,
        33261223464929055,
        34037037371577640,
        34824606480806651,
        36028797018963968,
    };
    const uint32_t index = mantissa >> 26 & 31u;
    const int64_t whole = exponent * ((int64_t)1 << 55) + logarithms[index];
    // f in Q36: the mantissa is c * (1 + f), and f between -1/61 and 1/32.
    const int64_t f39 = (int64_t)((uint64_t)mantissa * inverses[index]) - ((int64_t)1 << 39);
    const int32_t f = (int32_t)(f39 >> 3);
    // log2(1 + f) / f is log2(e) + f * q(f).
    int32_t q = 619706247 + (utvm_upper_signed(-500566243, f) >> 4);
    q = -774545991 + (utvm_upper_signed(q, f) >> 4);
    q = 1032721336 + (utvm_upper_signed(q, f) >> 4);
    q = -1549082004 + (utvm_upper_signed(q, f) >> 4);
    const int64_t bent = ((int64_t)f * utvm_upper_signed(q, f)) >> 5;
    // log2(e) in Q62 is 1549082004 * 2^32 + 2920020062.
    const int64_t straight = (int64_t)f * 1549082004 + (((int64_t)f * 2920020062) >> 32);
    if (whole == 0) {
        *place = 66;
        return straight + bent;
    }
    *place = 55;
    return whole + ((straight + bent) >> 11);
}
